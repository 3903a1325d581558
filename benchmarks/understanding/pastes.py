"""Requests beside a long paste: logs, code, tables, mail, prose and quoted chats."""

from benchmarks.understanding.cases import Outcome, outcome, percent, read, wishes_of
from benchmarks.understanding.row import Row, Setup

LENGTHS = (600, 1_500, 4_000)


def rows(setup: Setup) -> list[Row]:
    cases = read("pastes")
    found = [outcome(setup.demo.filter(case["text"], limit=5), wishes_of(case)) for case in cases]
    alone = [outcome(setup.demo.filter(case["asked"], limit=5), wishes_of(case)) for case in cases]
    by_length = [
        _hits(
            f"paste of {length:,} characters",
            [f for f, c in zip(found, cases, strict=True) if c["characters"] == length],
            alone,
        )
        for length in LENGTHS
    ]
    by_place = [
        _hits(f"paste, the ask {place}", [f for f, c in zip(found, cases, strict=True) if c["ask"] == place], alone)
        for place in ("before", "after", "middle")
    ]
    wrong = [float(each.is_wrong_with_high_confidence) for each in found]
    return [
        *by_length,
        *by_place,
        Row(request="paste, any", metric="wrong with high confidence", values=wrong, asked=2, at_most=True),
    ]


def _hits(request: str, found: list[Outcome], alone: list[Outcome]) -> Row:
    english = percent([each.hit(5) for each in alone])
    return Row(request=request, metric="hit@5", values=[each.hit(5) for each in found], asked=95, english=english)
