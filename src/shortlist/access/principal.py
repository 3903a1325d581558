"""Who sends a request, as the border recognised it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from shortlist.config.settings import TokenSettings

PrincipalKind: TypeAlias = Literal["owner", "token", "nobody"]

LOCAL = "local"
"""The name of a caller that needs no token."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Principal:
    """An authenticated identity. It grants nothing by itself: its scope does."""

    kind: PrincipalKind = "owner"
    name: str = LOCAL
    credential: str = field(default="", repr=False)
    """The hash of the token it presented. A rotated token is another credential."""
    anonymous: bool = False
    """Accepted over HTTP without a token; valid only while the configuration has no tokens."""

    @property
    def key(self) -> str:
        """Identify the principal among all kinds, for whatever is kept on its behalf."""
        return f"{self.kind}:{self.name}"

    def is_current(self, tokens: Mapping[str, TokenSettings]) -> bool:
        """Return whether this principal is still valid with these tokens."""
        if self.kind == "token":
            token = tokens.get(self.name)
            return token is not None and token.hash == self.credential
        return self.kind == "owner" and not (self.anonymous and tokens)


OWNER = Principal()
"""The user who started this process: over stdio, or on the command line."""
ANONYMOUS = Principal(anonymous=True)
NOBODY = Principal(kind="nobody", name="nobody")


def token_principal(token: TokenSettings) -> Principal:
    """Return the principal of a token that a request presented."""
    return Principal(kind="token", name=token.name, credential=token.hash)
