"""What a login to a server leaves behind: who signed in where, with which client, and the tokens."""

import json
from contextlib import AbstractAsyncContextManager
from dataclasses import asdict, dataclass, field
from typing import NamedTuple, Protocol

from shortlist.models import Json

SHARED = "shared"
"""The principal of a grant that everybody uses."""


class LoginKey(NamedTuple):
    """A grant belongs to one principal, one server and one resource, and is never used for another."""

    principal: str
    server: str
    resource: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RegisteredClient:
    """A client that an authorization server knows; `issuer` binds its credentials to that server."""

    client_id: str
    issuer: str = ""
    client_secret: str | None = field(default=None, repr=False)
    auth_method: str = "none"


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenGrant:
    """Tokens with all that is needed to refresh them without another discovery."""

    client: RegisteredClient
    issuer: str
    token_endpoint: str
    access_token: str = field(repr=False)
    refresh_token: str | None = field(default=None, repr=False)
    expires_at: float | None = None
    """Seconds since the epoch; None where the server did not say."""
    scope: str = ""
    resource: str = ""
    """As the server's metadata names it, which need not be the URL that is configured."""
    wanted: str = ""
    """The scopes of the next login, where the server refused a request because this grant lacks some."""

    def dump(self) -> str:
        """Return the grant as text that `load` reads."""
        return json.dumps(asdict(self))

    @classmethod
    def load(cls, text: str) -> "TokenGrant":
        """Read a dumped grant; raises ValueError for anything else."""
        try:
            raw: dict[str, Json] = json.loads(text)
            return cls(**{**raw, "client": RegisteredClient(**raw["client"])})
        except (TypeError, KeyError) as error:
            raise ValueError(f"not a grant: {error}") from None


class LoginStore(Protocol):
    """Keeps grants; an implementation may be shared by several processes."""

    async def get(self, key: LoginKey) -> TokenGrant | None: ...

    async def put(self, key: LoginKey, grant: TokenGrant) -> None: ...

    async def remove(self, key: LoginKey) -> None: ...

    def refreshing(self, key: LoginKey) -> AbstractAsyncContextManager[None]:
        """Let one process at a time refresh a grant."""
        ...
