"""Chats and pastes over the demo catalog and real servers, in two halves that share no server.

Mistakes were looked for in the development half. Of the held-out half only the figures were read.
"""

from typing import Any

from benchmarks.understanding.cases import Outcome, outcome, read, wishes_of
from benchmarks.understanding.chats import NEEDS_CONTEXT, hit, hit_rows
from benchmarks.understanding.real_servers import servers
from benchmarks.understanding.row import Row, Setup

from shortlist import ToolFilter

HALVES = {"dev": "development half", "held": "held-out half"}


def rows(setup: Setup) -> list[Row]:
    sources = {"demo": setup.demo, "real": ToolFilter(servers(), embedding=setup.embedding)}
    cases = [(case, _answer(sources[case["catalog"]], case)) for case in read("further")]
    return [row for half, name in HALVES.items() for row in _half(name, [c for c in cases if c[0]["half"] == half])]


def _answer(source: ToolFilter, case: dict[str, Any]) -> Outcome:
    return outcome(source.filter(case["messages"] if "messages" in case else case["text"], limit=10), wishes_of(case))


def _half(half: str, cases: list[tuple[dict[str, Any], Outcome]]) -> list[Row]:
    pasted = [found for case, found in cases if "text" in case]
    needs = [found for case, found in cases if case["kind"] == NEEDS_CONTEXT]
    others = [found for case, found in cases if "messages" in case and case["kind"] != NEEDS_CONTEXT]
    sure = [float(found.is_wrong_with_high_confidence) for _, found in cases if found.level == "high"]
    return [
        *hit_rows(f"chat whose last turn needs the turns before, {half}", needs, 75, 92),
        *hit_rows(f"other chats, {half}", others, 75, 90),
        Row(request=f"paste, {half}", metric="hit@5", values=[hit(found, 5) for found in pasted], asked=95),
        Row(request=f"high confidence, {half}", metric="wrong", values=sure, asked=5, at_most=True),
    ]
