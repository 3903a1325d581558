"""Exemplars: queries and the tools they led to, how much each counts, and which to review as test cases."""

import hashlib
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence

from shortlist.models import UNIDENTIFIED, Asker, Exemplar, Json, ToolId
from shortlist.storage.port import LearnedPair

HALF_LIFE_DAYS = 14.0
"""A call from two weeks ago counts half: tools, and what people ask for, change."""
DAY_MILLISECONDS = 86_400_000
MINED_SHARE = 0.5
"""A tool counts as an answer to a mined query if at least this share of its calls succeeded."""

GroupOf = Callable[[str], str]
"""Returns the group of a caller by name."""


def weight_of(pair: LearnedPair, now: float) -> float:
    """Return a pair's weight at a time in seconds since 1970: lower with age and with failed calls."""
    days = max(now * 1000 - pair.last, 0) / DAY_MILLISECONDS
    return float(pair.success_rate * 0.5 ** (days / HALF_LIFE_DAYS))


def exemplars_of(pairs: Iterable[LearnedPair], now: float, group_of: GroupOf) -> Iterator[Exemplar]:
    """Yield exemplars for search; pairs without a successful call, or of callers without a token, are left out."""
    for pair in pairs:
        if pair.successes and pair.caller != UNIDENTIFIED:
            by = Asker(pair.caller, group_of(pair.caller))
            yield Exemplar(query=pair.query, tool=pair.tool, by=by, weight=weight_of(pair, now))


def mined_cases(pairs: Iterable[LearnedPair]) -> Iterator[dict[str, Json]]:
    """Yield an evaluation case for every query that led to a call, marked as not reviewed."""
    asked: defaultdict[str, list[LearnedPair]] = defaultdict(list)
    for pair in pairs:
        asked[" ".join(pair.query.split())].append(pair)
    for query, found in sorted(asked.items()):
        if gold := _gold(found):
            yield {
                "id": f"mined-{hashlib.sha256(query.encode()).hexdigest()[:12]}",
                "query": query,
                "gold": gold,
                "split": "mined",
                "source": "log",
                "calls": sum(pair.successes for pair in found),
                "callers": len({pair.caller for pair in found}),
                "reviewed": False,
            }


def _gold(pairs: Sequence[LearnedPair]) -> list[ToolId]:
    """Return the tools that answered a query, the most called first."""
    calls: defaultdict[ToolId, list[int]] = defaultdict(lambda: [0, 0])
    for pair in pairs:
        calls[pair.tool][0] += pair.successes
        calls[pair.tool][1] += pair.errors
    good = {tool: ok for tool, (ok, errors) in calls.items() if ok and ok / (ok + errors) >= MINED_SHARE}
    return sorted(good, key=lambda tool: (-good[tool], tool))
