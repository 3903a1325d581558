"""Tools that the configuration offers: run_code, smart_select_tools, and those about telemetry."""

from collections.abc import Awaitable, Callable
from dataclasses import replace

import anyio.from_thread
import anyio.to_thread

from shortlist.access.catalog import ScopedCatalog
from shortlist.config.settings import Settings
from shortlist.disclosure.render import Entry, entry_text, signature_of
from shortlist.errors import InvalidInput
from shortlist.gateway.saved_programs import load_programs
from shortlist.gateway.state import Report
from shortlist.gateway.tools import (
    DEFAULT_RUN_TOKENS,
    INTEGER,
    STRING,
    McpResult,
    MetaTool,
    RunRequest,
    SelectRequest,
    TaskReport,
    ToolArguments,
    ToolCall,
    raw_request,
    run_request,
    select_request,
    task_report,
    text_result,
)
from shortlist.models import Query, SearchResult
from shortlist.selection import Selection, Selector
from shortlist.text.tokens import one_line

DESCRIPTION = 120


async def _select(call: ToolCall, request: SelectRequest) -> McpResult:
    """Let a language model pick among the tools in reach, in a worker thread: a model takes its time."""
    settings = call.state.settings.smart_select
    if settings is None:
        raise InvalidInput("smart_select_tools is not offered here. Use search_tools.")
    tools, search = call.seen.tools, call.state.search
    model = call.state.selection_model.configured(settings)

    def searched(query: Query) -> SearchResult:
        narrowed = replace(query, filters=tools.within(query.filters))
        return anyio.from_thread.run(search.search, narrowed)

    selection = await anyio.to_thread.run_sync(
        Selector(tools, searched, model).select, request.request, request.limit, abandon_on_cancel=True
    )
    answer = text_result(_words(call, selection))
    call.state.recording.selected(call.seen.caller, request.request, request.limit, selection, answer)
    return answer


async def _run_code(call: ToolCall, request: RunRequest) -> McpResult:
    await load_programs()
    from shortlist.gateway.programs import Program, run_program  # noqa: PLC0415

    return await run_program(call, Program(source=request.code, max_tokens=request.max_tokens))


def _words(call: ToolCall, selection: Selection) -> str:
    count = len(selection.tools)
    by = f"picked by {selection.model} from {selection.listed}" if selection.by == "model" else "found"
    lines = [f"{count} tool{'' if count == 1 else 's'} {by}{':' if count else '.'}"]
    for tool in selection.tools:
        name = call.seen.tools.name(tool.id)
        description = one_line(tool.description or tool.title, DESCRIPTION)
        lines.append(entry_text(Entry(name=name, signature=signature_of(tool, name), description=description)))
    if selection.unknown:
        lines.append(f"The model named {selection.unknown} that are not there; they are left out.")
    if not count:
        lines.append("Nothing fits. Rephrase, or use search_tools.")
    return "\n".join([*lines, *([selection.note] if selection.note else [])])


async def _report_task(call: ToolCall, request: TaskReport) -> McpResult:
    call.state.recording.task_reported(call.seen.caller, request.completed, request.task)
    return text_result("Noted.")


def _report(name: str) -> Callable[[ToolCall, ToolArguments], Awaitable[McpResult]]:
    async def report(call: ToolCall, arguments: ToolArguments) -> McpResult:
        """Read the store in a worker thread, for what the caller can reach."""
        written = call.state.seams.reports.get(name)
        if written is None:
            raise InvalidInput(
                f"{name} has nothing to report: telemetry is off. Set `telemetry.enabled` to true in the configuration."
            )
        if name == AB_TEST_REPORT.name and call.seen.tools.scope.is_limited:
            raise InvalidInput(f"{name} covers all callers, so it needs a token that may see all tools.")
        return text_result(await anyio.to_thread.run_sync(_written, written, arguments, call.seen.tools))

    return report


def _written(report: Report, arguments: ToolArguments, tools: ScopedCatalog) -> str:
    return report(arguments, tools.visible())


def _reports_offered(settings: Settings) -> bool:
    return settings.telemetry.tools


STATS = MetaTool(
    name="get_stats",
    description="How tool discovery does here: figures and their meaning.",
    properties={"since": {**STRING, "description": "e.g. 24h, 7d, 2026-01-31"}},
    reads=True,
    parse=raw_request,
    handle=_report("get_stats"),
    is_offered=_reports_offered,
)
AB_TEST_REPORT = MetaTool(
    name="get_ab_test_report",
    description="The report of an experiment, by default the latest.",
    properties={"experiment": STRING},
    reads=True,
    parse=raw_request,
    handle=_report("get_ab_test_report"),
    is_offered=_reports_offered,
)
TASK_REPORT = MetaTool(
    name="report_task",
    description="Say how the user's task ended.",
    properties={
        "completed": {"type": "boolean"},
        "task": {**STRING, "description": "What it was, in a few words"},
    },
    required=("completed",),
    parse=task_report,
    handle=_report_task,
    is_offered=_reports_offered,
)
SELECT = MetaTool(
    name="smart_select_tools",
    description="Let a small model read the whole catalog and pick the tools for a task; slower than search_tools.",
    properties={"request": {**STRING, "description": "The task in plain words"}, "limit": INTEGER},
    required=("request",),
    reads=True,
    parse=select_request,
    handle=_select,
    is_offered=lambda settings: settings.smart_select is not None,
)
RUN = MetaTool(
    name="run_code",
    description="Run a Python program that calls tools and returns only what it prints and its last value. Call "
    "functions as search_tools shows them: `r = await tools.server.tool(arg=1)`; in parallel: `await "
    'asyncio.gather(...)`. `await search("...")` and `await describe("server.tool")` find more. A call returns the '
    "tool's structured content, parsed JSON or text, and raises when it fails. No files, network, yield or class "
    "inheritance.",
    properties={"code": STRING, "max_tokens": {**INTEGER, "default": DEFAULT_RUN_TOKENS}},
    required=("code",),
    parse=run_request,
    handle=_run_code,
    menus=("code",),
    is_menu_only=True,
)
