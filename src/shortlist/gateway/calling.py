"""call_tool and read_result, the tools that clients call by their own names, and the relay to their servers.

A legacy server asks its client something with a request of its own while the call is open. A modern one ends the call
with `input_required` and is called again with the answers. Where both ends are of one era this is relayed. Where they
differ it is translated: a legacy client is asked and the modern server called again, or the legacy server's call is
kept open while the modern client comes back with the answers.
"""

import json
import logging
from collections.abc import Awaitable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from time import perf_counter

import anyio

from shortlist.access.catalog import CallNotAllowed, needs_confirmation
from shortlist.errors import NAME_CHARACTERS, RequestRefused, ShortlistError, StoreError, ToolNotFound, shortened
from shortlist.gateway.asking import question
from shortlist.gateway.callers import INVALID_REQUEST, QUESTIONS, Exchange, Round, TooManyCalls, session_of
from shortlist.gateway.confirming import confirm, refuse_unasked
from shortlist.gateway.inspecting import inspected
from shortlist.gateway.recording import AuditedRequest, Finished
from shortlist.gateway.refusing import HIDDEN, refusal_of
from shortlist.gateway.relayed_tasks import follow, renamed, task_call, task_of
from shortlist.gateway.results import blocks_of, page_notice, paged_result, shortened_result
from shortlist.gateway.rounds import Send, is_input_required
from shortlist.gateway.signing import after_login
from shortlist.gateway.state import GatewayState
from shortlist.gateway.tools import (
    INTEGER,
    STRING,
    CallRequest,
    McpResult,
    MetaTool,
    ReadRequest,
    ToolArguments,
    ToolCall,
    call_request,
    read_request,
    rendered,
    text_result,
)
from shortlist.large import beside, is_large, write_json
from shortlist.models import Json, Tool
from shortlist.telemetry.events import CallOutcome
from shortlist.upstream.errors import UpstreamNeedsAuth
from shortlist.upstream.events import CallOptions
from shortlist.validation import check_call, hides_characters

logger = logging.getLogger(__name__)

MOST_BLOCKS = 10_000
"""Content blocks of a result: each is looked at several times."""
MAX_ROUNDS = 10
MAX_QUESTIONS = 10
"""How many questions a server may ask in one round."""


async def call_checked(call: ToolCall, name: str, arguments: ToolArguments) -> McpResult:
    """Call a tool whose schema the client does not have: check the arguments first, and page a large result."""
    started = perf_counter()
    tool = await find_tool(call, name, arguments)
    check = await check_call(tool, arguments, lambda: call.seen.caller.principal.key)
    if check.violations:
        refusal = await rendered([tool], partial(refusal_of, call.seen.tools.name(tool.id), tool, check))
        call.state.recording.refused(call.seen.caller, tool.id, "invalid_arguments", arguments, refusal)
        return text_result(refusal, is_error=True)
    result = await call_bound(call, tool, arguments, native=False)
    if check.unchecked and not is_input_required(result):
        result = _with_note(result, f"[The arguments were not checked: {check.unchecked}.]")
    with call.state.prepared_in_time(tool.server, tool.name, started):
        return await _paged(call, tool, result)


async def call_bound(call: ToolCall, tool: Tool, arguments: ToolArguments, *, native: bool = True) -> McpResult:
    """Call a tool exactly as if the client spoke to its server. Every call of a tool comes through here."""
    state, tools = call.state, call.seen.tools
    try:
        tools.check_call(tool.id)
        if await rendered([tool], partial(hides_characters, tool.definition)):
            raise CallNotAllowed(tools.name(tool.id), HIDDEN)
        if not call.is_confirmed and needs_confirmation(tool.id, tools.scope, state.settings):
            return await _call_confirmed(call, tool, arguments, native=native)
    except CallNotAllowed as error:
        state.audit.refused(_audited(state, call.exchange, tool.server, "tools/call", {"name": tool.name}), str(error))
        raise
    return await _call_allowed(call, tool, arguments, native=native)


