"""What is kept between requests and restarts: one Protocol per kind of record, gathered in one `Storage` value.

An adapter implements the Protocols; `storage/sqlite.py` opens the default one. Every method may be called from any
thread and may block, so call it from a worker. An adapter that cannot read or write raises StoreError, and then
nothing was changed. `tests/storage` runs the same contract tests on every adapter.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, NamedTuple, Protocol, TypeAlias

from shortlist.models import Json, ToolId
from shortlist.storage.audit import AuditStore
from shortlist.storage.owned import ResultStore, WorkspaceStore
from shortlist.storage.programs import ProgramStore
from shortlist.storage.shared import SharedStores

HOUR = 3_600
HOURS = 24  # in a day

TallyName: TypeAlias = Literal[
    "sessions",  # by mode
    "searches",
    "searches_picked",  # at least one of its hits was called
    "searches_rephrased",  # the next search asks for the same, and nothing was called in between
    "searches_empty",  # no hit
    "searches_abstained",  # confidence none
    "circles",
    "calls",  # by outcome
    "programs",  # by outcome
    "found_at",  # first calls of tools that a search returned, by rank
    "unfound",  # first calls, through call_tool, of tools that no search returned
    "tokens",  # shown, by what showed them
    "upfront",  # tokens that listing everything would have cost
    "milliseconds",  # by step and bucket: "lexical 12"
    "loads",
    "unloads",
    "suggestions",
    "tasks",  # by completed or not
    "lost",  # by reason
    "tool_shown",  # the rest by tool
    "tool_called",
    "tool_failed",  # ended in error or without an answer
    "tool_refused",  # arguments that do not match the schema
    "tool_found",
    "tool_reciprocal",  # sum of 1/rank over tool_found
    "tool_unfound",
    "tool_milliseconds",
    "together",  # by two tools, in order: workspaces that called both
]

Columns: TypeAlias = dict[str, Any]
"""An event by column; see StoredEvent for their names."""
Sums: TypeAlias = dict[tuple[str, str], float]
"""Tallies added up, by name and key."""
Cell: TypeAlias = tuple[int, str, str, float]
"""Hour, name, key and value of a tally, as a store yields it."""
Cells: TypeAlias = Mapping[tuple[str, int, str], float]
"""Tallies to add, by name, hour and key."""


@dataclass(slots=True)
class EventPlace:
    """The id of an event in the store; known once it is written."""

    id: int | None = None


@dataclass(frozen=True, slots=True)
class EventRow:
    """An event in columns; `search` is the place of the earlier search that it belongs to."""

    columns: Columns
    place: EventPlace
    search: EventPlace | None


COUNTED = (
    *("tools", "searches", "calls", "errors", "loads", "load_milliseconds", "misses", "circles"),
    *("tokens", "upfront", "completed", "abandoned"),
)
"""What is counted for each workspace."""


@dataclass(slots=True)
class WorkspaceCounts:
    """What one workspace did in a batch; `mode` and `initial_tools` are set where it was opened."""

    caller: str
    first: int = 0
    last: int = 0
    """Milliseconds since 1970, of its first and last event."""
    mode: str | None = None
    initial_tools: int | None = None
    toolsets: list[str] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    """By the names of COUNTED."""


@dataclass(slots=True)
class Batch:
    """What is written in one transaction."""

    entries: list[EventRow] = field(default_factory=list)
    tallies: defaultdict[tuple[str, int, str], float] = field(default_factory=lambda: defaultdict(float))
    """By name, hour and key."""
    workspaces: dict[str, WorkspaceCounts] = field(default_factory=dict)
    spool: tuple[str, int] | None = None
    """The spool that its events come from, and how many records of it are stored with this batch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredEvent:
    """An event as the store returns it; docs/telemetry.md lists what each kind keeps in which column."""

    id: int
    at: int
    """Milliseconds since 1970."""
    kind: str
    caller: str | None = None
    workspace: str | None = None
    subject: str | None = None
    outcome: str | None = None
    search: int | None = None
    rank: int | None = None
    miss: str | None = None
    milliseconds: float | None = None
    tokens: int | None = None
    data: Mapping[str, Json] = field(default_factory=dict)

    def json(self) -> dict[str, Json]:
        """Return one line of an export; unknown values are left out."""
        return {name: value for name, value in asdict(self).items() if value is not None and value != {}}


@dataclass(frozen=True, slots=True, kw_only=True)
class EventQuery:
    """Which events to read; in the order of writing, or the latest first."""

    after: int = 0
    since: float | None = None
    """Seconds since 1970."""
    kinds: Sequence[str] = ()
    workspace: str | None = None
    subject: str | None = None
    caller: str | None = None
    missed: bool = False
    latest: bool = False
    limit: int | None = None


