"""What happened, as frozen events; recording one must neither block nor raise.

An event is one declaration: its fields, and below them the columns it is kept in (`columns`), what it adds to the
sums that every figure is computed from (`tallies`), to the counts of its workspace (`counts`) and to the metrics
that are exported (`metrics`). Everything that writes, counts or exports events goes through these methods.

`workspace` is the key of `gateway.callers.activity_key`; only a keyed hash of it is kept. The rank of a called
tool and the search that found it are not known when an event is recorded: `telemetry.ledger` adds them.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import ClassVar, Literal, NamedTuple, TypeAlias

from shortlist.config.masking import redact, redact_json
from shortlist.models import UNIDENTIFIED, Json, Level, ToolId
from shortlist.storage.port import Columns
from shortlist.telemetry.measures import (
    CALLS,
    CIRCLES,
    LOADS,
    SEARCH_TOKENS,
    SEARCHES,
    UNLOADS,
    Attribution,
    EventCounter,
    FoundTool,
    Tally,
    time_tally,
)
from shortlist.telemetry.redaction import Privacy

CallOutcome: TypeAlias = Literal["ok", "error", "invalid_arguments", "failed", "input_required", "unknown"]
"""`error`: the tool reported it. `failed`: no answer came. `unknown`: there is no tool of that name."""
ProgramOutcome: TypeAlias = Literal["ok", "failed"]
FAILED = frozenset({"error", "failed", "invalid_arguments", "unknown"})


class Later:
    """A number of tokens that is counted when it is first asked for: counting takes longer than most requests."""

    __slots__ = ("_count", "_number")

    def __init__(self, count: Callable[[], int]) -> None:
        self._count: Callable[[], int] | None = count
        self._number = 0

    def __call__(self) -> int:
        if (count := self._count) is not None:
            self._number = count()
            self._count = None  # and what it was counted from can be freed
        return self._number


Tokens: TypeAlias = int | Later
"""A number of tokens, or how to count them."""


def count(tokens: Tokens) -> int:
    """Return a number of tokens, counting them now if that was deferred."""
    return tokens if isinstance(tokens, int) else tokens()


class Increment(NamedTuple):
    """An addition to one exported counter."""

    counter: EventCounter
    labels: tuple[str, ...] = ()
    amount: Tokens = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """A fact that is recorded; each kind overrides what it adds to the outputs below."""

    kind: ClassVar[str] = ""

    def columns(self, privacy: Privacy) -> Columns:  # noqa: ARG002 - overridden
        """Return the columns beyond those that all events share; see StoredEvent."""
        return {}

    def tallies(self, known: Attribution) -> Iterable[Tally]:  # noqa: ARG002
        """Return what the event adds to the sums behind the figures."""
        return ()

    def counts(self) -> Mapping[str, float]:
        """Return what the event adds to the counts of its workspace, by the names of `storage.port.COUNTED`."""
        return {}

    def metrics(self) -> Iterable[Increment]:
        """Return what the event adds to exported counters."""
        return ()

    def miss(self, known: Attribution) -> str | None:  # noqa: ARG002
        """Return why the event is a retrieval miss; None where it is not one."""
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class CallerEvent(Event):
    """What a caller did, in its workspace."""

    caller: str
    workspace: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionOpened(CallerEvent):
    """The gateway served a workspace for the first time; `tools` is how many its client would list."""

    kind = "opened"
    mode: str
    tools: int
    tokens: Tokens = 0
    """Of the gateway's instructions."""

    def columns(self, privacy: Privacy) -> Columns:  # noqa: ARG002
        return {"outcome": self.mode, "data": {"tools": self.tools}}

    def tallies(self, known: Attribution) -> Iterable[Tally]:  # noqa: ARG002
        return Tally("sessions", self.mode), Tally("tokens", "instructions", count(self.tokens))


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolsListed(CallerEvent):
    """An answer to tools/list, with what listing every visible tool would cost."""

    kind = "listed"
    tools: int
    tokens: Tokens
    upfront: Tokens

    def columns(self, privacy: Privacy) -> Columns:  # noqa: ARG002
        return {"data": {"tools": self.tools, "upfront": count(self.upfront)}}

    def tallies(self, known: Attribution) -> Iterable[Tally]:  # noqa: ARG002
        return Tally("tokens", "list", count(self.tokens)), Tally("upfront", "", count(self.upfront))

    def counts(self) -> Mapping[str, float]:
        return {"upfront": count(self.upfront)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Searched(CallerEvent):
    """One query; `part` numbers the queries of one request, which share its tokens."""

    kind = "searched"
    query: str
    hits: tuple[FoundTool, ...]
    confidence: Level
    probability: float
    tokens: Tokens
    limit: int = 5
    offset: int = 0
    mode: str = "hybrid"
    filters: Mapping[str, Json] = field(default_factory=dict)
    steps: Mapping[str, float] = field(default_factory=dict)
    """Milliseconds of each step."""
    part: int = 0

    @property
    def milliseconds(self) -> float:
        return sum(self.steps.values())

    def columns(self, privacy: Privacy) -> Columns:
        data = {
            "hits": [hit.json() for hit in self.hits],
            "probability": round(self.probability, 4),
            "limit": self.limit,
            "mode": self.mode,
            "steps": {name: round(milliseconds, 3) for name, milliseconds in self.steps.items()},
            "offset": self.offset or None,
            "part": self.part or None,
            "filters": redact_json(self.filters) or None,
        }
        return {"subject": privacy.query(self.query), "outcome": self.confidence, "data": _known(data)}

    def tallies(self, known: Attribution) -> Iterator[Tally]:
        yield Tally("searches")
        if not self.hits:
            yield Tally("searches_empty")
        if self.confidence == "none":
            yield Tally("searches_abstained")
        if known.search is not None:
            yield Tally("searches_rephrased", hour=known.hour)
        yield Tally("tokens", "search", count(self.tokens))
        yield time_tally("search", self.milliseconds)
        for step, milliseconds in self.steps.items():
            yield time_tally(f"search/{step}", milliseconds)
        for hit in self.hits:
            yield Tally("tool_shown", hit.tool)

    def counts(self) -> Mapping[str, float]:
        return {"searches": 1}

    def metrics(self) -> Iterable[Increment]:
        return Increment(SEARCHES, (self.confidence,)), Increment(SEARCH_TOKENS, amount=self.tokens)

    def miss(self, known: Attribution) -> str | None:
        if known.search is not None:
            return "rephrased"
        return None if self.hits else "empty"


@dataclass(frozen=True, slots=True, kw_only=True)
class CircleBroken(CallerEvent):
    """A search that kept finding the same was answered with advice to stop."""

    kind = "circle"
    query: str
    tokens: Tokens = 0

    def columns(self, privacy: Privacy) -> Columns:
        return {"subject": privacy.query(self.query)}

    def tallies(self, known: Attribution) -> Iterable[Tally]:  # noqa: ARG002
        return Tally("circles"), Tally("tokens", "search", count(self.tokens))

    def counts(self) -> Mapping[str, float]:
        return {"circles": 1}

    def metrics(self) -> Iterable[Increment]:
        return (Increment(CIRCLES),)


@dataclass(frozen=True, slots=True, kw_only=True)
class Described(CallerEvent):
    """Definitions of tools were shown."""

    kind = "described"
    tools: tuple[ToolId, ...]
    tokens: Tokens

    def columns(self, privacy: Privacy) -> Columns:  # noqa: ARG002
        return {"data": {"tools": list(self.tools)}}

    def tallies(self, known: Attribution) -> Iterable[Tally]:  # noqa: ARG002
        return (Tally("tokens", "describe", count(self.tokens)),)


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolsetsListed(CallerEvent):
    """The toolsets were listed."""

    kind = "toolsets"
    tokens: Tokens

    def tallies(self, known: Attribution) -> Iterable[Tally]:  # noqa: ARG002
        return (Tally("tokens", "toolsets", count(self.tokens)),)


@dataclass(frozen=True, slots=True, kw_only=True)
class SuggestionGiven(CallerEvent):
    """An answer offered to load a toolset."""

    kind = "suggested"
    toolset: str

    def columns(self, privacy: Privacy) -> Columns:  # noqa: ARG002
        return {"subject": self.toolset}

    def tallies(self, known: Attribution) -> Iterable[Tally]:  # noqa: ARG002
        return (Tally("suggestions"),)


@dataclass(frozen=True, slots=True, kw_only=True)
class Called(CallerEvent):
    """A tool was called, or (`unknown`) a name that no tool has."""

    kind = "called"
    tool: ToolId
    outcome: CallOutcome
    milliseconds: float
    native: bool
    """Called by its own name, not through call_tool."""
    size: int = 0
    """Characters of the result."""
    tokens: Tokens = 0
    """Of the gateway's own message, where it refused the call."""
    arguments: Mapping[str, Json] | None = None
    program: str | None = None
    """The program that made the call."""
    reason: str = ""
    """Why it failed, in the server's words or ours; secrets are masked before it is stored."""

    def columns(self, privacy: Privacy) -> Columns:
        data = {
            "reason": redact(self.reason) or None,
            "native": self.native or None,
            "size": self.size,
            "arguments": privacy.call(self.arguments),
            "program": self.program,
        }
        subject = privacy.name(self.tool) if self.outcome == "unknown" else self.tool
        return {"subject": subject, "outcome": self.outcome, "tokens": count(self.tokens) or None, "data": _known(data)}

    def tallies(self, known: Attribution) -> Iterator[Tally]:
        yield Tally("calls", self.outcome)
        yield Tally("tokens", "refusal", count(self.tokens))
        if self.outcome == "unknown":
            return
        yield Tally("tool_called", self.tool)
        if known.fresh:
            yield from self._first_call(known)
        if self.outcome in ("error", "failed"):
            yield Tally("tool_failed", self.tool)
        if self.outcome == "invalid_arguments":
            yield Tally("tool_refused", self.tool)
        else:
            yield time_tally("call", self.milliseconds)
            yield Tally("tool_milliseconds", self.tool, self.milliseconds)
        for other in known.together if self.caller != UNIDENTIFIED else ():
            yield Tally("together", "\n".join(sorted((self.tool, other))))

    def _first_call(self, known: Attribution) -> Iterator[Tally]:
        if known.search is not None and known.rank is not None:
            if known.first_pick:
                yield Tally("searches_picked", hour=known.hour)
            yield Tally("found_at", str(known.rank))
            yield Tally("tool_found", self.tool)
            yield Tally("tool_reciprocal", self.tool, 1 / known.rank)
        elif not self.native:
            yield Tally("unfound")
            yield Tally("tool_unfound", self.tool)

    def counts(self) -> Mapping[str, float]:
        return {"calls": 1, "errors": self.outcome in FAILED}

    def metrics(self) -> Iterable[Increment]:
        server = "" if self.outcome == "unknown" else self.tool.partition("/")[0]
        return (Increment(CALLS, (server, self.outcome)),)

    def miss(self, known: Attribution) -> str | None:
        if self.outcome == "unknown":
            return "unknown"
        return "unfound" if known.search is None and known.fresh and not self.native else None


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgramEnded(CallerEvent):
    """A program that called tools has ended; each of its calls is an event that names it."""

    kind = "program"
    program: str
    source: str
    outcome: ProgramOutcome
    milliseconds: float
    calls: Mapping[str, int] = field(default_factory=dict)
    """How many calls were done, failed or not started."""
    tokens: Tokens = 0

    def columns(self, privacy: Privacy) -> Columns:
        data = {"program": self.program, "calls": dict(self.calls), "source": privacy.source(self.source)}
        return {"subject": privacy.query(self.source), "outcome": self.outcome, "data": _known(data)}

    def tallies(self, known: Attribution) -> Iterable[Tally]:  # noqa: ARG002
        yield Tally("programs", self.outcome)
        yield Tally("tokens", "program", count(self.tokens))
        yield time_tally("program", self.milliseconds)


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolsLoaded(CallerEvent):
    """Tools were loaded into a workspace."""

    kind = "loaded"
    toolset: str
    """Empty where single tools were asked for."""
    tools: tuple[ToolId, ...]
    milliseconds: float
    tokens: Tokens = 0

    def columns(self, privacy: Privacy) -> Columns:  # noqa: ARG002
        return {"subject": self.toolset, "data": {"tools": list(self.tools)}}

    def tallies(self, known: Attribution) -> Iterable[Tally]:  # noqa: ARG002
        return Tally("loads"), Tally("tokens", "load", count(self.tokens)), time_tally("load", self.milliseconds)

    def counts(self) -> Mapping[str, float]:
        return {"loads": 1, "tools": len(self.tools), "load_milliseconds": self.milliseconds}

    def metrics(self) -> Iterable[Increment]:
        return (Increment(LOADS),)


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolsUnloaded(CallerEvent):
    """Tools were unloaded from a workspace."""

    kind = "unloaded"
    toolset: str
    tools: tuple[ToolId, ...]

    def columns(self, privacy: Privacy) -> Columns:  # noqa: ARG002
        return {"subject": self.toolset, "data": {"tools": list(self.tools)}}

    def tallies(self, known: Attribution) -> Iterable[Tally]:  # noqa: ARG002
        return (Tally("unloads"),)

    def counts(self) -> Mapping[str, float]:
        return {"tools": -len(self.tools)}

    def metrics(self) -> Iterable[Increment]:
        return (Increment(UNLOADS),)


@dataclass(frozen=True, slots=True, kw_only=True)
class Exposed(CallerEvent):
    """A workspace was served a variant of an experiment."""

    kind = "exposed"
    experiment: str
    variant: str

    def columns(self, privacy: Privacy) -> Columns:  # noqa: ARG002
        return {"subject": self.experiment, "outcome": self.variant}


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskReported(CallerEvent):
    """The caller reported how its task ended."""

    kind = "reported"
    completed: bool
    task: str = ""

    @property
    def _ended(self) -> str:
        return "completed" if self.completed else "abandoned"

    def columns(self, privacy: Privacy) -> Columns:
        return {"subject": privacy.query(self.task) if self.task else None, "outcome": self._ended}

    def tallies(self, known: Attribution) -> Iterable[Tally]:  # noqa: ARG002
        return (Tally("tasks", self._ended),)

    def counts(self) -> Mapping[str, float]:
        return {self._ended: 1}


@dataclass(frozen=True, slots=True, kw_only=True)
class UpstreamChanged(Event):
    """A server came up or went down; `state` is one of `upstream.events`."""

    kind = "upstream"
    server: str
    up: bool
    state: str

    def columns(self, privacy: Privacy) -> Columns:  # noqa: ARG002
        return {"subject": self.server, "outcome": self.state, "data": {"up": self.up}}


@dataclass(frozen=True, slots=True, kw_only=True)
class CatalogChanged(Event):
    """A server's tools changed; `upfront` is what listing the whole catalog would cost."""

    kind = "catalog"
    server: str
    tools: int
    fingerprint: str
    upfront: Tokens = 0

    def columns(self, privacy: Privacy) -> Columns:  # noqa: ARG002
        data = {"tools": self.tools, "fingerprint": self.fingerprint, "upfront": count(self.upfront)}
        return {"subject": self.server, "data": data}


@dataclass(frozen=True, slots=True, kw_only=True)
class EventsLost(Event):
    """Events that could not be kept; recorded as soon as something can be kept again."""

    kind = "lost"
    count: int
    reason: str

    def columns(self, privacy: Privacy) -> Columns:  # noqa: ARG002
        return {"outcome": self.reason, "data": {"count": self.count}}

    def tallies(self, known: Attribution) -> Iterable[Tally]:  # noqa: ARG002
        return (Tally("lost", self.reason, self.count),)


EVENTS: tuple[type[Event], ...] = (
    *(SessionOpened, ToolsListed, Searched, CircleBroken, Described, ToolsetsListed, SuggestionGiven, Called),
    *(ProgramEnded, ToolsLoaded, ToolsUnloaded, Exposed, TaskReported, UpstreamChanged, CatalogChanged, EventsLost),
)
RecordEvent: TypeAlias = Callable[[Event], None]


def record_nothing(_: Event) -> None:
    """Discard an event: nothing is recorded."""


def _known(data: Mapping[str, Json]) -> dict[str, Json]:
    return {name: value for name, value in data.items() if value is not None}
