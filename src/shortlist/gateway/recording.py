"""What the gateway does, as events and audit records, and the wrappers that trace and time its searches and requests.

Tokens are counted later, by whoever stores the events. The audit trail says who was allowed or refused what, and how it
ended.
"""

import hashlib
import json
import logging
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from time import perf_counter

from shortlist.access.catalog import ScopedCatalog
from shortlist.access.principal import Principal
from shortlist.catalog.catalog import Catalog
from shortlist.config.settings import EMPTY, AuditSettings, Keeping, Mode
from shortlist.disclosure.budget import estimate_tokens
from shortlist.disclosure.render import compact_json
from shortlist.errors import RequestRefused, ShortlistError, StoreError
from shortlist.gateway.callers import Caller, WorkspaceKey, activity_key
from shortlist.gateway.ports import ToolSearch, Upstreams
from shortlist.gateway.view import ServedView
from shortlist.models import Hit, Json, Query, SearchResult, ToolId
from shortlist.observability.metrics import GatewayMetrics, Measure, Operation, mark_failed, search_span, upstream_span
from shortlist.selection import Selection
from shortlist.storage.audit import AuditDecision, AuditLog, AuditRecord
from shortlist.telemetry.events import (
    Called,
    CallOutcome,
    CatalogChanged,
    CircleBroken,
    Described,
    Later,
    ProgramEnded,
    ProgramOutcome,
    RecordEvent,
    Searched,
    SessionOpened,
    SuggestionGiven,
    TaskReported,
    ToolsetsListed,
    ToolsListed,
    ToolsLoaded,
    ToolsUnloaded,
    UpstreamChanged,
    record_nothing,
)
from shortlist.telemetry.experiments.plan import Variant
from shortlist.telemetry.measures import FoundTool
from shortlist.text.tokens import one_line
from shortlist.upstream.errors import UpstreamNeedsAuth, UpstreamRefused, UpstreamTimeout, UpstreamUnavailable
from shortlist.upstream.events import NO_OPTIONS, CallOptions, Peer, UpstreamStatus
from shortlist.upstream.events import State as UpstreamState

REMEMBERED_SESSIONS = 2_000
SHORTEST_MASKED = 4
MOST_MASKED = 1_000
"""Of a call with more values, the reason is not recorded: each is looked for on the event loop."""
REASON_CHARACTERS, SCHEMA_FOLLOWS = 300, "\nSchema: "  # which no reason includes: it is long

Answer = Mapping[str, Json]
logger = logging.getLogger(__name__)