async def _call_confirmed(call: ToolCall, tool: Tool, arguments: ToolArguments, *, native: bool) -> McpResult:
    """Ask the person, then call. A modern client comes back with the answer to a call that is kept open."""
    exchange, name = call.exchange, call.seen.tools.name(tool.id)
    refuse_unasked(exchange, name)
    if exchange.answers_in_place:
        await confirm(exchange, name, tool, arguments)
        return await _call_allowed(call, tool, arguments, native=native)
    if not call.turn.is_first:
        return await call.state.open_calls.resume(exchange, call.turn)

    async def ask_and_call(asker: Exchange, _: Mapping[str, Json]) -> McpResult:
        await confirm(asker, name, tool, arguments)
        agreed = replace(call, exchange=asker, turn=Round(meta=call.turn.meta))
        return await _call_allowed(agreed, tool, arguments, native=native)

    return await call.state.open_calls.start(exchange, ask_and_call)


async def _call_allowed(call: ToolCall, tool: Tool, arguments: ToolArguments, *, native: bool) -> McpResult:
    started, state = perf_counter(), call.state
    outcome: CallOutcome = "failed"
    result: McpResult | None = None
    failure = ""
    try:
        result = await under_policy(state, tool.server, tool.name, _answered(call, tool, arguments))
        outcome = _outcome(result)
        if shown := list(shown_uris(result)):
            state.uris.note(call.seen.caller.principal.key, tool.server, shown)
        return result
    except ShortlistError as error:
        failure = str(error)
        raise
    finally:
        finished = Finished(
            tool=tool.id,
            arguments=arguments,
            outcome=outcome,
            milliseconds=(perf_counter() - started) * 1000,
            native=native,
            reason=failure,
        )
        state.recording.called(call.seen.caller, finished, result)
        workspace = state.workspaces.for_circles(call.seen.caller)
        if workspace is not None:
            workspace.called(tool.id)


def _bounded(tool: Tool, result: McpResult) -> McpResult:
    """Return a result, or an error where it has more content blocks than anybody reads."""
    blocks = result.get("content")
    if not isinstance(blocks, list) or len(blocks) <= MOST_BLOCKS:
        return result
    why = f"The result of {tool.name} has {len(blocks):,} content blocks; at most {MOST_BLOCKS:,} are passed on."
    return text_result(f"{why} The tool was called: ask it for less.", is_error=True)


async def under_policy(state: GatewayState, server: str, name: str, answer: Awaitable[McpResult]) -> McpResult:
    """Return what a server answers to a call, or raise its error, as the `results` policy of the server demands."""
    settings = state.settings.servers.get(server)
    if settings is None or settings.results == "pass":
        return await answer
    return await inspected(state, settings, name, answer)


async def _answered(call: ToolCall, tool: Tool, arguments: ToolArguments) -> McpResult:
    """Relay a call to its server; run a saved program here."""
    if tool.uses is not None:
        task_call(tool, None, call.exchange.caller.era, call.turn.task)
        return await call.run_saved(call, tool, arguments)
    params = {"name": tool.name, "arguments": dict(arguments)}
    if call.turn.task is not None or '"execution"' in tool.definition:
        return _bounded(tool, await _relay_as_task(call, tool, params))
    return _bounded(tool, await relay(call.state, call.exchange, tool.server, "tools/call", params, call.turn))


async def _relay_as_task(call: ToolCall, tool: Tool, params: Mapping[str, Json]) -> McpResult:
    """Relay a call that may become a task, which its client follows if it can, and the gateway otherwise."""
    state, exchange, turn = call.state, call.exchange, call.turn
    peer = state.upstreams.peer(tool.server)
    sent = task_call(tool, peer, exchange.caller.era, turn.task)
    turn = replace(turn, meta=sent.meta(turn.meta), task=turn.task if sent.is_followed else None)
    result = await relay(state, exchange, tool.server, "tools/call", {**params, **sent.params}, turn)
    task = task_of(result)
    return result if task is None else renamed(result, state.relayed_tasks.keep(exchange.caller, tool, task))


async def _call_tool(call: ToolCall, request: CallRequest) -> McpResult:
    return await call.inner(request.name, request.arguments)


async def _read_result(call: ToolCall, request: ReadRequest) -> McpResult:
    """Return the page at an offset, or the passages that match a query."""
    results, owner = call.state.results, call.seen.caller.principal.key
    if request.query is None:
        page = await results.page(owner, request.handle, request.offset)
        notice = {"type": "text", "text": page_notice(page, request.handle)}
        return {"content": [{"type": "text", "text": page.text}, notice]}
    passages = await results.passages(owner, request.handle, request.query)
    if not passages:
        return text_result(f"Nothing in the result matches {shortened(request.query)!r}. Read it with offset=0.")
    return text_result("\n\n".join(f"[offset {p.offset}]\n{p.text}" for p in passages))


