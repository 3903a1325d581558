"""A client's request while it is in flight: who sent it, and the way back to it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from shortlist.gateway.workspaces import Caller
from shortlist.models import Json


class Exchange(Protocol):
    """The way back to the client that sent a request."""

    @property
    def caller(self) -> Caller: ...

    def can(self, method: str) -> bool:
        """Say whether the client can answer a server's request of this method."""
        ...

    async def ask(self, method: str, params: Mapping[str, Json]) -> dict[str, Json]:
        """Put a server's request (sampling, elicitation, roots) to the client."""
        ...

    async def progress(self, progress: float, total: float | None, message: str | None) -> None: ...

    async def pause(self) -> None:
        """Let the client go where its era has that: it comes back for the answer."""
        ...

    async def log(self, params: Mapping[str, Json]) -> None:
        """Hand on a server's log entry, if this request wants any."""
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
        """Give the members that a modern server expects in a retry."""
        found = {"inputResponses": self.answers, "requestState": self.state}
        return {key: value for key, value in found.items() if value is not None}
