"""One catalog over all servers: what a client lists and calls, and what changes underneath."""

from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from types import TracebackType
from typing import Any, Self, TypeAlias

import anyio
import anyio.to_thread

from shortlist.config.settings import Settings
from shortlist.disclosure.render import bound_definition
from shortlist.errors import InvalidInput
from shortlist.gateway.answers import text_result
from shortlist.gateway.calling import Calling
from shortlist.gateway.discovery import Discovery
from shortlist.gateway.exchange import Exchange, Round
from shortlist.gateway.instructions import instructions_of
from shortlist.gateway.loading import Loading
from shortlist.gateway.metatools import (
    ALIASES,
    MENUS,
    META_NAMES,
    OPTIONAL_NAMES,
    REPORT_NAMES,
    SELECT,
    defaults_of,
    menu_definitions,
    object_argument,
    optional_definitions,
    task_report,
    text_argument,
)
from shortlist.gateway.selecting import Selecting
from shortlist.gateway.snapshot import Options
from shortlist.gateway.state import NO_OPTIONS, NO_SEAMS, Seams, State, ToolSearch, Upstreams
from shortlist.gateway.workspaces import Caller
from shortlist.models import Json, Server
from shortlist.upstream.events import Notified, StateChanged, ToolsChanged, UpstreamEvent, UpstreamStatus

Result: TypeAlias = dict[str, Any]
MetaTool: TypeAlias = Callable[[Caller, Mapping[str, Json]], Awaitable[Result]]