async def find_tool(call: ToolCall, name: str, arguments: ToolArguments) -> Tool:
    """Resolve the name of a call; one that names nothing in reach is recorded."""
    try:
        return await call.state.find(call.seen, name)
    except ToolNotFound as error:
        name = name[:NAME_CHARACTERS]
        call.state.recording.refused(call.seen.caller, name, "unknown", arguments, str(error))
        call.state.audit.refused(_audited(call.state, call.exchange, "", "tools/call", {"name": name}), "not in reach")
        raise


async def _paged(call: ToolCall, tool: Tool, result: McpResult) -> McpResult:
    results = call.state.results
    text = "" if is_input_required(result) else await _text_to_page(result)
    if len(text) <= results.characters:
        return result
    owner = call.seen.caller.principal.key
    pages = await results.cut(owner, text, tool.server)
    try:
        handle = await results.keep(owner, pages)
        return paged_result(result, await results.page(owner, handle), handle)
    except StoreError as error:
        logger.warning("a large result was not kept: %s", error)
        return shortened_result(result, pages[0], len(text))


async def _text_to_page(result: McpResult) -> str:
    """Return the text of a result; large structured content is written beside the event loop."""
    structured, joined = result.get("structuredContent"), _joined_text(result)
    if joined or structured is None or not is_large(structured):
        return joined or text_of_result(result)
    return (await beside(write_json, structured)).decode()


def text_of_result(result: Mapping[str, Json]) -> str:
    """Join the text of a tool's result; structured content counts where there is no text."""
    joined, structured = _joined_text(result), result.get("structuredContent")
    return joined if joined or structured is None else json.dumps(structured, ensure_ascii=False)


def _joined_text(result: Mapping[str, Json]) -> str:
    blocks = result.get("content")
    found = [b for b in blocks if isinstance(b, dict)] if isinstance(blocks, list) else []
    texts = [block.get("text") for block in found if block.get("type") == "text"]
    return "\n".join(text for text in texts if isinstance(text, str))


def _outcome(result: McpResult) -> CallOutcome:
    if is_input_required(result):
        return "input_required"
    return "error" if result.get("isError") else "ok"


def _with_note(result: McpResult, note: str) -> McpResult:
    return {**result, "content": [*blocks_of(result), {"type": "text", "text": note}]}


CALL = MetaTool(
    name="call_tool",
    description="Call a tool that was found, by its name. Arguments are checked before anything is sent.",
    properties={"name": STRING, "arguments": {"type": "object"}},
    required=("name", "arguments"),
    parse=call_request,
    handle=_call_tool,
    aliases={
        "execute_tool": lambda a: {"name": a.get("tool_name"), "arguments": a.get("arguments")},
        "call_loaded_tool": lambda a: {"name": a.get("tool"), "arguments": a.get("args")},
    },
    menus=("search", "minimal", "dynamic"),
)
READ = MetaTool(
    name="read_result",
    description="Read on in a long result, or find passages in it.",
    properties={"handle": STRING, "offset": INTEGER, "query": STRING},
    required=("handle",),
    reads=True,
    parse=read_request,
    handle=_read_result,
    menus=("search", "dynamic", "code"),
)


# The relay


async def relay(
    state: GatewayState, exchange: Exchange, server: str, method: str, params: Mapping[str, Json], turn: Round
) -> McpResult:
    """Relay a request to a server. It is recorded in the audit log before it is sent, and again when it has ended."""
    request, outcome = _audited(state, exchange, server, method, params), "failed"
    try:
        with state.shares.turn(exchange.caller, server):
            state.audit.allowed(request)
            try:
                result = await _relayed(state, exchange, server, method, params, turn)
                outcome = _outcome(result)
                return result
            except UpstreamNeedsAuth as refused:
                meta = Round(meta=turn.meta)
                again = partial(_relayed, state, server=server, method=method, params=params, turn=meta)
                result = await after_login(state, exchange, turn, refused, again)
                outcome = _outcome(result)
                return result
            finally:
                state.audit.ended(request, outcome)
    except TooManyCalls as error:
        state.audit.refused(request, str(error))
        raise