ALL = EventQuery()


@dataclass(frozen=True, slots=True, kw_only=True)
class TrailQuery:
    """Asks what workspaces searched for, called and loaded with other gateways."""

    after: Mapping[str, int]
    """The id of the last event that is known of each workspace."""
    since: int
    """Milliseconds since 1970."""
    own: Sequence[tuple[int, int]]
    """The first and last ids of batches that this gateway wrote after those."""


ReadTrails: TypeAlias = Callable[[TrailQuery], tuple[Sequence[StoredEvent], int]]
"""Returns these events in order, and the id up to which all events are known now."""


class EventStore(Protocol):
    """Events in the order of writing."""

    def append(self, batch: Batch) -> None:
        """Write a batch whole or not at all, and set the ids of its places."""
        ...

    def events(self, query: EventQuery = ...) -> Iterator[StoredEvent]:
        """Yield matching events one at a time, so that an export needs little memory."""
        ...

    def purge(self, before: float, megabytes: float) -> None:
        """Delete events from before a second since 1970, then the oldest until the rest fits."""
        ...

    def erase(self, caller: str) -> int:
        """Delete every event of one caller and what its workspaces did; return how many events. Tallies stay."""
        ...


class ToolPair(NamedTuple):
    """Two tools, and how many workspaces have called both."""

    one: ToolId
    other: ToolId
    workspaces: int


class TallyStore(Protocol):
    """Sums over events, from which every figure is computed."""

    def sums(self, since: float | None = ..., names: Sequence[TallyName] = ...) -> Sums:
        """Add up tallies since the beginning of an hour (of tools: of a day), all or some by name."""
        ...

    def series(self, names: Sequence[TallyName], since: float | None = ..., hours: int = ...) -> dict[int, Sums]:
        """Add up tallies per interval of `hours`, each under its first hour since 1970 (of tools: its day's)."""
        ...

    def pairs(self, least: int = ..., most: int = ...) -> list[ToolPair]:
        """Return the tools that at least so many workspaces have called together, most often first."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredExperiment:
    """An experiment; `plan` is the JSON that `telemetry.experiments.plan` writes and reads."""

    name: str
    plan: str
    started: int  # milliseconds since 1970
    stopped: int | None = None


@dataclass(frozen=True, slots=True)
class WorkspaceOutcome:
    """What a workspace did from its first exposure until now, or until the experiment stopped."""

    variant: str
    tools: int = 0
    """Listed at the end."""
    searches: int = 0
    calls: int = 0
    errors: int = 0
    misses: int = 0
    loads: int = 0
    load_milliseconds: float = 0.0
    tokens: int = 0
    completed: int = 0
    abandoned: int = 0


class ExperimentStore(Protocol):
    """Experiments, and what exposed workspaces did; exposures arrive with the events."""

    def experiments(self) -> list[StoredExperiment]:
        """Return all experiments, the latest first."""
        ...

    def start(self, experiment: StoredExperiment) -> None:
        """Start an experiment; raises InvalidInput while another one runs, or for a name that was used before."""
        ...

    def stop(self, name: str, at: int) -> None:
        """Stop an experiment; what its workspaces do afterwards is not counted."""
        ...

    def outcomes(self, name: str) -> list[WorkspaceOutcome]:
        """Return what each exposed workspace did since, in the order of exposure."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class LearnedPair:
    """How a caller's calls of a tool ended that followed from one query."""

    caller: str
    tool: ToolId
    query: str
    successes: int
    errors: int
    last: int
    """Milliseconds since 1970, of the last call."""

    @property
    def success_rate(self) -> float:
        return self.successes / max(self.successes + self.errors, 1)


class ExemplarStore(Protocol):
    """Queries that led to calls, added up from the events."""

    def learn(self) -> None:
        """Add up calls recorded since the last time, by any gateway, and drop the oldest beyond the bounds."""
        ...

    def state(self) -> tuple[Any, ...]:
        """Return a value that changes whenever the pairs change."""
        ...

    def pairs(self, *, caller: str | None = ..., tool: ToolId | None = ...) -> list[LearnedPair]:
        """Return the pairs of one caller or tool, or all of them, the latest first."""
        ...

    def clear(self, *, caller: str | None = ..., tool: ToolId | None = ...) -> int:
        """Delete pairs and return how many; calls made so far are not learned again."""
        ...


class CatalogStore(Protocol):
    """Saved tool lists, one JSON document per server, whose first key is its `format`."""

    def names(self) -> Collection[str]: ...

    def load(self, key: str) -> bytes | None:
        """Return the document of a key, or None."""
        ...

    def save(self, key: str, document: bytes) -> None:
        """Replace the document of a key; keeps one that could not be read, and one of a newer format."""
        ...


