"""What a filter answers with."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from shortlist.disclosure.formats import Format, formatted
from shortlist.models import Confidence, Json, Query, Tool, ToolId, WishServed
from shortlist.text.conversation import Asked


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoredTool:
    """A chosen tool; `name` is safe for every provider and unique in the catalog."""

    tool: Tool
    name: str
    score: float
    """The chance that this is the tool asked for, 0 to 1."""
    rank: int | None
    """None where only `always_include` put it here."""
    wish: str = ""
    """The part of the request that it serves, where several things are asked for."""
    original: Any = field(default=None, repr=False)
    """The callable or framework object it was made of, where it was."""

    @property
    def id(self) -> ToolId:
        return self.tool.id

    @property
    def server(self) -> str:
        return self.tool.server

    @property
    def definition(self) -> dict[str, Json]:
        return self.tool.mcp()


@dataclass(frozen=True, slots=True, kw_only=True)
class Metrics:
    """The cost of an answer."""

    total_milliseconds: float
    embedding_milliseconds: float
    search_milliseconds: float
    rerank_milliseconds: float | None
    """None where nothing was reranked."""
    tools_evaluated: int
    cache_hit: bool
    """The query's vector was cached, or being computed by another call."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FilterResult:
    """The tools for one turn, best first, and what a caller should know about them."""

    tools: tuple[ScoredTool, ...]
    metrics: Metrics
    query: Query
    confidence: Confidence
    warnings: tuple[str, ...] = ()
    did_you_mean: Mapping[str, str] = field(default_factory=dict)
    asked: Asked = field(default_factory=lambda: Asked(""))
    """What was read as the request, how it relates to the turns before, and what was taken from them."""
    wishes: tuple[WishServed, ...] = ()
    """What is asked for, one by one, where the request asks for several things."""

    def names(self) -> list[str]:
        """Return the names that a model will call the tools by."""
        return [tool.name for tool in self.tools]

    def to(self, format_: Format) -> Any:
        """Write the tools as a provider takes them: openai, openai-responses, anthropic, gemini or mcp."""
        return formatted(format_, [(tool.tool, tool.name) for tool in self.tools])

    def originals(self) -> list[Any]:
        """Return the callables or framework objects that the chosen tools were made of."""
        return [tool.original for tool in self.tools if tool.original is not None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Stats:
    """The state of a filter."""

    initialised: bool
    """Every tool is indexed and, with a model, has a vector."""
    tools: int
    servers: int
    waiting: int
    """Tools without a vector yet."""
    cache_size: int
    cache_capacity: int
    dimensions: int | None
    model: str | None
