"""run_code: a program whose calls are calls.

Each inner call is admitted, checked, limited, audited and recorded as one from outside; the program is its parent. A
tool that is not read-only by the configuration or a review is called only where the configuration allows writing or
the user agrees to the calls that are shown. A question in the middle, of a server or of the gateway, suspends the
program: a legacy client answers while its request is open, a modern one comes back with the answer.
"""

import json
import logging
import secrets
from collections import Counter
from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from functools import partial
from typing import Any
from weakref import WeakKeyDictionary

import anyio
import anyio.to_thread

from shortlist.access.catalog import CallNotAllowed
from shortlist.access.scope import effects_of
from shortlist.code.report import ProgramReport
from shortlist.code.runner import CallWork, Deadline, Sandbox, let_others_run
from shortlist.code.sandbox import Budget, Script, Wanted
from shortlist.code.stubs import bound_arguments
from shortlist.config.settings import CodeSettings
from shortlist.disclosure.budget import estimate_tokens
from shortlist.errors import InvalidInput, RequestRefused, ShortlistError, ToolNotFound
from shortlist.gateway.callers import Caller, Exchange, Round
from shortlist.gateway.calling import call_bound, find_tool, text_of_result
from shortlist.gateway.confirming import ELICIT, shown_arguments
from shortlist.gateway.discovery import DESCRIBE, SEARCH
from shortlist.gateway.inspecting import is_marked
from shortlist.gateway.python_tools import PythonTools, functions_of
from shortlist.gateway.recording import AuditedRequest, FinishedProgram
from shortlist.gateway.results import blocks_of
from shortlist.gateway.rounds import is_input_required
from shortlist.gateway.state import GatewayState
from shortlist.gateway.tools import CODE_DEFAULTS, McpResult, MetaTool, ToolCall, text_result
from shortlist.models import Json, Tool, ToolId
from shortlist.telemetry.events import ProgramOutcome
from shortlist.text.tokens import clean_text, one_line
from shortlist.upstream.errors import UpstreamTimeout
from shortlist.validation import check_call

FORM: Mapping[str, Json] = {
    "type": "object",
    "properties": {
        "always": {
            "type": "boolean",
            "title": "Allow further calls of these tools by this program",
            "default": False,
        }
    },
}
MAX_VALUE = 1_000_000
"""Characters of a result that enter a program; a larger one is kept and read in pages."""
SHOWN_ARGUMENTS = 300
"""Characters of a call's arguments that a user is shown."""
CHARACTERS_PER_TOKEN = 4
PROGRAM_BYTES = 8
logger = logging.getLogger(__name__)
_sandboxes: WeakKeyDictionary[GatewayState, Sandbox] = WeakKeyDictionary()


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """What is to be run, and what it may do."""

    source: str
    max_tokens: int
    """Of the answer."""
    name: str = ""
    """Of a saved program."""
    inputs: Mapping[str, Json] = field(default_factory=dict)
    """The values of its parameters."""
    tools: frozenset[ToolId] | None = None
    """The only tools that it may call; None: all in reach."""
    may_write: bool = False
    """It calls tools that may write without asking the user."""


async def run_program(call: ToolCall, program: Program) -> McpResult:
    """Run a program, or continue one whose client came back with answers."""
    open_calls = call.state.open_calls
    if not call.turn.is_first:
        return await open_calls.resume(call.exchange, call.turn)

    async def started(asker: Exchange, _: Mapping[str, Json]) -> McpResult:
        return await _run(call, asker, program)

    if call.exchange.answers_in_place:
        return await started(call.exchange, {})
    return await open_calls.start(call.exchange, started)


async def _run(call: ToolCall, asker: Exchange, program: Program) -> McpResult:
    """Run a program as a caller of its own, which the audit log and the events name as the parent of its calls."""
    state = call.state
    caller = replace(call.seen.caller, program=secrets.token_hex(PROGRAM_BYTES))
    request = AuditedRequest(
        principal=caller.principal,
        action="run_code",
        name=program.name,
        program=caller.program,
        arguments={"code": program.source, **({"inputs": dict(program.inputs)} if program.inputs else {})},
    )
    state.audit.allowed(request)
    outcome: ProgramOutcome = "failed"
    try:
        report = await _reported(call, asker, caller, program)
        outcome = "failed" if report.failure is not None else "ok"
    finally:
        state.audit.ended(request, outcome)
    answer = await _answer(call, report, program)
    finished = FinishedProgram(
        source=program.source,
        outcome=outcome,
        milliseconds=report.milliseconds,
        calls=Counter(each.state for each in report.calls),
        answer=answer,
    )
    state.recording.program_ended(caller, finished)
    return answer