def _audited(
    state: GatewayState, exchange: Exchange, server: str, method: str, params: Mapping[str, Json]
) -> AuditedRequest:
    name = str(params.get("name") or params.get("uri") or params.get("taskId") or "")
    arguments = params.get("arguments")
    return AuditedRequest(
        principal=exchange.caller.principal,
        action=method,
        name=name,
        server=server,
        definition=state.everything.catalog.hashes.get(f"{server}/{name}", "") if method == "tools/call" else "",
        program=exchange.caller.program,
        arguments=arguments if isinstance(arguments, dict) else {},
    )


async def _relayed(
    state: GatewayState, exchange: Exchange, server: str, method: str, params: Mapping[str, Json], turn: Round
) -> McpResult:
    """Relay a request in as many round trips as it takes, whatever the eras of its two ends."""

    async def send(asker: Exchange, more: Mapping[str, Json]) -> dict[str, Json]:
        session, principal = session_of(state.settings.servers.get(server), asker.caller, state.rooted)
        options = CallOptions(
            meta=turn.meta or None,
            on_progress=asker.progress,
            on_pause=asker.pause,
            caller=asker,
            session=session,
            principal=principal,
        )
        working = state.in_flight.setdefault(server, [])
        working.append(asker)
        try:
            result = await state.upstreams.request(server, method, {**params, **more}, options=options)
            task = task_of(result) if "task" in params and turn.task is None else None
            if task is not None:  # the gateway asked for it, and its client does not follow it
                ask = partial(state.upstreams.request, server, options=replace(options, meta=None))
                peer = state.upstreams.peer(server)
                return await follow(ask, server, task, peer.era if peer is not None else "legacy")
            if "inputRequests" in result:
                return _with_questions(state, exchange, server, result)
            return result
        finally:
            working.remove(asker)

    if exchange.answers_in_place:
        return await _ask_until_done(exchange, send)
    if state.open_calls.has(turn):
        return await state.open_calls.resume(exchange, turn)
    peer = state.upstreams.peer(server)
    if peer is not None and peer.era == "legacy" and not (turn.is_first and not any(map(exchange.can, QUESTIONS))):
        open_calls = state.open_calls
        return await (open_calls.start(exchange, send) if turn.is_first else open_calls.resume(exchange, turn))
    return await send(exchange, turn.params())


def _with_questions(state: GatewayState, exchange: Exchange, server: str, result: McpResult) -> McpResult:
    """Return what a modern server answers with its questions as the client gets them; refuse what it may not ask."""
    asked = result.get("inputRequests")
    if not isinstance(asked, dict):
        raise RequestRefused(f"{server!r} asks for input, but its `inputRequests` is not an object")
    if len(asked) > MAX_QUESTIONS:
        raise RequestRefused(f"{server!r} asks {len(asked)} questions at once; {MAX_QUESTIONS} are allowed")
    questions = {}
    for key, each in asked.items():
        known = each if isinstance(each, dict) else {}
        method, params = str(known.get("method")), known.get("params")
        put = question(state, exchange, server, method, params if isinstance(params, dict) else {})
        questions[key] = {**known, "params": put}
    return {**result, "inputRequests": questions}


async def _ask_until_done(exchange: Exchange, send: Send) -> dict[str, Json]:
    """Call a server for a legacy client, and put every question of a modern server to it."""
    result = await send(exchange, {})
    for _ in range(MAX_ROUNDS):
        if not is_input_required(result):
            return result
        answers = await _ask_all(exchange, result.get("inputRequests") or {})
        result = await send(exchange, Round(answers=answers, state=result.get("requestState")).params())
    raise RequestRefused(f"The server asked for input more than {MAX_ROUNDS} times", code=INVALID_REQUEST)


async def _ask_all(exchange: Exchange, questions: Mapping[str, Json]) -> dict[str, Json]:
    answers: dict[str, Json] = {}

    async def ask(key: str, question: Mapping[str, Json]) -> None:
        answers[key] = await exchange.ask(question["method"], question.get("params") or {})

    async with anyio.create_task_group() as tasks:
        for key, question in questions.items():
            tasks.start_soon(ask, key, question)
    return answers


def shown_uris(result: Mapping[str, Json]) -> Iterator[str]:
    """Yield the addresses of the resources that a result links to or contains."""
    content = result.get("content")
    for block in content if isinstance(content, list) else ():
        if isinstance(block, dict) and block.get("type") in ("resource_link", "resource"):
            holder = block if block["type"] == "resource_link" else block.get("resource")
            uri = holder.get("uri") if isinstance(holder, dict) else None
            if isinstance(uri, str):
                yield uri