class StoredVector(NamedTuple):
    """A quantised embedding: int8 codes and their scale."""

    scale: float
    codes: bytes


class VectorStore(Protocol):
    """Embeddings by a hash of model and text; unlike the others it never raises, since they can be computed again."""

    def get(self, keys: Sequence[bytes]) -> dict[bytes, StoredVector]:
        """Return the vectors that are known."""
        ...

    def put(self, vectors: Mapping[bytes, StoredVector]) -> None:
        """Keep vectors, and drop those that were not used for longest beyond the store's size."""
        ...

    def claim(self, names: Sequence[str]) -> AbstractContextManager[frozenset[str]]:
        """Hold those of the names that nobody holds, and yield them: only one process at a time does a piece of work.

        The end of a process releases what it held. A store that cannot tell who holds what grants every name.
        """
        ...


@dataclass(frozen=True, slots=True)
class PinnedDefinition:
    """A definition of a server as canonical JSON; of one that is held, also why, and what it was before.

    `cause` of an accepted prompt, resource or template is the version of the scanner that read it.
    """

    kind: str
    name: str
    text: str
    cause: str = ""
    reasons: str = "[]"
    """JSON of what the scanner found."""
    before: str = ""
    before_name: str = ""


@dataclass(frozen=True, slots=True)
class Decision:
    """Somebody's approval or rejection of one definition, by its hash."""

    kind: str
    name: str
    hash: str
    approved: bool
    by: str
    at: float  # seconds since 1970


@dataclass(frozen=True, slots=True)
class StoredPins:
    """What is known of one server's definitions; `listing` is empty for a server that was never seen."""

    listing: str = ""
    """A number that differs after each change, and the hash of the set that it listed last."""
    accepted: tuple[PinnedDefinition, ...] = ()
    held: tuple[PinnedDefinition, ...] = ()
    decisions: tuple[Decision, ...] = ()
    """The oldest first; the last one about a hash counts."""


class PinStore(Protocol):
    """Pinned definitions and the decisions about them, one value per server."""

    def read(self, server: str) -> StoredPins:
        """Return what is known of a server; raises StoreError where the store cannot be read."""

    def write(self, server: str, pins: StoredPins, since: str | None = None) -> None:
        """Replace what is accepted and held of a server; decisions stay as they are.

        Raises StoreConflict where the `listing` of the server is no longer `since`: another gateway has written.
        """

    def amend(
        self, server: str, touched: Sequence[tuple[str, str]], pins: StoredPins, since: str | None = None
    ) -> None:
        """Replace what is known of some definitions, by kind and name; their pins stay until they are replaced.

        Raises StoreConflict as `write` does.
        """

    def decide(self, server: str, decisions: Sequence[Decision]) -> None:
        """Add decisions; two people may decide at once, and both are kept."""

    def overview(self) -> dict[str, frozenset[str]]:
        """Return the servers that something is known of, each with the names of its tools that are held."""

    def state(self) -> int:
        """Return a number that grows with every decision."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredToken:
    """A token that `shortlist token create` made: its hash, its scope, and when it was used last."""

    name: str
    hash: str = field(repr=False)
    created: float
    """Seconds since 1970, as are the other times."""
    expires: float | None = None
    last_used: float | None = None
    servers: tuple[str, ...] | None = None
    toolsets: tuple[str, ...] | None = None
    tools: tuple[str, ...] | None = None
    can: tuple[str, ...] | None = None
    group: str | None = None
    confirm: str = "never"

    def is_valid(self, now: float) -> bool:
        return self.expires is None or now < self.expires


class TokenStore(Protocol):
    """Tokens by name, shared by all processes of this user; raises StoreError where they cannot be read."""

    def load(self) -> Mapping[str, StoredToken]: ...

    def put(self, token: StoredToken) -> None:
        """Add a token, or replace the one of the same name."""
        ...

    def remove(self, name: str) -> bool:
        """Remove a token; return whether there was one."""
        ...

    def note_use(self, used: Mapping[str, float]) -> None:
        """Note when tokens were used; those that are gone are left out."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Storage:
    """Every store, opened once when the program is assembled."""

    events: EventStore
    tallies: TallyStore
    experiments: ExperimentStore
    exemplars: ExemplarStore
    catalogs: CatalogStore
    vectors: VectorStore
    pins: PinStore
    tokens: TokenStore
    workspaces: WorkspaceStore
    results: ResultStore
    programs: ProgramStore
    audit: AuditStore
    close: Callable[[], None]
    shared: SharedStores | None = None
    """None: no other gateway uses this storage at the same time."""
    trails: ReadTrails | None = None
    """What workspaces did with other gateways; None where there are none."""
