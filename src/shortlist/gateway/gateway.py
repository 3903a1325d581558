"""One catalog over all servers: what a client lists and calls, and what changes underneath."""

import logging
import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from importlib.util import find_spec
from types import TracebackType
from typing import Self

import anyio
import anyio.to_thread

from shortlist.catalog.catalog import Catalog
from shortlist.config.settings import Settings
from shortlist.disclosure.render import bound_definition
from shortlist.errors import InvalidInput, RequestRefused, StoreError, shortened
from shortlist.gateway.callers import METHOD_NOT_FOUND, Caller, Exchange, Round
from shortlist.gateway.calling import CALL, call_bound, call_checked
from shortlist.gateway.instructions import instructions_of
from shortlist.gateway.menus import BY_NAME, menu_definitions, optional_definitions
from shortlist.gateway.ports import ToolSearch, Upstreams
from shortlist.gateway.router import with_app
from shortlist.gateway.saved_programs import approved_programs, run_saved, with_programs
from shortlist.gateway.state import CallerView, GatewayState, Reload, Seams
from shortlist.gateway.tools import McpResult, ToolArguments, ToolCall, defaults_of
from shortlist.gateway.view import NO_OPTIONS, ServeOptions
from shortlist.models import PROGRAMS, Json, Server, Tool, ToolId
from shortlist.observability.metrics import CIRCUITS, NOTIFICATIONS_DROPPED, READY, STATES, TOOLS, Instruments
from shortlist.upstream.events import Notified, StateChanged, ToolsChanged, UpstreamEvent, UpstreamStatus

SAVE_SECONDS = 5.0
"""How long changes of a server's tools are gathered before its list is saved again, which takes time by its size."""

logger = logging.getLogger(__name__)


