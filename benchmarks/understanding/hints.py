"""Plausible hints that a model may have guessed: a wrong one must not push a right tool out of the first five."""

from typing import Any

from benchmarks.understanding.cases import read
from benchmarks.understanding.row import Row, Setup

from shortlist.catalog.toolsets import toolsets_for_intent, toolsets_of
from shortlist.models import Filters

FIRST = 5


def rows(setup: Setup) -> list[Row]:
    kept = []
    for case in read("hints"):
        right = set(case["gold"])
        plain, hinted = (_found(setup, case["text"], hint) for hint in ((), _preferred(setup, case["hint"])))
        if right.intersection(plain):
            kept.append(float(bool(right.intersection(hinted))))
    return [Row(request="a guessed hint", metric="right tool stays in the first five", values=kept, asked=100)]


def _found(setup: Setup, text: str, preferred: tuple[Filters, ...]) -> list[str]:
    hits = setup.demo.search(text, limit=FIRST, collapse=True, preferred=preferred).hits
    return [tool_id for hit in hits for tool_id in (hit.tool.id, *hit.family)]


def _preferred(setup: Setup, hint: dict[str, Any]) -> tuple[Filters, ...]:
    """Point a hint at tools as the gateway does."""
    if "intent" in hint:
        toolsets = toolsets_of(setup.demo.catalog)
        meant = toolsets_for_intent(hint["intent"], toolsets, {})
        among = frozenset(tool_id for name in meant for tool_id in toolsets[name].tools)
        return (Filters(among=among),) if among else ()
    if "category" in hint:
        return (Filters(categories=frozenset({hint["category"]})),)
    key = next(iter(hint))
    limits: dict[str, Any] = {key: frozenset(hint[key])}
    return (Filters(**limits),)
