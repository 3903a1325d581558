"""Tokens created by Shortlist: stored as hashes, and applied by every running gateway."""

import logging
import secrets
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final, cast, get_args

from shortlist.access.scope import scope_of
from shortlist.config.settings import Action, Confirm, Settings, TokenSettings
from shortlist.errors import InvalidConfig, StoreError
from shortlist.storage.port import StoredToken, TokenStore

PREFIX: Final = "slt_"
"""Makes a token recognisable, for people and for scanners of leaked secrets."""
SECRET_BYTES = 32
USE_SECONDS = 60.0
"""How often the time of a token's last use is written."""

logger = logging.getLogger(__name__)


def mint() -> str:
    """Return a new token of 256 random bits."""
    return PREFIX + secrets.token_urlsafe(SECRET_BYTES)


def token_settings(token: StoredToken) -> TokenSettings:
    """Return a stored token as the configuration would define it; raise InvalidConfig for an unknown action."""
    unknown = [action for action in token.can or () if action not in get_args(Action)]
    if unknown:
        raise InvalidConfig(f"Token {token.name!r} has the unknown action {unknown[0]!r}.")
    if token.confirm not in get_args(Confirm):
        raise InvalidConfig(f"Token {token.name!r} has the unknown value {token.confirm!r} of `confirm`.")
    return TokenSettings(
        name=token.name,
        hash=token.hash,
        servers=token.servers,
        toolsets=token.toolsets,
        tools=token.tools,
        can=tuple(action for action in get_args(Action) if action in token.can) if token.can is not None else None,
        group=token.group,
        confirm=cast("Confirm", token.confirm),
    )


class OwnTokens:
    """The tokens of a store as a gateway follows them: revoked and expired ones end within a second."""

    def __init__(
        self, store: TokenStore, now: Callable[[], float] = time.time, *, unsaved: StoredToken | None = None
    ) -> None:
        self._store = store
        self._now = now
        self._unsaved = {unsaved.name: unsaved} if unsaved is not None else {}
        self._tokens = self._load()
        self._used: dict[str, float] = {}
        self._noted: dict[str, float] = {}
        self._problems: dict[str, str] = {}
        self._valid = self._valid_now()

    def added_to(self, configured: Settings) -> Settings:
        """Return settings with the valid tokens of the store. A name that the configuration defines stays its own.

        A token whose scope cannot be compiled is left out, so that it never keeps the others from being revoked.
        """
        tokens = {}
        for name, stored in self._tokens.items():
            if name in configured.tokens:
                logger.warning("the configuration also defines the token %r; the created one is not used", name)
            elif stored.is_valid(self._now()):
                try:
                    token = token_settings(stored)
                    scope_of(token, configured)
                except InvalidConfig as error:
                    logger.warning("the token %r is not used: %s", name, error)
                    continue
                tokens[name] = token
        return replace(configured, tokens={**configured.tokens, **tokens})

    def follow(self) -> bool:
        """Read the store again and write what was used; return whether other tokens are valid than before.

        Call it in a worker thread. While the store cannot be read, the tokens known so far stay valid.
        """
        for work in (self._read, self._note_use):  # the first also where the second fails, as on a full disk
            try:
                work()
            except StoreError as error:
                if self._problems.get(work.__name__) != str(error):
                    self._problems[work.__name__] = str(error)
                    logger.warning("%s (the previous tokens stay in use)", error)
        before, self._valid = self._valid, self._valid_now()
        return self._valid != before

    def used(self, name: str) -> None:
        """Note that a request presented this token."""
        if name in self._tokens:
            self._used[name] = self._now()

    def _load(self) -> Mapping[str, StoredToken]:
        return {**self._unsaved, **self._store.load()}

    def _read(self) -> None:
        self._tokens = self._load()

    def _note_use(self) -> None:
        due = {n: at for n, at in self._used.items() if abs(at - self._noted.get(n, float("-inf"))) >= USE_SECONDS}
        if due:
            self._noted |= due
            self._store.note_use(due)

    def _valid_now(self) -> dict[str, StoredToken]:
        now = self._now()
        return {n: replace(t, last_used=None) for n, t in self._tokens.items() if t.is_valid(now)}