async def _reported(call: ToolCall, asker: Exchange, caller: Caller, program: Program) -> ProgramReport:
    settings = call.state.settings.code
    budget = Budget(
        calls=settings.calls,
        seconds=settings.seconds,
        memory=int(settings.memory_megabytes * 1024 * 1024),
        output=settings.output_characters,
    )
    deadline = Deadline(budget.seconds)
    exchange = _ProgramExchange(asker, caller, deadline)
    seen = replace(call.seen, caller=caller)
    inner = replace(call, seen=seen, exchange=exchange, turn=Round(meta=call.turn.meta))
    script = Script(source=program.source, inputs=program.inputs, is_nested=bool(call.seen.caller.program))
    return await _sandbox(call.state).run(script, _Calls(inner, settings, program), budget, deadline)


def _sandbox(state: GatewayState) -> Sandbox:
    """Return the gateway's sandbox; its workers end with the gateway."""
    if state not in _sandboxes:
        made = _sandboxes[state] = Sandbox()
        state.background.spawn("the workers of programs", partial(_until_the_end, made))
    return _sandboxes[state]


async def _until_the_end(sandbox: Sandbox) -> None:
    try:
        await anyio.sleep_forever()
    finally:
        await sandbox.close()


# What a program answers


async def _answer(call: ToolCall, report: ProgramReport, program: Program) -> McpResult:
    """Return output and value within the budget of tokens; what is longer is kept for read_result."""
    whole = "\n".join(filter(None, (report.printed.rstrip("\n"), report.value or "")))
    failed = report.failure is not None
    if program.name and not failed:  # a tool like any other: its result, and nothing about how it came about
        value = json.loads(report.value or "null")
        result = text_result(clean_text(whole))
        return {**result, "structuredContent": value} if isinstance(value, dict) else result
    shown = await _within(call, whole, program.max_tokens)
    parts = [shown, str(report.failure) if failed else "", report.calls_text()]
    return text_result("\n".join(filter(None, parts)), is_error=failed)


async def _within(call: ToolCall, whole: str, max_tokens: int) -> str:
    text, shown = await anyio.to_thread.run_sync(_beginning, whole, max_tokens)
    if len(shown) == len(text):
        return text
    results, owner = call.state.results, call.seen.caller.principal.key
    handle = await results.keep(owner, await results.cut(owner, text))
    return (
        f"{shown}\n[{len(shown):,} of {len(text):,} characters. Read on: read_result(handle={handle!r}, "
        f"offset={len(shown)}); find a passage: read_result(handle={handle!r}, query=...)]"
    )


