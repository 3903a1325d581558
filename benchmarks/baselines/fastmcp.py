"""FastMCP's search transforms, called on real `Tool` objects below the server."""

import logging
import re
from typing import Any

from benchmarks.baselines.documents import description_of, ids_of, schema_of, wire_names
from benchmarks.baselines.protocol import Baseline, Embed, Tools, finish, package
from benchmarks.baselines.stackone import STOP_WORDS

UNHEARD = "zzqxjkvw"  # in no tool: the regex transform has to read them all


class FastMCP:
    """One of the transforms; its first search, which builds the index, happens here and not in a query."""

    def __init__(self, name: str, transform: Any, tools: Tools) -> None:
        base = package("fastmcp.tools.base")
        logging.getLogger("mcp.shared.tool_name_validation").setLevel(logging.ERROR)  # seven lines per odd name
        names = wire_names(tools)
        self.name = name
        self._transform = transform
        self._ids = dict(zip(names, ids_of(tools), strict=True))
        self._tools = [
            base.Tool(name=key, description=description_of(tool), parameters=schema_of(tool))
            for key, tool in zip(names, tools, strict=True)
        ]
        finish(self._transform._search(self._tools, UNHEARD))

    def rank(self, query: str, limit: int) -> list[str]:
        self._transform._max_results = limit
        return [self._ids[tool.name] for tool in finish(self._transform._search(self._tools, query))]


class FastMCPWords(FastMCP):
    """The pattern a model would write: the query's words as alternatives."""

    def rank(self, query: str, limit: int) -> list[str]:
        words = [word for word in re.findall(r"\w+", query.lower()) if word not in STOP_WORDS]
        return super().rank("|".join(map(re.escape, words)), limit) if words else []


def bm25(tools: Tools, _embed: Embed | None = None) -> Baseline:
    return FastMCP("fastmcp-bm25", _transforms().BM25SearchTransform(), tools)


def regex(tools: Tools, _embed: Embed | None = None) -> Baseline:
    """Take the query itself as the pattern."""
    return FastMCP("fastmcp-regex", _transforms().RegexSearchTransform(), tools)


def regex_words(tools: Tools, _embed: Embed | None = None) -> Baseline:
    return FastMCPWords("fastmcp-regex-words", _transforms().RegexSearchTransform(), tools)


def _transforms() -> Any:
    return package("fastmcp.server.transforms.search")
