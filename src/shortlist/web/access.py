"""Who may see the dashboard: one-time links, and the sessions that a link or a token opens.

All of it is kept in memory: a restarted gateway prints a new link. A session belongs to one principal and lasts only
while that principal would still be let in.
"""

import hashlib
import hmac
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from shortlist.access.principal import ANONYMOUS, Principal
from shortlist.config.settings import Settings
from shortlist.front.peers import COOKIE

LINK_SECONDS = 3_600.0
SESSION_SECONDS = 12 * 3_600.0
SECRET_BYTES = 32
MOST_KEPT = 200
"""The most links or sessions at a time; the oldest is dropped."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """A signed-in browser."""

    principal: Principal = ANONYMOUS
    """Who signed in; anonymous for a link of a gateway without tokens."""
    csrf: str = field(default_factory=lambda: secrets.token_urlsafe(SECRET_BYTES), repr=False)

    def allows(self, form: str) -> bool:
        """Return whether a form carries the CSRF token of this session."""
        return hmac.compare_digest(self.csrf.encode(), form.encode())

    def lasts(self, settings: Settings) -> bool:
        """Return whether the gateway would still let its principal in."""
        return self.principal.is_current(settings) and self.principal.seconds_left() != 0.0


class Access:
    """Links by their key, and sessions by the secret in their cookie.

    Where several gateways serve the same address, the mark of this one in both tells them where a browser is signed in.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic, mark: str = "") -> None:
        self._mark = f"{mark}-" if mark else ""
        self._links = _Kept[Session](LINK_SECONDS, clock)
        self._sessions = _Kept[Session](SESSION_SECONDS, clock)
        # Browsers send a cookie to every port of a host, so each gateway uses its own name.
        self.cookie = f"{COOKIE}{mark or secrets.token_hex(4)}"

    def link(self, principal: Principal = ANONYMOUS) -> str:
        """Make the key of a link that opens once, for a principal where there are tokens."""
        return self._mark + self._links.keep(Session(principal=principal))

    def follow(self, key: str) -> str | None:
        """Use a link up and return the secret of the session that it opens; None for a link that is unknown or used."""
        session = self._links.take(key.removeprefix(self._mark))
        return self._sessions.keep(session) if session else None

    def open(self, principal: Principal) -> str:
        """Open a session for a principal and return its secret."""
        return self._sessions.keep(Session(principal=principal))

    def session(self, secret: str, settings: Settings) -> Session | None:
        found = self._sessions.get(secret)
        return found if found and found.lasts(settings) else None

    def close(self, secret: str) -> None:
        self._sessions.take(secret)


class _Kept(Generic[T]):
    """Values that expire, each under a random secret of which only the hash is kept."""

    def __init__(self, seconds: float, clock: Callable[[], float]) -> None:
        self._seconds = seconds
        self._clock = clock
        self._kept: OrderedDict[str, tuple[float, T]] = OrderedDict()

    def keep(self, value: T) -> str:
        secret = secrets.token_urlsafe(SECRET_BYTES)
        self._kept[_hash(secret)] = (self._clock() + self._seconds, value)
        while len(self._kept) > MOST_KEPT:
            self._kept.popitem(last=False)
        return secret

    def get(self, secret: str) -> T | None:
        until, value = self._kept.get(_hash(secret), (0.0, None))
        return value if until > self._clock() else None

    def take(self, secret: str) -> T | None:
        value = self.get(secret)
        self._kept.pop(_hash(secret), None)
        return value


def _hash(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()