def _beginning(whole: str, max_tokens: int) -> tuple[str, str]:
    """Return a text without control characters, and as much of its beginning as the budget allows."""
    text = clean_text(whole)
    shown = text[: max_tokens * CHARACTERS_PER_TOKEN]
    while (tokens := estimate_tokens(shown)) > max_tokens:
        shown = shown[: min(len(shown) * max_tokens // tokens, len(shown) - 1)]
    return text, shown


# What a program calls


class _Refused(ShortlistError):
    """A call that is not made; `kind` is what is raised inside the program."""

    def __init__(self, kind: type[Exception], message: str) -> None:
        super().__init__(message)
        self.kind = kind


@dataclass(frozen=True, slots=True, eq=False)
class _Ready:
    """A call that scope and arguments allow; `shown` is what a user who is asked about it reads."""

    make: CallWork
    writes: ToolId | None = None
    """The tool, where nobody says that it only reads."""
    shown: str = ""


class _Calls:
    """The tools, `search` and `describe` of one program."""

    def __init__(self, call: ToolCall, settings: CodeSettings, program: Program) -> None:
        self._call = call
        self._settings = settings
        self._program = program
        effects = effects_of(call.state.settings)
        self._read_only = frozenset(tool_id for tool_id, effect in effects.items() if effect == "read_only")
        self._agreed: set[ToolId] = set()
        """Tools that the user allowed for the whole program."""

    async def prepare(self, calls: Sequence[Wanted]) -> Sequence[CallWork | Exception]:
        """Resolve and check parallel calls, and ask the user once about those that may write."""
        ready = []
        for wanted in calls:
            ready.append(await _outcome(self._ready(wanted)))
            await let_others_run(wanted.number)
        writing = [each for each in ready if isinstance(each, _Ready) and each.writes is not None]
        refused = await _outcome(self._ask(writing)) if writing else None
        if isinstance(refused, Exception):
            ready = [refused if each in writing else each for each in ready]
        return [each.make if isinstance(each, _Ready) else each for each in ready]

    async def _admitted(self) -> ToolCall:
        """Resolve the caller again: what it may reach can change while its program runs."""
        return replace(self._call, seen=await self._call.state.admit(self._call.seen.caller))

    async def _ready(self, wanted: Wanted) -> _Ready:
        if wanted.name in _META:
            return _Ready(_inside(partial(self._discover, wanted)))
        call = await self._admitted()
        functions = functions_of(call.seen.tools)
        tool = functions.find(wanted.name) or await _unknown(call, functions, wanted)
        arguments = await _checked(call, functions, tool, wanted)
        call.seen.tools.check_call(tool.id)
        self._check_listed(tool, functions)
        writes = None if self._runs_unasked(tool) else tool.id
        shown = f"{functions.path(tool)}({shown_arguments(arguments, SHOWN_ARGUMENTS)})" if writes else ""
        is_asked = writes is not None or tool.id in self._agreed
        return _Ready(_inside(partial(self._make, tool, arguments, is_asked)), writes, shown)

    def _check_listed(self, tool: Tool, functions: PythonTools) -> None:
        """Refuse a tool that was not part of a saved program when it was approved."""
        if self._program.tools is not None and tool.id not in self._program.tools:
            raise _Refused(
                PermissionError,
                f"{functions.path(tool)} was NOT invoked: {self._program.name!r} was approved without it. The operator "
                "can save the program again.",
            )

    def _runs_unasked(self, tool: Tool) -> bool:
        """Return whether the configuration, a review or the user lets a tool run; a saved program asks by itself."""
        return (
            self._settings.allow == "write"
            or self._program.may_write
            or tool.uses is not None
            or tool.id in self._read_only
            or tool.id in self._agreed
            or any(fnmatchcase(tool.id, glob) for glob in self._settings.read_only)
            or self._call.state.is_reviewed_read_only(tool)
        )

    async def _ask(self, calls: Sequence[_Ready]) -> None:
        """Ask the user whether these calls may be made; raise where it cannot be asked or does not agree."""
        exchange = self._call.exchange
        names = ", ".join(dict.fromkeys(each.shown.partition("(")[0] for each in calls))
        if not exchange.can(ELICIT) or not self._call.seen.can("be_asked"):
            raise _Refused(
                PermissionError,
                f"{names} was NOT invoked: it may write, and this client cannot ask the user. The operator can set its "
                "`effect` to read_only, or `code.allow` to write.",
            )
        listed = "\n".join(f"- {each.shown}" for each in calls)
        answer = await exchange.ask(
            ELICIT, {"mode": "form", "message": f"A program wants to call:\n{listed}", "requestedSchema": FORM}
        )
        if answer.get("action") != "accept":
            raise _Refused(PermissionError, f"{names} was NOT invoked: the user did not allow it.")
        content = answer.get("content")
        if isinstance(content, dict) and content.get("always") is True:
            self._agreed.update(each.writes for each in calls if each.writes is not None)

    async def _make(self, tool: Tool, arguments: Mapping[str, Json], is_asked: bool) -> Json:
        """Make a call through the same door as every other, in the caller's present scope."""
        call = replace(await self._admitted(), is_confirmed=is_asked)
        result = await call_bound(call, tool, arguments, native=False)
        if is_input_required(result):
            raise RequestRefused(f"{tool.server!r} asks for input that this client cannot give")
        return await _value(call, result)

    async def _discover(self, wanted: Wanted) -> Json:
        """Answer `search` and `describe` as the tools of the gateway do."""
        call, (tool, first) = await self._admitted(), _META[wanted.name]
        arguments = {**({first: wanted.positional[0]} if wanted.positional else {}), **wanted.named}
        if tool is SEARCH:
            arguments |= {"format": "json", "detail": "python"}
        result = await tool.answer(call, arguments, CODE_DEFAULTS)
        found = result.get("structuredContent")
        if result.get("isError"):
            raise _Refused(LookupError, text_of_result(result))
        return [*found["tools"].values()] if isinstance(found, dict) else text_of_result(result)


_META: Mapping[str, tuple[MetaTool[Any], str]] = {"search": (SEARCH, "query"), "describe": (DESCRIBE, "names")}
"""The functions beside tools, with the name of their first argument."""


async def _unknown(call: ToolCall, functions: PythonTools, wanted: Wanted) -> Tool:
    """Record a name that no function has, and raise with those that look like it."""
    try:
        return await find_tool(call, wanted.name.replace(".", "/", 1), dict(wanted.named))
    except ToolNotFound as error:
        similar = [functions.path(call.seen.tools.find(name)) for name in error.suggestions]
        hint = f"Did you mean {', '.join(similar)}?" if similar else 'Find one with search("...").'
        raise _Refused(AttributeError, f"No function tools.{one_line(wanted.name, 100)}. {hint}") from None


async def _checked(call: ToolCall, functions: PythonTools, tool: Tool, wanted: Wanted) -> dict[str, Json]:
    """Return arguments that fit the schema; refuse others before anything is sent, with the signature."""
    try:
        arguments = bound_arguments(tool, wanted.positional, wanted.named)
        wrong = "; ".join(
            map(str, (await check_call(tool, arguments, lambda: call.seen.caller.principal.key)).violations)
        )
    except InvalidInput as error:
        arguments, wrong = dict(wanted.named), str(error)
    if not wrong:
        return arguments
    refusal = f"{functions.path(tool)} was NOT invoked: {wrong}. Signature: {functions.signature(tool)}"
    call.state.recording.refused(call.seen.caller, tool.id, "invalid_arguments", arguments, refusal)
    raise _Refused(TypeError, refusal)


async def _value(call: ToolCall, result: McpResult) -> Json:
    """Return a result as a program gets it: structured content, parsed JSON, or text, as which a marked one comes."""
    text, structured = text_of_result(result), result.get("structuredContent")
    if structured is not None and is_marked(result):
        text, structured = f"{text}\n{json.dumps(structured, ensure_ascii=False)}", None
    if result.get("isError"):
        raise _Refused(RuntimeError, text or "The tool reported an error.")
    if len(text) > MAX_VALUE:
        results, owner = call.state.results, call.seen.caller.principal.key
        handle = await results.keep(owner, await results.cut(owner, text))
        raise _Refused(
            RuntimeError,
            f"The call was made, but its result of {len(text):,} characters is too large for a program (at most "
            f"{MAX_VALUE:,}). It is kept: read_result(handle={handle!r}). Ask the tool for less.",
        )
    if structured is not None:
        return structured
    others = [block for block in blocks_of(result) if isinstance(block, dict) and block.get("type") != "text"]
    return {"text": text, "content": [_without_data(block) for block in others]} if others else _parsed(text)


def _parsed(text: str) -> Json:
    """Return JSON objects and arrays parsed, any other text as it is."""
    if text.lstrip()[:1] not in ("{", "["):
        return text
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def _without_data(block: Mapping[str, Json]) -> dict[str, Json]:
    """Return an image, a sound or a link without its bytes, which a program has no use for."""
    kept = {key: value for key, value in block.items() if key != "data"}
    resource = kept.get("resource")
    if isinstance(resource, dict):
        kept["resource"] = {key: value for key, value in resource.items() if key != "blob"}
    return kept


def _inside(work: CallWork) -> CallWork:
    """Return work that raises only what a program may see: errors that are meant for a model, as built-in ones."""

    async def made() -> Json:
        outcome = await _outcome(work())
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    return made


async def _outcome(work: Awaitable[Any]) -> Any:
    """Return what something returns, or the built-in exception that stands for its error inside a program."""
    try:
        return await work
    except _Refused as error:
        return error.kind(str(error))
    except UpstreamTimeout as error:
        return TimeoutError(one_line(str(error)))
    except CallNotAllowed as error:
        return PermissionError(one_line(str(error)))
    except ShortlistError as error:
        return RuntimeError(one_line(str(error)))
    except Exception:  # a bug of ours: the program is told that it happened, the log says what
        logger.exception("a call of a program failed")
        return RuntimeError("The gateway failed to make this call.")


class _ProgramExchange:
    """The way back to the client of a program, shared by its calls."""

    answers_in_place = True

    def __init__(self, asker: Exchange, caller: Caller, deadline: Deadline) -> None:
        self._asker = asker
        self.caller = caller
        self._deadline = deadline
        self._steps = 0

    def can(self, method: str) -> bool:
        return self._asker.can(method)

    async def ask(self, method: str, params: Mapping[str, Json]) -> dict[str, Json]:
        """Put a question to the client; its time does not count as the program's."""
        with self._deadline.paused():
            return await self._asker.ask(method, params)

    async def progress(self, progress: float, total: float | None, message: str | None) -> None:
        """Report that some call got on: progress of several calls is one number that grows."""
        self._steps += 1
        of = f" of {total:g}" if total is not None else ""
        await self._asker.progress(self._steps, None, message or f"{progress:g}{of}")

    async def pause(self) -> None:
        await self._asker.pause()

    async def log(self, params: Mapping[str, Json]) -> None:
        await self._asker.log(params)
