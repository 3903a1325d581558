"""Questions of legacy servers, and the clients that answer them."""

from collections.abc import Callable, Mapping
from typing import Any

from mcp import MCPError
from mcp_types import METHOD_NOT_FOUND

from shortlist.gateway.callers import QUESTIONS, Caller, Exchange
from shortlist.models import Json


class Answerer:
    """Forwards requests of a legacy server to the client whose call is in flight."""

    capabilities: Mapping[str, Json] = {
        "sampling": {"tools": {}, "context": {}},
        "elicitation": {"form": {}, "url": {}},
        "roots": {"listChanged": True},
    }

    def __init__(self) -> None:
        self.idle: Callable[[str], tuple[Exchange, ...]] = lambda _: ()
        """Returns the clients that a server may ask while no call is in flight."""
        self.may_be_asked: Callable[[Caller], bool] = lambda _: True
        self.question: Callable[[Exchange, str, str, Mapping[str, Json]], Mapping[str, Json]] = lambda *given: given[3]
        """Returns the params of a question as the client gets it, or raises."""
        self.owner_of: Callable[[str, Mapping[str, Json]], Caller | None] = lambda *_: None
        """Returns the client that follows the task that a question belongs to."""
        self.told_roots: Callable[[str, Caller], None] = lambda *_: None
        """Notes that a server is told the roots of a client."""

    async def answer(
        self, server: str, method: str, params: Mapping[str, Json], callers: tuple[Any, ...]
    ) -> dict[str, Json]:
        """Ask the client of the calls in flight; refuse where they belong to several clients."""
        known = method in QUESTIONS
        # While no call is in flight, only roots may be asked for: servers do so when they start.
        idle = self.idle(server) if method == "roots/list" else ()
        candidates: list[Exchange] = [e for e in callers or idle if e is not None] if known else []
        owner = self.owner_of(server, params)
        askable = [e for e in candidates if self.may_be_asked(e.caller) and e.can(method) and owner in (None, e.caller)]
        if not askable:
            raise MCPError(METHOD_NOT_FOUND, f"No connected client can answer {method}")
        if len({exchange.caller for exchange in askable}) > 1:
            raise MCPError(
                METHOD_NOT_FOUND, f"Several clients use {server!r}, so it is not clear which one {method} is for"
            )
        chosen = askable[-1]
        if method == "roots/list":
            self.told_roots(server, chosen.caller)
        return await chosen.ask(method, self.question(chosen, server, method, params))