class Gateway:
    """An async context manager; it owns the calls that stay open between a client's round trips."""

    def __init__(
        self,
        settings: Settings,
        search: ToolSearch,
        upstreams: Upstreams,
        *,
        options: Options = NO_OPTIONS,
        seams: Seams = NO_SEAMS,
    ) -> None:
        self.state = State(settings, search, upstreams, options, seams)
        self._tasks = anyio.create_task_group()
        self.calling = Calling(self.state, self._tasks)
        self._selecting = Selecting(self.state)
        discovery, loading = Discovery(self.state), Loading(self.state)
        self._meta: Mapping[str, MetaTool] = {
            "search_tools": discovery.search,
            "describe_tools": discovery.describe,
            "read_result": self.calling.read,
            "list_toolsets": loading.list_toolsets,
            "load_toolset": loading.load_toolset,
            "load_tools": loading.load_tools,
            "unload_toolset": loading.unload_toolset,
        }

    async def __aenter__(self) -> Self:
        await self._tasks.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._tasks.cancel_scope.cancel()
        await self._tasks.__aexit__(kind, error, trace)

    def instructions(self, caller: Caller) -> str:
        """Say when to search, and name the servers; the same bytes while the catalog is the same."""
        return instructions_of(self.state.view(caller), self.state.visible_servers(caller))

    def list_tools(self, caller: Caller) -> list[dict[str, Json]]:
        """Give what this caller's client lists: the menu, what is bound, and at the end what is loaded."""
        snapshot = self.state.view(caller)
        menu = menu_definitions(snapshot.menu, defaults_of(self.state.variant(caller))) if snapshot.menu else []
        bound = self.state.bound(caller)
        if not snapshot.plain:
            settings = self.state.settings
            menu += optional_definitions(reports=settings.telemetry.tools, select=settings.smart_select is not None)
        self._meet(caller)
        self.state.recording.listed(caller, snapshot, menu, bound, self.state.visible(caller))
        return menu + [bound_definition(snapshot.catalog.tools[i], snapshot.name(i)) for i in bound]

    async def call(self, exchange: Exchange, name: str, arguments: Mapping[str, Json], turn: Round) -> Result:
        """Answer a `tools/call`: a bound tool by its own name, one of the gateway's, or any that may be found."""
        snapshot = self.state.view(exchange.caller)
        self._meet(exchange.caller)
        tool_id = snapshot.names.by_name.get(name)
        if tool_id is not None and self.state.is_bound(exchange.caller, tool_id):
            return await self.calling.call_bound(exchange, snapshot.catalog.tools[tool_id], arguments, turn)
        if snapshot.plain:
            return await self._let_the_server_refuse(exchange, name, arguments, turn)
        target, translate = ALIASES.get(name, (name, dict))
        if (optional := self._optional(target)) is not None:
            return await optional(exchange.caller, arguments)
        if target not in META_NAMES:
            return await self.calling.call(exchange, name, arguments, turn)
        if target == "call_tool":
            return await self._call_tool(exchange, translate(arguments), turn)
        return await self._meta[target](exchange.caller, translate(arguments))

    async def _call_tool(self, exchange: Exchange, arguments: Mapping[str, Json], turn: Round) -> Result:
        name, inner = text_argument(arguments, "name"), object_argument(arguments, "arguments")
        target, _ = ALIASES.get(name, (name, dict))
        if target == "call_tool":
            raise InvalidInput("call_tool cannot call itself. Give it the name of a tool that search_tools found.")
        if target in META_NAMES | OPTIONAL_NAMES:
            return await self.call(exchange, name, inner, turn)
        return await self.calling.call(exchange, name, inner, turn)

    def _optional(self, name: str) -> Callable[[Caller, Mapping[str, Json]], Awaitable[Result]] | None:
        """Give what answers a tool that is offered where the configuration says so."""
        settings = self.state.settings
        if settings.telemetry.tools and name in REPORT_NAMES:
            return partial(self._report, name)
        if settings.smart_select is not None and name == SELECT["name"]:
            return self._selecting.select
        return None

    async def _report(self, name: str, caller: Caller, arguments: Mapping[str, Json]) -> Result:
        """Answer one of the tools about telemetry; reading the store takes a moment."""
        if name == "report_task":
            request = task_report(arguments)
            self.state.recording.task_reported(caller, request.completed, request.task)
            return text_result("Noted.")
        report = self.state.seams.reports.get(name)
        if report is None:
            raise InvalidInput(f"{name} has nothing to report: telemetry is switched off here.")
        return text_result(await anyio.to_thread.run_sync(report, arguments, self.state.visible(caller)))

    def _meet(self, caller: Caller) -> None:
        if self.state.recording.meets(caller, self.state.variant(caller)):
            view = self.state.view(caller)
            menu = len(MENUS[view.menu]) if view.menu else 0
            bound = sum(1 for tool_id in view.bound if self.state.may_see(caller, tool_id))
            self.state.recording.opened(caller, view, menu + bound, self.instructions(caller))

    async def _let_the_server_refuse(
        self, exchange: Exchange, name: str, arguments: Mapping[str, Json], turn: Round
    ) -> Result:
        server = next(iter(self.state.settings.servers))
        params = {"name": name, "arguments": dict(arguments)}
        return await self.calling.request(exchange, server, "tools/call", params, turn)

    def spawn(self, work: Callable[[], Awaitable[None]]) -> None:
        """Run something beside the request that caused it, until the gateway closes."""

        async def run() -> None:
            await work()

        self._tasks.start_soon(run)

    def on_upstream(self, event: UpstreamEvent) -> None:
        """Take up what a server reports: its tools, its state, its notifications."""
        if isinstance(event, ToolsChanged):
            self._take_tools(event)
        elif isinstance(event, Notified):
            self.state.announce(event)
        elif isinstance(event, StateChanged):
            self._take_state(event.status)

    def configure(self, settings: Settings) -> None:
        """Take up a new configuration; servers that are gone take their tools with them."""
        self.state.settings = settings
        catalog = self.state.catalog
        for name in set(catalog.servers) - set(settings.servers):
            catalog = catalog.without_server(name)
        self.state.renew(catalog)

    def _take_state(self, status: UpstreamStatus) -> None:
        """Tell clients that prompts and resources came with a server, or went with it."""
        self.state.recording.upstream_changed(status.server, status.state)
        if status.state == "stopped":
            self.state.stale.discard(status.server)
        offered = status.peer.capabilities if status.peer and status.state in ("ready", "stopped") else {}
        for kind in ("prompts", "resources"):
            if kind in offered:
                self.state.announce(Notified(server=status.server, method=f"notifications/{kind}/list_changed"))

    def _take_tools(self, event: ToolsChanged) -> None:
        state, server = self.state, self._server(event.server)
        state.stale.discard(event.server)
        before = state.catalog
        after = before.with_server(server, event.tools)
        if not before.diff(after) and before.servers == after.servers:
            return
        state.renew(after)
        if (save := state.seams.save) is not None:
            self.spawn(lambda: anyio.to_thread.run_sync(save, server, event.tools))
        state.recording.catalog_changed(event.server, len(event.tools), state.snapshot)

    def _server(self, name: str) -> Server:
        settings = self.state.settings.servers.get(name)
        known = self.state.catalog.servers.get(name, Server(name=name))
        peer = self.state.upstreams.peer(name)
        said = (peer.info.get("description") or peer.instructions) if peer else ""
        return Server(
            name=name,
            title=_text(peer.info.get("title")) if peer else known.title,
            description=(settings.description if settings else "") or _text(said) or known.description,
            categories=known.categories,
            tags=settings.tags if settings else known.tags,
        )


def _text(value: Json) -> str:
    return value if isinstance(value, str) else ""