class Gateway:
    """An async context manager. While it is entered, it follows what its servers report."""

    def __init__(
        self,
        settings: Settings,
        search: ToolSearch,
        upstreams: Upstreams,
        *,
        options: ServeOptions = NO_OPTIONS,
        seams: Seams | None = None,
    ) -> None:
        self.state = GatewayState(settings, search, upstreams, options, seams)
        self._send, self._changes = anyio.create_memory_object_stream[ToolsChanged](math.inf)
        self._waiting = 0
        self._settled = anyio.Event()
        self._unsaved: dict[str, tuple[Server, Sequence[Tool]]] = {}
        self._saved: set[str] = set()
        self._connected: set[str] = set()
        self._admitting: set[str] = set()
        """Servers that are connected, but whose tools are not admitted yet."""
        self._problem = ""
        """Why saved programs are not offered, as it was reported last."""

    async def __aenter__(self) -> Self:
        await self.state.background.__aenter__()
        self.state.background.spawn("following the tools of servers", self._follow)
        await self.offer_programs()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.state.background.__aexit__(kind, error, trace)

    async def offer_programs(self) -> None:
        """Offer the saved programs that are approved now as tools; call it again after a change."""
        state = self.state
        try:
            approved = approved_programs(await anyio.to_thread.run_sync(state.seams.programs.load))
        except StoreError as error:
            self._report_programs(f"saved programs cannot be read: {error}")
            return
        if approved and PROGRAMS in state.settings.servers:
            self._report_programs(f"saved programs are not offered: a server is named {PROGRAMS!r}. Rename it.")
            return
        if approved and find_spec("pydantic_monty") is None:
            self._report_programs("saved programs are not offered: install them with pip install 'shortlist-mcp[code]'")
            return
        if approved != state.programs:
            state.programs = approved
            await state.renew(partial(with_programs, approved))

    def _report_programs(self, problem: str) -> None:
        if problem != self._problem:
            self._problem = problem
            logger.warning("%s", problem)

    async def instructions(self, caller: Caller) -> str:
        """Return the instructions for a client that connects; they change only when its scope changes."""
        seen = await self.state.admit(caller)
        return instructions_of(seen.mode, seen.tools, seen.menu)

    async def list_tools(self, caller: Caller) -> list[dict[str, Json]]:
        """Return what this caller's client lists: the menu, what is bound, and at the end what is loaded."""
        seen = await self.state.admit(caller, up_to_date=True)
        bound = self.state.bound(seen)
        menu = menu_definitions(seen.menu, defaults_of(seen)) if seen.menu else []
        if not seen.plain:
            menu += optional_definitions(self.state.settings)
        self._meet(seen)
        self.state.recording.listed(seen.caller, self.state.view_of(caller).tokens, menu, bound, seen.tools)
        suspicion = self.state.suspicion
        tools = [seen.tools[tool_id] for tool_id in bound]
        listed = [bound_definition(tool, seen.tools.name(tool.id), suspicion(tool)) for tool in tools]
        if not seen.plain:
            listed = [with_app(tool.server, definition) for tool, definition in zip(tools, listed, strict=True)]
        return menu + listed

    async def call(self, exchange: Exchange, name: str, arguments: ToolArguments, turn: Round) -> McpResult:
        """Answer a `tools/call`: a bound tool by its own name, one of the gateway's tools, or any tool in reach."""
        seen = await self.state.admit(exchange.caller)
        self._meet(seen)
        tool_id = seen.tools.named(name)
        if tool_id is not None and self.state.is_bound(seen, tool_id):
            return await call_bound(self._tool_call(seen, exchange, turn), seen.tools[tool_id], arguments)
        return await self._dispatch(seen, exchange, turn, name, arguments)

    async def call_chosen(self, exchange: Exchange, tool_id: ToolId, arguments: ToolArguments) -> McpResult:
        """Call a tool that a person chose from a list, so that no search had to find it."""
        seen = await self.state.admit(exchange.caller)
        tool = await self.state.find(seen, tool_id)
        return await call_bound(self._tool_call(seen, exchange, Round()), tool, arguments)

    async def _dispatch(
        self, seen: CallerView, exchange: Exchange, turn: Round, name: str, arguments: ToolArguments
    ) -> McpResult:
        if seen.plain:  # the client believes that it speaks to the server itself
            raise RequestRefused(f"Unknown tool: {shortened(name)}")
        call = self._tool_call(seen, exchange, turn)
        tool, translate = BY_NAME.get(name, (None, dict))
        if tool is None or not tool.is_accepted(self.state.settings, seen.menu):
            return await call_checked(call, name, arguments)
        if tool is not CALL and turn.task is not None and turn.task.is_required:
            raise RequestRefused(f"{name} cannot run as a task", code=METHOD_NOT_FOUND)
        return await tool.answer(call, translate(arguments), defaults_of(seen))

    def _tool_call(self, seen: CallerView, exchange: Exchange, turn: Round) -> ToolCall:
        async def inner(name: str, arguments: ToolArguments) -> McpResult:
            tool, _ = BY_NAME.get(name, (None, dict))
            if tool is CALL:
                raise InvalidInput("call_tool cannot call itself. Pass the name of a tool that search_tools found.")
            return await self._dispatch(seen, exchange, turn, name, arguments)

        return ToolCall(state=self.state, seen=seen, exchange=exchange, turn=turn, inner=inner, run_saved=run_saved)

    def _meet(self, seen: CallerView) -> None:
        if self.state.recording.meets(seen.caller, seen.variant):
            menu = len(menu_definitions(seen.menu)) if seen.menu else 0
            told = instructions_of(seen.mode, seen.tools, seen.menu)
            self.state.recording.opened(seen.caller, seen.mode, menu + len(seen.bound), told)

    # What servers report

    def on_upstream(self, event: UpstreamEvent) -> None:
        """Take a server's report: its tools, its state, its notifications."""
        if isinstance(event, ToolsChanged):
            self._waiting += 1
            self.state.arriving.add(event.server)
            self._send.send_nowait(event)
        elif isinstance(event, Notified):
            self.state.announce(event)
        elif isinstance(event, StateChanged):
            self._take_state(event.status)

    async def settled(self) -> None:
        """Wait until every report so far is part of the view."""
        while self._waiting:
            await self._settled.wait()

    async def configure(self, settings: Settings) -> Reload:
        """Apply a new configuration whole, or raise InvalidConfig and keep the present one."""
        return await self.state.configure(settings)

    async def _follow(self) -> None:
        """Apply reports of tools one after the other; those that wait together become one new view."""
        async for first in self._changes:
            waiting = [first]
            while self._changes.statistics().current_buffer_used:
                waiting.append(self._changes.receive_nowait())
            latest = {event.server: event for event in waiting}
            await self.state.background.contained("taking the tools of servers", partial(self._take_tools, latest))
            self.state.arriving.difference_update(latest)
            self._announce_change()
            for server in self._admitting.intersection(latest):
                self._log_ready(server)
            self._waiting -= len(waiting)
            self._settled.set()
            self._settled = anyio.Event()

    async def _take_tools(self, events: Mapping[str, ToolsChanged]) -> None:
        state = self.state
        servers, admitted = {}, {}

        def changed(catalog: Catalog) -> Catalog:
            for name, event in events.items():
                tools = admitted[name] = self._admit(name, event.tools)
                server = servers[name] = state.describe(name, state.settings, catalog)
                after = catalog.with_server(server, tools)
                catalog = after if catalog.diff(after) or catalog.servers != after.servers else catalog
            _ = catalog.fingerprint  # read by the record; counting it here keeps it off the event loop
            return catalog

        state.stale.difference_update(events)
        before, after = await state.renew(changed)
        diff = before.catalog.diff(after.catalog)
        touched = {i.partition("/")[0] for i in diff.added | diff.changed | diff.removed}
        for name in events:
            if name not in touched and before.catalog.servers.get(name) == after.catalog.servers.get(name):
                continue
            self._save_soon(servers[name], admitted[name])
            state.recording.catalog_changed(name, len(admitted[name]), after)

    def _admit(self, server: str, tools: Sequence[Tool]) -> Sequence[Tool]:
        """Return the tools that may be served, and note what these are suspected of."""
        gate = self.state.seams.gate
        if gate is None:
            return tools
        admitted = gate.admit(server, tools, self.state.said(server))
        self.state.doubts[server] = gate.doubts(server)
        self.state.read_only[server] = self.state.reviewed_read_only(server)
        return admitted

    def _save_soon(self, server: Server, tools: Sequence[Tool]) -> None:
        """Save the tools of a server for the next start: the first list at once, changes of it together."""
        waiting, changed = server.name in self._unsaved, server.name in self._saved
        self._unsaved[server.name] = (server, tools)
        self._saved.add(server.name)
        if not waiting and self.state.seams.save is not None:
            work = partial(self._save, server.name, SAVE_SECONDS if changed else 0.0, self.state.seams.save)
            self.state.background.spawn(f"saving the tools of {server.name!r}", work)

    async def _save(self, name: str, seconds: float, save: Callable[[Server, Sequence[Tool]], None]) -> None:
        await anyio.sleep(seconds)
        await anyio.to_thread.run_sync(save, *self._unsaved.pop(name))

    def _take_state(self, status: UpstreamStatus) -> None:
        """Notify clients that the prompts and resources of a server were added or removed."""
        self.state.recording.upstream_changed(status.server, status.state)
        self._announce_change()
        if status.state != "ready":
            self._connected.discard(status.server)
            self._admitting.discard(status.server)
        elif status.server not in self._connected:
            self._connected.add(status.server)
            self._admitting.add(status.server)
            if status.server not in self.state.arriving:
                self._log_ready(status.server)
        if status.state == "stopped":
            self.state.stale.discard(status.server)
        offered = status.peer.capabilities if status.peer and status.state in ("ready", "stopped") else {}
        for kind in ("prompts", "resources"):
            if kind in offered:
                self.state.announce(Notified(server=status.server, method=f"notifications/{kind}/list_changed"))

    def _announce_change(self) -> None:
        self.state.changed.set()
        self.state.changed = anyio.Event()

    def _log_ready(self, server: str) -> None:
        """Log that a server can be used: its tools are admitted and found."""
        self._admitting.discard(server)
        tools = len(self.state.everything.catalog.members.get(server, ()))
        logger.info("server %r is ready: %d tools", server, tools, extra={"server": server})


def watch(gateway: GatewayState, instruments: Instruments) -> None:
    """Let the instruments read the state of each server and how many tools it has."""
    instruments.read(STATES, lambda: Counter((state,) for state in gateway.upstreams.states.values()))
    instruments.read(
        READY, lambda: {(name,): int(state == "ready") for name, state in gateway.upstreams.states.items()}
    )
    instruments.read(
        CIRCUITS,
        lambda: {(name,): int(status.circuit != "closed") for name, status in gateway.upstreams.status().items()},
    )
    instruments.read(
        NOTIFICATIONS_DROPPED,
        lambda: {(name,): status.dropped for name, status in gateway.upstreams.status().items()},
    )
    instruments.read(TOOLS, lambda: {(name,): len(tools) for name, tools in gateway.everything.catalog.members.items()})
