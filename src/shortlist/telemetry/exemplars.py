"""Pairs of a query and the tool it led to: how much each still counts, and which are worth a reviewer's time."""

import hashlib
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from shortlist.models import Asker, Exemplar, Json, ToolId

HALF_LIFE_DAYS = 14.0
"""What was right a fortnight ago counts half: tools, and what people ask of them, change."""
DAY_MILLISECONDS = 86_400_000
MINED_SHARE = 0.5
"""A tool answers a mined query if at least this share of its calls for it went well."""

GroupOf = Callable[[str], str]
"""From a caller's name to that of its group."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """A caller's calls of a tool for one query."""

    caller: str
    tool: ToolId
    query: str
    successes: int
    errors: int
    last: int
    """Milliseconds since 1970, of the last call."""

    @property
    def went_well(self) -> float:
        """The share of its calls that the tool did not answer with an error."""
        return self.successes / max(self.successes + self.errors, 1)


def weight_of(pair: Pair, now: float) -> float:
    """Say how much a pair counts at a second since 1970: less as it ages, and as its calls failed."""
    days = max(now * 1000 - pair.last, 0) / DAY_MILLISECONDS
    return float(pair.went_well * 0.5 ** (days / HALF_LIFE_DAYS))


def exemplars_of(pairs: Iterable[Pair], now: float, group_of: GroupOf) -> Iterator[Exemplar]:
    """Turn what was logged into what search learns from; calls that only failed teach nothing."""
    for pair in pairs:
        if pair.successes:
            by = Asker(pair.caller, group_of(pair.caller))
            yield Exemplar(query=pair.query, tool=pair.tool, by=by, weight=weight_of(pair, now))


def mined_cases(pairs: Iterable[Pair]) -> Iterator[dict[str, Json]]:
    """Give a case for every query that led to a call, as evals read them, marked as not yet reviewed."""
    asked: defaultdict[str, list[Pair]] = defaultdict(list)
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


def _gold(pairs: Sequence[Pair]) -> list[ToolId]:
    """Give the tools that answered a query, the most called first."""
    calls: defaultdict[ToolId, list[int]] = defaultdict(lambda: [0, 0])
    for pair in pairs:
        calls[pair.tool][0] += pair.successes
        calls[pair.tool][1] += pair.errors
    good = {tool: ok for tool, (ok, errors) in calls.items() if ok and ok / (ok + errors) >= MINED_SHARE}
    return sorted(good, key=lambda tool: (-good[tool], tool))
