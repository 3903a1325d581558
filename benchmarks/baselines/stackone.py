"""StackOne's hybrid of BM25 and TF-IDF: from their article, and as their Python package ships it."""

import io
import logging
import re
from collections.abc import Mapping
from contextlib import redirect_stderr
from typing import Any

from benchmarks.baselines.documents import as_text, description_of, ids_of, name_of, wire_names
from benchmarks.baselines.lexical import Scores, okapi, tfidf
from benchmarks.baselines.protocol import Baseline, Embed, Tools, package
from benchmarks.baselines.scored import Scored

ALPHA = 0.2  # weight of BM25; the rest is TF-IDF
ACTIONS = frozenset({"create", "update", "delete", "get", "list", "search"})
_STOP_WORDS = """
a an the and or but if then else for of in on to from by with as at is are was were be been it this that
these those not no can could should would may might do does did have has had you your
"""
STOP_WORDS = frozenset(_STOP_WORDS.split())


def stackone(tools: Tools, _embed: Embed | None = None) -> Baseline:
    """0.2 BM25 + 0.8 TF-IDF cosine, each min-max normalised; TF-IDF counts the name three times."""
    lexical = okapi([words(document(tool)) for tool in tools])
    cosine = tfidf([words(f"{name_of(tool)} {name_of(tool)} {document(tool)}") for tool in tools])

    def score(query: str) -> Scores:
        terms = words(query)
        return ALPHA * min_max(lexical.scores(terms)) + (1 - ALPHA) * min_max(cosine.scores(terms))

    return Scored("stackone", ids_of(tools), score)


def document(tool: Mapping[str, Any]) -> str:
    """Join the name, its first part as category, its verbs, the description and all of its parts."""
    name = name_of(tool)
    parts = name.split("_")
    actions = [part for part in parts if part in ACTIONS]
    return " ".join([name, parts[0], *actions, as_text(tool.get("description")), *parts])


def words(text: str) -> list[str]:
    return [word for word in re.sub(r"[^a-z0-9_\s]", " ", text.lower()).split() if word not in STOP_WORDS]


def min_max(scores: Scores) -> Scores:
    """Scale to 0..1; the minimum is the 0 of a tool that shares nothing, even where every tool shares something."""
    return scores / scores.max() if scores.any() else scores


class StackOnePackage:
    """`stackone_ai.local_search.ToolIndex` with its default weight."""

    name = "stackone-ai"

    def __init__(self, tools: Tools) -> None:
        search, models = package("stackone_ai.local_search"), package("stackone_ai.models")
        logging.getLogger("bm25s").setLevel(logging.WARNING)
        names = wire_names(tools)
        self._ids = dict(zip(names, ids_of(tools), strict=True))
        with redirect_stderr(io.StringIO()):  # bm25s draws progress bars
            self._index = search.ToolIndex(
                [
                    models.StackOneTool(
                        description=description_of(tool),
                        parameters=models.ToolParameters(type="object", properties={}),
                        _execute_config=models.ExecuteConfig(
                            name=name, method="POST", url="https://example.invalid", headers={}
                        ),
                        _api_key="",
                    )
                    for name, tool in zip(names, tools, strict=True)
                ]
            )

    def rank(self, query: str, limit: int) -> list[str]:
        with redirect_stderr(io.StringIO()):
            return [self._ids[hit.name] for hit in self._index.search(query, limit=limit)][:limit]


def stackone_package(tools: Tools, _embed: Embed | None = None) -> Baseline:
    return StackOnePackage(tools)
