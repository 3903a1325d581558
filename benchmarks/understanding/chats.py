"""Chats: last turns that need the turns before, topic switches, corrections, pastes, other languages, wishes."""

from benchmarks.understanding.cases import Outcome, outcome, read, wishes_of
from benchmarks.understanding.row import Row, Setup

NEEDS_CONTEXT = "needs_context"


def rows(setup: Setup) -> list[Row]:
    cases = read("chats")
    found = {case["id"]: outcome(setup.demo.filter(case["messages"], limit=10), wishes_of(case)) for case in cases}
    needs = [found[case["id"]] for case in cases if case["kind"] == NEEDS_CONTEXT]
    others = [found[case["id"]] for case in cases if case["kind"] != NEEDS_CONTEXT]
    sure = [float(each.is_wrong_with_high_confidence) for each in found.values() if each.level == "high"]
    kinds = dict.fromkeys(case["kind"] for case in cases)
    by_kind = [
        Row(
            request=f"chat: {kind}",
            metric="hit@5",
            values=[hit(found[c["id"]], 5) for c in cases if c["kind"] == kind],
            asked=90,
        )
        for kind in kinds
        if kind != NEEDS_CONTEXT
    ]
    return [
        *hit_rows("chat whose last turn needs the turns before", needs, 75, 92),
        *hit_rows("other chats", others, 75, 90),
        *by_kind,
        Row(request="chat, high confidence", metric="wrong", values=sure, asked=5, at_most=True),
    ]


def hit_rows(request: str, found: list[Outcome], first: float, five: float) -> list[Row]:
    return [
        Row(request=request, metric="hit@1", values=[hit(each, 1) for each in found], asked=first),
        Row(request=request, metric="hit@5", values=[hit(each, 5) for each in found], asked=five),
    ]


def hit(found: Outcome, first: int) -> float:
    """Several wishes are hit at one where the first hit serves any of them, at five where all are served."""
    if first == 1:
        return float(bool(frozenset().union(*found.wishes).intersection(found.ids[:1])))
    return found.hit(first)
