"""Who sends a request, as the border recognised it."""

import hashlib
import time
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Literal, TypeAlias

from shortlist.config.settings import IssuerSettings, Settings, TokenSettings

PrincipalKind: TypeAlias = Literal["owner", "token", "oauth", "nobody"]

LOCAL = "local"
"""The name of a caller that needs no token."""
BY_ISSUER = "issuer:"
"""Begins the credential of a principal that an issuer vouches for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Principal:
    """An authenticated identity. It grants nothing by itself: its scope does."""

    kind: PrincipalKind = "owner"
    name: str = LOCAL
    """The name of a token, or `issuer:subject`."""
    credential: str = field(default="", repr=False)
    """The hash of a token of our own, so that a rotated one is another credential; for an access token of an issuer,
    the settings of that issuer, so that a change of them is noticed."""
    anonymous: bool = False
    """Accepted over HTTP without a token; valid only while the configuration has no tokens and no issuers."""
    rule: int = -1
    """Which rule of its issuer decides what it may do."""
    granted: frozenset[str] = frozenset()
    """The OAuth scopes of the access token that the configuration knows."""
    expires: float | None = field(default=None, compare=False)
    """When the access token ends, in seconds since the epoch; another token may follow it."""

    @property
    def key(self) -> str:
        """Identify the principal among all kinds, for whatever is kept on its behalf."""
        return f"{self.kind}:{self.name}"

    @property
    def issuer(self) -> str:
        """Return the configured name of the issuer that vouches for it; empty for other kinds."""
        return self.name.partition(":")[0] if self.kind == "oauth" else ""

    def is_current(self, settings: Settings) -> bool:
        """Return whether this principal is still valid with these settings."""
        if self.kind == "token":
            token = settings.tokens.get(self.name)
            return token is not None and token.hash == self.credential
        if self.kind == "oauth":
            issuer = settings.oauth.issuers.get(self.issuer)
            return issuer is not None and credential_of(issuer) == self.credential
        return self.kind == "owner" and not (self.anonymous and settings.has_callers)

    def seconds_left(self) -> float | None:
        """Return how long the access token is still valid; None where it has no end."""
        return None if self.expires is None else max(0.0, self.expires - time.time())


OWNER = Principal()
"""The user who started this process: over stdio, or on the command line."""
ANONYMOUS = Principal(anonymous=True)
NOBODY = Principal(kind="nobody", name="nobody")


def token_principal(token: TokenSettings) -> Principal:
    """Return the principal of a token that a request presented."""
    return Principal(kind="token", name=token.name, credential=token.hash)


@lru_cache(maxsize=64)
def credential_of(issuer: IssuerSettings) -> str:
    """Return the credential of everyone that an issuer vouches for."""
    return BY_ISSUER + hashlib.sha256(repr(issuer).encode()).hexdigest()


def principal_of_session(name: str, credential: str) -> Principal:
    """Return the principal that opened a session, as far as its validity depends on it."""
    return Principal(kind="oauth" if credential.startswith(BY_ISSUER) else "token", name=name, credential=credential)
