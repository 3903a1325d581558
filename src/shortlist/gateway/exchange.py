"""A client's request while it is in flight: who sent it, and the way back to it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from shortlist.gateway.workspaces import Caller
from shortlist.models import Json

QUESTIONS = ("sampling/createMessage", "elicitation/create", "roots/list")
"""What a server may ask of a client."""
INVALID_REQUEST = -32600
METHOD_NOT_FOUND = -32601


class Exchange(Protocol):
    """The way back to the client that sent a request."""

    @property
    def caller(self) -> Caller: ...

    def can(self, method: str) -> bool:
        """Return whether the client can answer a server's request of this method."""
        ...

    async def ask(self, method: str, params: Mapping[str, Json]) -> dict[str, Json]:
        """Put a server's request (sampling, elicitation, roots) to the client."""
        ...

    async def progress(self, progress: float, total: float | None, message: str | None) -> None: ...

    async def pause(self) -> None:
        """End the stream of the request where the era allows it: the client comes back for the answer."""
        ...

    async def log(self, params: Mapping[str, Json]) -> None:
        """Pass on a server's log entry, if the client asked for entries of its level."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """What a client adds to a request: its `_meta`, and in a later round trip the answers it was asked for."""

    meta: Mapping[str, Json] = field(default_factory=dict)
    answers: Mapping[str, Json] | None = None
    state: str | None = None

    @property
    def is_first(self) -> bool:
        return self.answers is None and self.state is None

    def params(self) -> dict[str, Json]:
        """Return the members that a modern server expects in a retry."""
        found = {"inputResponses": self.answers, "requestState": self.state}
        return {key: value for key, value in found.items() if value is not None}
