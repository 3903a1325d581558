"""What servers ask of clients: sampling, elicitation, roots."""

from collections.abc import Callable, Mapping
from typing import Any

from mcp import MCPError
from mcp_types import METHOD_NOT_FOUND

from shortlist.gateway.exchange import Exchange
from shortlist.models import Json


class Answerer:
    """Puts what a legacy server asks to the client whose call is in flight there."""

    capabilities: Mapping[str, Json] = {
        "sampling": {"tools": {}, "context": {}},
        "elicitation": {"form": {}, "url": {}},
        "roots": {"listChanged": True},
    }

    def __init__(self) -> None:
        self.idle: Callable[[], tuple[Exchange, ...]] = tuple
        """Gives the clients that can be asked while no call is in flight."""

    async def answer(
        self, server: str, method: str, params: Mapping[str, Json], callers: tuple[Any, ...]
    ) -> dict[str, Json]:
        """Ask the client of the calls in flight; where they are of several clients, nobody is asked."""
        askable: list[Exchange] = [e for e in callers or self.idle() if e is not None and e.can(method)]
        if not askable:
            raise MCPError(METHOD_NOT_FOUND, f"No client that is connected can answer {method}")
        if len({exchange.caller for exchange in askable}) > 1:
            raise MCPError(METHOD_NOT_FOUND, f"Several clients use {server!r}: it is not clear whom {method} is for")
        return await askable[-1].ask(method, params)
