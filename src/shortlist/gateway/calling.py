"""call_tool and read_result, and the tools that clients call by their own names."""

from collections.abc import Mapping
from time import perf_counter
from typing import Any, TypeAlias

import anyio.abc

from shortlist.disclosure.render import compact_json
from shortlist.errors import ToolNotFound
from shortlist.gateway.answers import text_result
from shortlist.gateway.exchange import Exchange, Round
from shortlist.gateway.metatools import read_request
from shortlist.gateway.recording import Finished
from shortlist.gateway.results import page_notice, paged_result, text_of_result
from shortlist.gateway.rounds import OpenCalls, is_input_required, relay
from shortlist.gateway.state import State
from shortlist.gateway.workspaces import Caller
from shortlist.models import Json, Tool
from shortlist.telemetry.events import CallOutcome
from shortlist.upstream.events import CallOptions
from shortlist.validation import Check, check_call

SCHEMA_CHARACTERS = 6_000
"""How much of a schema a refused call shows."""

Result: TypeAlias = dict[str, Any]


class Calling:
    """Calls tools for a caller; results come back untouched but for the paging of large ones."""

    def __init__(self, state: State, tasks: anyio.abc.TaskGroup) -> None:
        self._state = state
        self._open_calls = OpenCalls(tasks)

    async def call(self, exchange: Exchange, name: str, arguments: Mapping[str, Json], turn: Round) -> Result:
        """Call a tool that the client has no schema of: checked before it is sent, paged when it is large."""
        tool = self._find(exchange.caller, name, arguments)
        check = await check_call(tool, arguments)
        if check.violations:
            refusal = self._refusal(tool, check)
            self._state.recording.refused(exchange.caller, tool.id, "invalid_arguments", arguments, refusal)
            return text_result(refusal, is_error=True)
        result = await self.call_bound(exchange, tool, arguments, turn, native=False)
        if check.unchecked and not is_input_required(result):
            result = _with_note(result, f"[The arguments were not checked: {check.unchecked}.]")
        return await self._paged(exchange.caller, result)

    async def call_bound(
        self, exchange: Exchange, tool: Tool, arguments: Mapping[str, Json], turn: Round, *, native: bool = True
    ) -> Result:
        """Call a tool exactly as if the client spoke to its server."""
        started = perf_counter()
        outcome: CallOutcome = "failed"
        result: Result | None = None
        try:
            params = {"name": tool.name, "arguments": dict(arguments)}
            result = await self.request(exchange, tool.server, "tools/call", params, turn)
            outcome = _outcome(result)
            self._state.uris.note(tool.server, result)
            return result
        finally:
            call = Finished(
                tool=tool.id,
                arguments=arguments,
                outcome=outcome,
                milliseconds=(perf_counter() - started) * 1000,
                native=native,
            )
            self._state.recording.called(exchange.caller, call, result)
            workspace = self._state.workspaces.for_circles(exchange.caller)
            if workspace is not None:
                workspace.called(tool.id)

    async def request(
        self, exchange: Exchange, server: str, method: str, params: Mapping[str, Json], turn: Round
    ) -> Result:
        """Relay a request to a server, through as many round trips as it takes."""

        async def send(asker: Exchange, more: Mapping[str, Json]) -> dict[str, Json]:
            options = CallOptions(
                meta=turn.meta or None, on_progress=asker.progress, on_pause=asker.pause, caller=asker
            )
            working = self._state.in_flight.setdefault(server, [])
            working.append(asker)
            try:
                return await self._state.upstreams.request(server, method, {**params, **more}, options=options)
            finally:
                working.remove(asker)

        peer = self._state.upstreams.peer(server)
        return await relay(exchange, turn, send, era=peer.era if peer else None, open_calls=self._open_calls)

    async def read(self, caller: Caller, arguments: Mapping[str, Json]) -> Result:
        """Answer read_result: the page at an offset, or the passages that match a query."""
        request, owner = read_request(arguments), _owner(caller)
        if request.query is None:
            page = self._state.results.page(owner, request.handle, request.offset)
            notice = {"type": "text", "text": page_notice(page, request.handle)}
            return {"content": [{"type": "text", "text": page.text}, notice]}
        passages = await self._state.results.passages(owner, request.handle, request.query)
        if not passages:
            return text_result(f"Nothing in the result matches {request.query!r}. Read it with offset=0.")
        return text_result("\n\n".join(f"[offset {p.offset}]\n{p.text}" for p in passages))

    def _find(self, caller: Caller, name: str, arguments: Mapping[str, Json]) -> Tool:
        try:
            return self._state.find(caller, name)
        except ToolNotFound as error:
            self._state.recording.refused(caller, name, "unknown", arguments, str(error))
            raise

    def _refusal(self, tool: Tool, check: Check) -> str:
        schema = compact_json(tool.input_schema)
        if len(schema) > SCHEMA_CHARACTERS:
            schema = f"{schema[:SCHEMA_CHARACTERS]}… (describe_tools shows all of it)"
        wrong = "\n".join(f"- {violation}" for violation in check.violations)
        name = self._state.snapshot.name(tool.id)
        return f"{name} was NOT invoked: its arguments do not fit its schema.\n{wrong}\nSchema: {schema}"

    async def _paged(self, caller: Caller, result: Result) -> Result:
        results, owner = self._state.results, _owner(caller)
        text = "" if is_input_required(result) else text_of_result(result)
        if len(text) <= results.characters:
            return result
        handle = results.keep(owner, await results.cut(text))
        return paged_result(result, results.page(owner, handle), handle)


def _outcome(result: Result) -> CallOutcome:
    if is_input_required(result):
        return "input_required"
    return "error" if result.get("isError") else "ok"


def _owner(caller: Caller) -> str:
    """Name who may read a kept result: the caller it was made for, in whatever session it comes back."""
    return caller.name


def _with_note(result: Result, note: str) -> Result:
    return {**result, "content": [*(result.get("content") or ()), {"type": "text", "text": note}]}
