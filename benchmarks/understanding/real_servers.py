"""Requests over 41 real servers from npm and PyPI, and requests that none of them can serve."""

import gzip
import json
from typing import Any

from benchmarks.understanding.cases import Outcome, outcome, read, wishes_of
from benchmarks.understanding.row import DATA, Row, Setup

from shortlist import ToolFilter


def rows(setup: Setup) -> list[Row]:
    source = ToolFilter(servers(), embedding=setup.embedding)
    found = [outcome(source.filter(case["text"], limit=5), wishes_of(case)) for case in read("real")]
    servable, unservable = [each for each in found if each.wishes], [each for each in found if not each.wishes]
    elsewhere = [outcome(source.filter(case["text"], limit=5), ()) for case in read("unservable")]
    first = [float(bool(frozenset().union(*each.wishes).intersection(each.ids[:1]))) for each in servable]
    return [
        Row(request="real servers", metric="top-1", values=first, asked=82),
        Row(
            request="real servers", metric="every step within 5", values=[_recall(each) for each in servable], asked=92
        ),
        Row(request="real servers, servable", metric="answered none", values=_none(servable), asked=5, at_most=True),
        Row(request="real servers, unservable", metric="answered none", values=_none(unservable), asked=85),
        Row(request="real servers, unservable, unseen", metric="answered none", values=_none(elsewhere), asked=85),
    ]


def servers() -> list[dict[str, Any]]:
    """Return the servers with their tools, as clients list them."""
    with gzip.open(DATA / "servers.jsonl.gz", "rt", encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def _recall(found: Outcome) -> float:
    return sum(bool(wish.intersection(found.ids[:5])) for wish in found.wishes) / len(found.wishes)


def _none(found: list[Outcome]) -> list[float]:
    return [float(each.level == "none") for each in found]
