"""The vocabulary: a tool, its server, a query, a ranking, a result."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Scores: TypeAlias = NDArray[np.float32]
    """One score per row of the index; zero or less means no match."""

ToolId: TypeAlias = str
Json: TypeAlias = Any
Level: TypeAlias = Literal["high", "medium", "low", "none"]
Relation: TypeAlias = Literal["new", "continues", "repeats", "accepts", "fills", "corrects", "beside"]
"""How a request relates to what was said and called before it."""
SearchMode: TypeAlias = Literal["hybrid", "lexical", "dense", "fuzzy", "regex", "prefix", "exact"]


def __getattr__(name: str) -> Any:
    """Return the type of scores to those that rank: a gateway that starts does not, and numpy is half of its start."""
    if name != "Scores":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import numpy as np  # noqa: PLC0415
    from numpy.typing import NDArray  # noqa: PLC0415

    return NDArray[np.float32]


@dataclass(frozen=True, slots=True, kw_only=True)
class Annotations:
    """What a server claims about a tool's effects; None where it says nothing."""

    read_only: bool | None = None
    destructive: bool | None = None
    idempotent: bool | None = None
    open_world: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameter:
    """One top-level argument of a tool, as its input schema declares it."""

    name: str
    type: str = "any"
    description: str = ""
    required: bool = False
    enum: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """Where tools come from; its words help to find all of them."""

    name: str
    title: str = ""
    description: str = ""
    categories: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Tool:
    """A tool as search sees it; `definition` keeps the whole original as compact JSON.

    Schemas are parsed when asked for: tens of thousands of parsed schemas would fill a laptop.
    """

    id: ToolId
    name: str
    server: str = ""
    title: str = ""
    description: str = ""
    category: str = ""
    tags: tuple[str, ...] = ()
    """Like the category, something to filter by, which a server may claim as it likes."""
    keywords: tuple[str, ...] = ()
    """The labels that rank: those of the configuration, or all in a catalog that somebody wrote."""
    annotations: Annotations = Annotations()
    definition: str = field(default="{}", repr=False)
    content_hash: str = field(default="", repr=False)
    uses: tuple[ToolId, ...] | None = None
    """The tools that a saved program calls: it is in reach only where all of these are. None: not a program."""

    def mcp(self) -> dict[str, Json]:
        """Return the MCP definition as it came: schemas, annotations, icons, `_meta` and all."""
        definition: dict[str, Json] = json.loads(self.definition)
        return definition

    @property
    def input_schema(self) -> dict[str, Json]:
        schema = self.mcp().get("inputSchema")
        return schema if isinstance(schema, dict) else {"type": "object"}

    @property
    def output_schema(self) -> dict[str, Json] | None:
        schema = self.mcp().get("outputSchema")
        return schema if isinstance(schema, dict) else None


PROGRAMS = "programs"
"""The server under which saved programs are offered."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Filters:
    """Hard limits that act inside the retrievers, so that `limit` is filled whenever enough tools pass."""

    servers: frozenset[str] | None = None
    categories: frozenset[str] | None = None
    tags: frozenset[str] | None = None
    read_only: bool | None = None
    destructive: bool | None = None
    among: frozenset[ToolId] | None = None
    exclude: frozenset[ToolId] = frozenset()


UNIDENTIFIED = "(anonymous)"
"""The name of callers over HTTP that present no token; nothing is learned from them or for them."""


@dataclass(frozen=True, slots=True)
class Asker:
    """The caller, and the group of callers it shares exemplars with."""

    name: str = "local"
    group: str = "local"


@dataclass(frozen=True, slots=True, kw_only=True)
class Exemplar:
    """A query that led to a successful call of a tool, by whom, and how much that still counts (0…1)."""

    query: str
    tool: ToolId
    by: Asker = Asker()
    weight: float = 1.0


class OtherAsk(NamedTuple):
    """What else in a message with pasted text may be its request, and how likely that is."""

    text: str
    likelihood: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """What is asked for, what may answer it, and what is known about the caller."""

    text: str
    limit: int = 5
    mode: SearchMode = "hybrid"
    filters: Filters = Filters()
    recent_servers: tuple[str, ...] = ()
    recent_tools: tuple[ToolId, ...] = ()
    preferred: tuple[Filters, ...] = ()
    """What a model guessed about the tool (its server, category, tags): matches are lifted, nothing is hidden."""
    relation: Relation = "new"
    """How the request relates to the calls before it, which decides how much the recent servers and tools count."""
    beside_paste: bool = False
    """Whether it stood beside pasted text: it is then worded as loosely as in a chat, and read as chats are."""
    other: OtherAsk | None = None
    """What else may be asked, where the text is a request that was separated from a paste before."""
    diverse: bool = False
    collapse: bool = False
    """Show near-duplicates of one tool on several servers as one family."""
    pipeline: str | None = None
    """The pipeline that answers in mode `hybrid`; None is the searcher's own."""
    asker: Asker = Asker()


@dataclass(frozen=True, slots=True)
class Signal:
    """What one retriever made of a tool; no rank where it does not know it."""

    score: float
    rank: int | None = None


class Hit(NamedTuple):
    """One tool of an answer; `family` lists near-duplicates that it stands for.

    A tuple, as steps are: a search makes dozens of them, and these take a third of the time.
    """

    tool: Tool
    score: float
    rank: int
    family: tuple[ToolId, ...] = ()
    signals: Mapping[str, Signal] = MappingProxyType({})
    wish: str = ""
    """The part of the request that it serves, where several things are asked for."""
    other: str = ""
    """What else may be asked, where it owes its place to that."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Confidence:
    """How likely the first hit is right, and why."""

    level: Level
    probability: float
    match_probability: float
    """How likely the catalog has a tool for this at all."""
    reasons: tuple[str, ...] = ()


class WishServed(NamedTuple):
    """One of several things that a request asks for, and how sure its own first hit is."""

    text: str
    confidence: Confidence
    first: ToolId | None


class Step(NamedTuple):
    """One timed step of a search: a retriever, the fusion or a stage."""

    name: str
    milliseconds: float
    found: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchResult:
    """The answer to a query with its trace; `notes` say what a caller should know (arms not ready, …)."""

    query: Query
    hits: tuple[Hit, ...]
    confidence: Confidence
    steps: tuple[Step, ...] = ()
    notes: tuple[str, ...] = ()
    did_you_mean: Mapping[str, str] = field(default_factory=dict)
    wishes: tuple[WishServed, ...] = ()
    """What is asked for, one by one, where a request asks for several things."""

    @property
    def milliseconds(self) -> float:
        return sum(step.milliseconds for step in self.steps)