TOOL_ERROR = "tool_error"
"""How the conventions name a result with isError, which the protocol itself counts as a success."""
_FAILURES: Mapping[type[BaseException], str] = {
    UpstreamTimeout: "timeout",
    UpstreamNeedsAuth: "needs_auth",
    UpstreamUnavailable: "unavailable",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Finished:
    """A call that was sent to its server and has ended."""

    tool: ToolId
    arguments: Mapping[str, Json]
    outcome: CallOutcome
    milliseconds: float
    native: bool
    reason: str = ""
    """The error that ended it without a result."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FinishedSearch:
    """What a caller asked of search_tools, and the answer it got."""

    answer: Answer
    limit: int
    offset: int
    mode: str
    filters: Mapping[str, Json]
    """The limits that the caller set itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FinishedProgram:
    """A program that has ended, with the number of its calls by state."""

    source: str
    outcome: ProgramOutcome
    milliseconds: float
    calls: Mapping[str, int]
    answer: Answer


class Recording:
    """Hands events to a recorder; `arguments` says what becomes of those of calls."""

    def __init__(self, record: RecordEvent, *, arguments: Keeping = "omit") -> None:
        self._record = record
        self.arguments = arguments
        self._met: OrderedDict[tuple[WorkspaceKey, Variant], None] = OrderedDict()

    def meets(self, caller: Caller, variant: Variant) -> bool:
        """Return whether this caller's session is new, served like this; true only once."""
        key = activity_key(caller), variant
        if key in self._met or self._record is record_nothing:
            return False
        self._met[key] = None
        if len(self._met) > REMEMBERED_SESSIONS:
            self._met.popitem(last=False)
        return True

    def opened(self, caller: Caller, mode: Mode, tools: int, instructions: str) -> None:
        tokens = Later(lambda: estimate_tokens(instructions))
        self._record(SessionOpened(**_act(caller), mode=mode, tools=tools, tokens=tokens))

    def listed(
        self,
        caller: Caller,
        tokens: Callable[[Iterable[ToolId] | None], int],
        menu: Sequence[Answer],
        bound: Iterable[ToolId],
        reach: ScopedCatalog,
    ) -> None:
        ids = tuple(bound)
        self._record(
            ToolsListed(
                **_act(caller),
                tools=len(menu) + len(ids),
                tokens=Later(lambda: sum(estimate_tokens(compact_json(t)) for t in menu) + tokens(ids)),
                upfront=Later(lambda: tokens(None if reach.is_whole else reach)),
            )
        )

    def searched(self, caller: Caller, search: FinishedSearch, results: Sequence[SearchResult]) -> None:
        tokens = Later(lambda: answer_tokens(search.answer))
        for part, result in enumerate(results):
            self._record(
                Searched(
                    **_act(caller),
                    query=result.query.text,
                    hits=tuple(map(_found, result.hits)),
                    confidence=result.confidence.level,
                    probability=result.confidence.probability,
                    tokens=0 if part else tokens,
                    limit=search.limit,
                    offset=search.offset,
                    mode=search.mode,
                    filters=search.filters,
                    steps={step.name: step.milliseconds for step in result.steps},
                    part=part,
                )
            )

    def selected(self, caller: Caller, query: str, limit: int, selection: Selection, answer: Answer) -> None:
        """Record a selection as the search that it replaces; a language model gives no probability."""
        hits = tuple(FoundTool(tool=tool.id, rank=rank, score=0.0) for rank, tool in enumerate(selection.tools, 1))
        self._record(
            Searched(
                **_act(caller),
                query=query,
                hits=hits,
                confidence="medium" if hits else "none",
                probability=0.0,
                tokens=Later(lambda: answer_tokens(answer)),
                limit=limit,
                offset=0,
                filters={},
                part=0,
                mode=f"select:{selection.by}",
                steps={"select": selection.milliseconds},
            )
        )

    def suggested(self, caller: Caller, toolsets: Iterable[str]) -> None:
        for toolset in toolsets:
            self._record(SuggestionGiven(**_act(caller), toolset=toolset))

    def circle_broken(self, caller: Caller, query: str, answer: Answer) -> None:
        self._record(CircleBroken(**_act(caller), query=query, tokens=Later(lambda: answer_tokens(answer))))

    def described(self, caller: Caller, tools: Iterable[ToolId], answer: Answer) -> None:
        self._record(Described(**_act(caller), tools=tuple(tools), tokens=Later(lambda: answer_tokens(answer))))

    def called(self, caller: Caller, call: Finished, result: Answer | None) -> None:
        """Record a call that was sent, and its result."""
        said = call.reason or _said(result, call.outcome)
        self._record(
            Called(
                caller=caller.teacher,
                workspace=activity_key(caller),
                tool=call.tool,
                outcome=call.outcome,
                milliseconds=call.milliseconds,
                native=call.native,
                program=caller.program or None,
                reason=self._reason(said, call.arguments) if said else "",
                size=_size(result) if result else 0,
                arguments=call.arguments if self.arguments != "omit" else None,
            )
        )

    def refused(
        self, caller: Caller, tool: ToolId, outcome: CallOutcome, arguments: Mapping[str, Json], said: str
    ) -> None:
        """Record a call that was never sent, and what the reason cost in tokens."""
        self._record(
            Called(
                caller=caller.teacher,
                workspace=activity_key(caller),
                tool=tool,
                outcome=outcome,
                milliseconds=0.0,
                native=False,
                program=caller.program or None,
                reason=self._reason(said.partition(SCHEMA_FOLLOWS)[0], arguments) if outcome != "unknown" else "",
                tokens=Later(lambda: estimate_tokens(said)),
                arguments=arguments if self.arguments != "omit" else None,
            )
        )

    def _reason(self, said: str, arguments: Mapping[str, Json]) -> str:
        """Return why a call failed, without the values that its caller sent where those are not recorded."""
        if self.arguments != "keep":
            if (values := _leaves(arguments)) is None:
                return "…"
            for value in sorted(values, key=len, reverse=True):
                said = said.replace(value, "…")
        return one_line(said, REASON_CHARACTERS)

    def program_ended(self, caller: Caller, ended: FinishedProgram) -> None:
        """Record a program; `caller` is the one that its calls are recorded for."""
        tokens = Later(lambda: answer_tokens(ended.answer))
        self._record(
            ProgramEnded(
                **_act(caller),
                program=caller.program,
                source=ended.source,
                outcome=ended.outcome,
                milliseconds=ended.milliseconds,
                calls=ended.calls,
                tokens=tokens,
            )
        )

    def toolsets_listed(self, caller: Caller, answer: Answer) -> None:
        self._record(ToolsetsListed(**_act(caller), tokens=Later(lambda: answer_tokens(answer))))

    def loaded(
        self, caller: Caller, toolset: str, tools: tuple[ToolId, ...], milliseconds: float, answer: Answer
    ) -> None:
        tokens = Later(lambda: answer_tokens(answer))
        self._record(
            ToolsLoaded(**_act(caller), toolset=toolset, tools=tools, milliseconds=milliseconds, tokens=tokens)
        )

    def unloaded(self, caller: Caller, toolset: str, tools: tuple[ToolId, ...]) -> None:
        self._record(ToolsUnloaded(**_act(caller), toolset=toolset, tools=tools))

    def task_reported(self, caller: Caller, completed: bool, task: str) -> None:
        self._record(TaskReported(**_act(caller), completed=completed, task=task))

    def upstream_changed(self, server: str, state: str) -> None:
        """Record that a server came up or went down; neither a first attempt nor the gateway's own end counts."""
        if state not in ("connecting", "idle", "stopped"):
            self._record(UpstreamChanged(server=server, up=state == "ready", state=state))

    def catalog_changed(self, server: str, tools: int, view: ServedView) -> None:
        self._record(
            CatalogChanged(
                server=server,
                tools=tools,
                fingerprint=view.catalog.fingerprint,
                upfront=Later(lambda: view.tokens(None)),
            )
        )


def _act(caller: Caller) -> dict[str, str]:
    return {"caller": caller.teacher, "workspace": activity_key(caller)}


def _found(hit: Hit) -> FoundTool:
    return FoundTool(hit.tool.id, hit.rank, hit.score, hit.signals, hit.family)


def answer_tokens(answer: Mapping[str, Json]) -> int:
    """Estimate the tokens that a client reads in an answer."""
    return sum(estimate_tokens(block["text"]) for block in answer["content"])


def _said(result: Answer | None, outcome: CallOutcome) -> str:
    """Return the first text of a result that is an error."""
    blocks = (result or {}).get("content") if outcome == "error" else None
    texts = (each.get("text") for each in (blocks if isinstance(blocks, list) else ()) if isinstance(each, dict))
    return next((text for text in texts if isinstance(text, str)), "")


def _size(result: Answer) -> int:
    """Count the characters of a result's texts, images and other blocks."""
    content = result.get("content")
    blocks = [block for block in content if isinstance(block, dict)] if isinstance(content, list) else []
    return sum(len(part) for block in blocks for key in ("text", "data") if isinstance(part := block.get(key), str))


def _leaves(value: Json | Mapping[str, Json]) -> set[str] | None:
    """Return the values in some arguments that may say something about their caller; None if there are too many."""
    waiting, found = [value], set[str]()
    for _ in range(MOST_MASKED):
        if not waiting:
            return found
        each = waiting.pop()
        if isinstance(each, Mapping):
            waiting.extend(each.values())
        elif isinstance(each, list):
            waiting.extend(each)
        elif not isinstance(each, bool) and len(str(each)) >= SHORTEST_MASKED:
            found.add(str(each))
    return None if waiting else found


@dataclass(frozen=True, slots=True)
class ObservedSearch:
    """A search whose queries are traced and timed, step by step."""

    inner: ToolSearch
    metrics: GatewayMetrics

    @property
    def catalog(self) -> Catalog:
        return self.inner.catalog

    async def search(self, query: Query) -> SearchResult:
        with search_span(query) as span:
            result = await self.inner.search(query)
            span.found(result)
        self.metrics.searched(result)
        return result

    def update(self, catalog: Catalog) -> object:
        return self.inner.update(catalog)


@dataclass(frozen=True, slots=True)
class ObservedUpstreams:
    """Servers whose requests are traced and timed, including the time they wait."""

    inner: Upstreams
    measure: Measure

    def status(self) -> Mapping[str, UpstreamStatus]:
        return self.inner.status()

    @property
    def states(self) -> Mapping[str, UpstreamState]:
        return self.inner.states

    def peer(self, server: str) -> Peer | None:
        return self.inner.peer(server)

    async def request(
        self, server: str, method: str, params: Mapping[str, Json] = EMPTY, *, options: CallOptions = NO_OPTIONS
    ) -> dict[str, Json]:
        started, error = perf_counter(), ""
        peer = self.inner.peer(server)
        with upstream_span(server, method, params, peer.protocol_version if peer else None) as span:
            try:
                result = await self.inner.request(server, method, params, options=options)
                error = tool_error(method, result)
                return result
            except BaseException as failure:
                error = failure_name(failure)
                raise
            finally:
                if error:
                    mark_failed(span, error)
                seconds = perf_counter() - started
                logger.debug("server %r: %s took %.1f ms%s", server, method, seconds * 1000, error and f": {error}")
                self.measure(Operation(side="client", method=method, target=server, seconds=seconds, error=error))

    async def notify(self, server: str, method: str, params: Mapping[str, Json] = EMPTY) -> None:
        await self.inner.notify(server, method, params)

    async def watch(self, server: str, uris: Sequence[str]) -> None:
        await self.inner.watch(server, uris)


def tool_error(method: str, result: object) -> str:
    """Return the error type of a tool's result that reports a failure; empty for any other."""
    failed = method == "tools/call" and isinstance(result, Mapping) and result.get("isError") is True
    return TOOL_ERROR if failed else ""


def failure_name(error: BaseException) -> str:
    """Return the error type of an exception, as metrics and traces name it."""
    if isinstance(error, (UpstreamRefused, RequestRefused)):
        return str(error.code)
    return _FAILURES.get(type(error)) or type(error).__name__


class NotRecorded(ShortlistError):
    """A request that was refused because its audit record could not be written."""

    def __init__(self) -> None:
        super().__init__(
            "The request was NOT sent: the audit log cannot be written, and `audit.required` is set. "
            "Tell the operator of this gateway."
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditedRequest:
    """A request to a server, as the audit log names it."""

    principal: Principal
    action: str
    """The method of the protocol, such as `tools/call`."""
    name: str
    """The tool, the prompt or the URI."""
    server: str = ""
    definition: str = ""
    program: str = ""
    """The program that makes the request; empty for one from outside."""
    arguments: Mapping[str, Json] = field(default_factory=dict, repr=False)


class AuditTrail:
    """Records every decision about a request to a server, where the configuration asks for it."""

    def __init__(self, log: AuditLog | None, settings: AuditSettings, now: Callable[[], float] = time.time) -> None:
        self._log = log
        self._now = now
        self.settings = settings
        self.lost = 0
        """Records that could not be written."""

    def allowed(self, request: AuditedRequest) -> None:
        """Record a request before it is sent; raise NotRecorded where that fails and is required."""
        if not self._record(request, "allowed") and self.settings.required:
            raise NotRecorded

    def refused(self, request: AuditedRequest, why: str) -> None:
        self._record(request, "refused", why=why)

    def ended(self, request: AuditedRequest, outcome: str) -> None:
        """Record how an allowed request ended."""
        self._record(request, "allowed", outcome=outcome)

    def _record(self, request: AuditedRequest, decision: AuditDecision, *, why: str = "", outcome: str = "") -> bool:
        if self._log is None or not self.settings.enabled:
            return True
        kept = _arguments_text(request.arguments) if self.settings.arguments and not outcome else None
        record = AuditRecord(
            at=self._now(),
            principal=request.principal.key,
            action=request.action,
            decision=decision,
            server=request.server,
            tool=request.name,
            why=why,
            outcome=outcome,
            definition=request.definition,
            program=request.program,
            arguments_hash=hash_arguments(request.arguments),
            arguments=kept,
        )
        try:
            self._log.record(record)
        except StoreError as error:
            if not self.lost:
                logger.warning("%s", error)
            self.lost += 1
            return False
        return True


def hash_arguments(arguments: Mapping[str, Json]) -> str:
    """Return a hash that is the same for the same arguments, whatever their order."""
    return hashlib.sha256(_arguments_text(arguments).encode("utf-8", "surrogatepass")).hexdigest()


def _arguments_text(arguments: Mapping[str, Json]) -> str:
    return json.dumps(arguments, sort_keys=True, separators=(",", ":"), ensure_ascii=False, default=str)
