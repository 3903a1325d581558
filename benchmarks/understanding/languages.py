"""Requests in fourteen languages over the development catalog, and the golden segments `languages` and `typos`."""

import gzip
import json
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from benchmarks.understanding.row import Row, Setup
from benchmarks.understanding.searchers import searcher_over

from shortlist.evals.cases import Case
from shortlist.evals.datasets import data_root, golden, load_dataset
from shortlist.evals.metrics import marks, ndcg, recall, strict_groups, top_1
from shortlist.models import Query
from shortlist.search.searcher import Searcher
from shortlist.text.languages.detecting import NAMES

LIMIT = 10


class Request(NamedTuple):
    """A development request, what it is in English, and the tool it asks for."""

    language: str
    query: str
    english: str
    gold: tuple[str, ...]


class Asked(NamedTuple):
    """One request answered."""

    ndcg: float
    is_none: float


def rows(setup: Setup) -> list[Row]:
    """Measure the languages together and apart, then the golden segments."""
    return [*_language_rows(setup), *_golden_rows(setup)]


def _language_rows(setup: Setup) -> Iterator[Row]:
    searcher = searcher_over(setup.embedding, load_dataset("authored_dev").catalogs)
    requests = list(_requests())
    found = {request: _ask(searcher, request.query, request.gold) for request in requests}
    clean = {request.english: _ask(searcher, request.english, request.gold) for request in requests}
    english = 100 * float(np.mean([each.ndcg for each in clean.values()]))
    english_none = 100 * float(np.mean([each.is_none for each in clean.values()]))
    every = list(found.values())
    yield Row(request="14 languages", metric="nDCG@10", values=[a.ndcg for a in every], asked=66, english=english)
    yield Row(
        request="14 languages",
        metric='answered "none"',
        values=[a.is_none for a in every],
        asked=6,
        at_most=True,
        english=english_none,
    )
    for language in sorted({request.language for request in requests}):
        values = [asked.ndcg for request, asked in found.items() if request.language == language]
        yield Row(request=NAMES[language], metric="nDCG@10", values=values, asked=58, english=english)


def _golden_rows(setup: Setup) -> Iterator[Row]:
    dataset = golden()
    searcher = searcher_over(setup.embedding, dataset.catalogs)
    for segment, first, within_five in (("languages", 60.0, None), ("typos", 83.3, 95.8)):
        cases = dataset.only(split="test", segment=segment).cases
        yield Row(request=f"golden {segment}", metric="top-1", values=_golden(searcher, cases, 1), asked=first)
        if within_five is not None:
            yield Row(request=f"golden {segment}", metric="R@5", values=_golden(searcher, cases, 5), asked=within_five)


def _golden(searcher: Searcher, cases: Sequence[Case], depth: int) -> list[float]:
    metric = top_1 if depth == 1 else recall(depth)
    found = []
    for case in cases:
        groups = case.groups or strict_groups(case.gold)
        found.append(metric(marks(_ids(searcher, case.query), groups), len(groups)))
    return found


def _ids(searcher: Searcher, text: str) -> list[str]:
    return [hit.tool.id for hit in searcher.search(Query(text=text, limit=LIMIT)).hits]


def _requests() -> Iterator[Request]:
    with gzip.open(data_root() / "languages" / "dev.jsonl.gz", "rt", encoding="utf-8") as lines:
        for line in lines:
            record = json.loads(line)
            yield Request(record["language"], record["query"], record["english"], tuple(record["gold"]))


def _ask(searcher: Searcher, text: str, gold: tuple[str, ...]) -> Asked:
    found = searcher.search(Query(text=text, limit=LIMIT))
    groups = strict_groups(gold)
    met = marks([hit.tool.id for hit in found.hits], groups)
    return Asked(ndcg(LIMIT)(met, len(groups)), found.confidence.level == "none")
