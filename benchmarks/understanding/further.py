"""Five sets of chats and pastes over the demo catalog and real servers, three of them in two parts.

Mistakes were looked for in the development parts. Of the held-out parts only the figures were read.
"""

from collections.abc import Mapping
from typing import Any

from benchmarks.understanding.cases import Outcome, outcome, read, wishes_of
from benchmarks.understanding.chats import NEEDS_CONTEXT, hit, hit_rows
from benchmarks.understanding.real_servers import servers
from benchmarks.understanding.row import Row, Setup

from shortlist import ToolFilter

PARTS = {
    ("further", "dev"): "development half",
    ("further", "held"): "held-out half",
    ("second", "dev"): "second set, development part",
    ("second", "held"): "second set, held-out part",
    ("third", "dev"): "third set, development half",
    ("third", "held"): "third set, held-out half",
    ("fourth", "held"): "fourth set, held out",
    ("fifth", "held"): "fifth set, held out",
}


def rows(setup: Setup) -> list[Row]:
    sources = {"demo": setup.demo, "real": ToolFilter(servers(), embedding=setup.embedding)}
    return [row for part, name in PARTS.items() for row in _part(name, _answers(sources, *part))]


def _answers(sources: Mapping[str, ToolFilter], name: str, half: str) -> list[tuple[dict[str, Any], Outcome]]:
    return [(case, _answer(sources[case["catalog"]], case)) for case in read(name) if case["half"] == half]


def _answer(source: ToolFilter, case: dict[str, Any]) -> Outcome:
    return outcome(source.filter(case["messages"] if "messages" in case else case["text"], limit=10), wishes_of(case))


def _part(part: str, cases: list[tuple[dict[str, Any], Outcome]]) -> list[Row]:
    pasted = [found for case, found in cases if "text" in case]
    needs = [found for case, found in cases if case["kind"] == NEEDS_CONTEXT]
    others = [found for case, found in cases if "messages" in case and case["kind"] != NEEDS_CONTEXT]
    sure = [float(found.is_wrong_with_high_confidence) for _, found in cases if found.level == "high"]
    pastes = [Row(request=f"paste, {part}", metric="hit@5", values=[hit(found, 5) for found in pasted], asked=95)]
    return [
        *hit_rows(f"chat whose last turn needs the turns before, {part}", needs, 75, 92),
        *hit_rows(f"other chats, {part}", others, 75, 90),
        *(pastes if pasted else ()),
        Row(request=f"high confidence, {part}", metric="wrong", values=sure, asked=5, at_most=True),
    ]
