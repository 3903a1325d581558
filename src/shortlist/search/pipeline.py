"""A search as a value: retrievers, one fusion, stages. This makes traces and ablations possible.

Every retriever returns its best candidates and then scores the candidates of the others, so that fusion sees what all
of them make of the same rows. Stages reorder the fused ranking for reasons that are not in the query.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from time import perf_counter
from typing import Any, NamedTuple, Protocol, Self, TypeAlias

import numpy as np
from numpy.typing import NDArray

from shortlist.errors import InvalidInput
from shortlist.index.embedders import Vectors
from shortlist.index.index import Index
from shortlist.index.ports import Among, Candidates, Rows
from shortlist.models import Filters, Query, Relation, Scores, Signal, Step, ToolId
from shortlist.text.kinds import FIRST_WORD
from shortlist.text.queries import AnalysedQuery, shipped_expansions
from shortlist.text.tokens import ACTIONS, compact, named_action, stem, terms

DEPTH = 50
"""How many of each retriever's best are compared; deeper ones were never the right ones on the training sets."""
SPELLED_BOOST = 4.0
"""A typed tool name is stronger evidence than anything else, except a whole sentence about another tool."""
COMPLETION_BOOST = 30.0
"""For a complete name; a prefix gets a proportional share."""
FOLLOW_UPS: Mapping[Relation, tuple[float, float]] = {
    "new": (0.4, 0.0),
    "continues": (2.0, -1.5),
    "repeats": (0.25, 3.5),
    "accepts": (2.5, 0.0),
    "fills": (0.5, 0.5),
    "corrects": (2.5, -2.5),
    "beside": (1.75, 0.0),
}
"""Boosts for the server and the tool called last, by the relation of the request to that call; `beside` is a wish next
to clear ones of the same request, whose servers it is likely to be for.

`training/fit_follow_ups.py` fits `continues`, `accepts` and `corrects`; of the boosts that it finds about as good,
smaller ones were taken, as its conversations seldom change the server. The others were set by hand, and so was the tool
boost of `corrects`, which is below the range that is fitted."""
PREFERRED_BOOST = 1.0
"""The boost of a hint from a model: it decides between tools with similar scores."""
PROTECTED = 5
"""First hits that a hint never displaces, right or wrong."""
TOGETHER_BOOST = 0.6
"""For a tool always called after one just called; in proportion for one sometimes called."""
DIVERSITY = 0.35
"""How much similarity to a tool already chosen takes away, where several different tools are wanted."""

SAME_ACTION, ALIKE_ACTION, WHOLE_NAME, NEARLY_AS_GOOD = 0.5, 0.25, 0.25, 1.0
"""The boosts of a tool whose name says what a request asks to do, in the same word or in another, and more if the
request says the rest of the name too; and how far behind the first it may be. Of those tried, the ones that help most
training requests: with 0.75 and 0.5 whatever the rest of the name is, twice as many became wrong as right."""
_OPEN_NEW = re.compile(r"\s+(?:up\s+)?(?:a|an|another|new)\b", re.IGNORECASE)
"""What makes of "open" that something is created: "open a ticket", not "open the ticket"."""
_CREATE = (stem("create"),)

SPELLED, ACTING, LEARNED = "spelled", "acting", "learned"
"""Where a request keeps the rows whose names it spells, the boosts of those whose names say what it asks to do, and the
boosts that were learned from calls."""

Matrix: TypeAlias = NDArray[np.float32]


@dataclass(frozen=True, slots=True, eq=False)
class Request:
    """A query made ready for retrievers and stages: analysed once, embedded once, filtered once."""

    query: Query
    analysed: AnalysedQuery
    among: Among
    vectors: Vectors | None = None
    """The query's vector and, where it asks for several things, one for each of them."""
    corrected: Mapping[str, str] = field(default_factory=dict)
    """Words of the query that were taken for typing errors, and what they were read as."""
    likelihood: float = 1.0
    """How likely that spelling is beside the likeliest, before it is searched for."""
    kept: dict[object, Any] = field(default_factory=dict)
    """What a retriever looked up for this request and needs again."""


class Retriever(Protocol):
    """Finds candidates for a request, and scores those that others found."""

    def retrieve(self, request: Request, limit: int) -> Candidates:
        """Return the best rows, those that tie with the last of them, and what fusion needs to know of the rest."""
        ...

    def score(self, request: Request, rows: Rows) -> Scores:
        """Return the scores of rows that may answer, in their order."""
        ...


@dataclass(frozen=True, slots=True)
class Ranking:
    """Rows of the index, best first; ties are broken on the tool id."""

    rows: NDArray[np.int32]
    scores: Scores
    families: Mapping[int, Sequence[int]] = field(default_factory=dict)
    """The near-duplicates that a row stands for, once they were gathered."""

    def __len__(self) -> int:
        return len(self.rows)

    def __iter__(self) -> Iterator[tuple[int, float]]:
        return iter(zip(self.rows.tolist(), self.scores.tolist(), strict=True))

    def __getitem__(self, part: slice) -> "Ranking":
        return Ranking(self.rows[part], self.scores[part], self.families)


class Found(NamedTuple):
    """The candidates of all retrievers, with what each makes of every one of them."""

    rows: Rows
    """Ascending."""
    signals: Mapping[str, Scores]
    """By retriever, in the order of the rows; zero or less is no match."""
    spreads: Mapping[str, tuple[float, float]]
    """By retriever, the mean and standard deviation of all rows that may answer."""

    def only(self, rows: Rows) -> "Found":
        """Return some of the candidates, in any order."""
        at = self.rows.searchsorted(rows)
        return Found(rows, {name: scores[at] for name, scores in self.signals.items()}, self.spreads)


class HitSignals(Mapping[str, Signal]):
    """What each retriever made of one hit, worked out when asked for: most callers want the tools alone."""

    __slots__ = ("_found", "_row")

    def __init__(self, found: Found, row: int) -> None:
        self._found = found
        self._row = row

    def __getitem__(self, name: str) -> Signal:
        """Place the hit among the candidates: the best of every retriever, so a rank that matters is exact."""
        rows, scores = self._found.rows, self._found.signals[name]
        at = int(rows.searchsorted(self._row))
        if at == len(rows) or rows.item(at) != self._row:
            return Signal(0.0)  # a copy is shown behind its original and has no score of its own
        score = float(scores.item(at))
        return Signal(score, int(np.count_nonzero(scores > score)) + 1 if score > 0 else None)

    def __iter__(self) -> Iterator[str]:
        return iter(self._found.signals)

    def __len__(self) -> int:
        return len(self._found.signals)

    def __repr__(self) -> str:
        return repr(dict(self))


class Evidence(NamedTuple):
    """The candidates of one query with all that is known of them."""

    rows: Rows
    candidates: Matrix
    query: Matrix


class Fused(NamedTuple):
    """A ranking and, where the fusion looked closer, what it saw and what each part of it contributed."""

    ranking: Ranking
    evidence: Evidence | None = None
    weights: Matrix | None = None
    logits: Matrix | None = None
    """The score of each candidate, in the order of the evidence."""


Fuse: TypeAlias = Callable[[Request, Found], Fused]
Stage: TypeAlias = Callable[[Request, Ranking], Ranking]


class PipelineRun(NamedTuple):
    """What a pipeline found, what the retrievers made of it, and the ranking after every stage."""

    ranking: Ranking
    found: Found
    fused: Fused
    after: Mapping[str, Ranking]
    steps: tuple[Step, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Pipeline:
    """Retrievers and stages by name, in order."""

    name: str
    retrievers: Mapping[str, Retriever]
    fuse: Fuse
    stages: Mapping[str, Stage]
    fitted_on: frozenset[str] = frozenset()

    def run(self, request: Request) -> PipelineRun:
        """Ask every retriever, fuse, and pass the ranking through the stages."""
        steps: list[Step] = []
        limit = max(DEPTH, request.query.limit)
        candidates: dict[str, Candidates] = {}
        started = perf_counter()
        for name, retriever in self.retrievers.items():
            candidates[name] = found = retriever.retrieve(request, limit)
            ended = perf_counter()
            steps.append(Step(name, (ended - started) * 1000, found.matched))
            started = ended
        rows = _together(candidates, request.among, limit)
        every = Found(
            rows,
            {name: _scores(self.retrievers[name], request, rows, found.every) for name, found in candidates.items()},
            {name: (found.mean, found.deviation) for name, found in candidates.items()},
        )
        fused = self.fuse(request, every)
        ranking, after = fused.ranking, {}
        ended = perf_counter()
        steps.append(Step("fuse", (ended - started) * 1000, len(ranking.rows)))
        for name, stage in self.stages.items():
            started = ended
            after[name] = ranking = stage(request, ranking)
            ended = perf_counter()
            steps.append(Step(name, (ended - started) * 1000, len(ranking.rows)))
        return PipelineRun(ranking[: request.query.limit], every, fused, after, tuple(steps))

    def without(self, *names: str) -> Self:
        """Return the same pipeline without some of its parts."""
        unknown = set(names) - {*self.retrievers, *self.stages}
        if unknown:
            raise InvalidInput(f"{self.name!r} has no part {sorted(unknown)}: it has {self.parts}.")
        return replace(
            self,
            name=f"{self.name}-{'-'.join(names)}" if names else self.name,
            retrievers={name: r for name, r in self.retrievers.items() if name not in names},
            stages={name: s for name, s in self.stages.items() if name not in names},
        )

    @property
    def parts(self) -> tuple[str, ...]:
        return (*self.retrievers, *self.stages)


def _together(candidates: Mapping[str, Candidates], among: Among, limit: int) -> Rows:
    """Return the rows that any retriever found, ascending.

    In a small catalog these are all that may answer; in others never fewer than `limit`: rows that nothing matches fill
    up.
    """
    mask = among.rows
    allowed = among.size if mask is None else int(np.count_nonzero(mask))
    if allowed <= 2 * limit:
        return np.arange(allowed) if mask is None else np.flatnonzero(mask)
    chosen = np.zeros(among.size, np.bool_)
    for found in candidates.values():
        chosen[found.rows] = True
    (rows,) = chosen.nonzero()
    if len(rows) >= limit:
        return rows
    (free,) = (~chosen if mask is None else mask & ~chosen).nonzero()
    chosen[free[: limit - len(rows)]] = True
    return chosen.nonzero()[0]


def _scores(retriever: Retriever, request: Request, rows: Rows, every: Scores | None) -> Scores:
    return retriever.score(request, rows) if every is None else every[rows]


def rank(scores: Scores, rows: NDArray[Any], ids: Sequence[ToolId], limit: int) -> Ranking:
    """Order rows by score; ties break on the id, also where the limit cuts through them."""
    if limit < len(rows):
        threshold = np.partition(scores, len(scores) - limit)[len(scores) - limit]
        kept = scores >= threshold
        scores, rows = scores[kept], rows[kept]
    order = scores.argsort()[::-1]
    scores, rows = scores[order], rows[order]
    for tied in _ties(scores):
        rows[tied] = sorted(rows[tied].tolist(), key=ids.__getitem__)
    return Ranking(rows[:limit], scores[:limit]) if limit < len(rows) else Ranking(rows, scores)


def _ties(falling: Scores) -> list[slice]:
    """Find the runs of equal scores among ordered ones."""
    equal = falling[1:] == falling[:-1]
    if not np.count_nonzero(equal):
        return []
    edges = np.flatnonzero(np.diff(equal, prepend=False, append=False))
    return [slice(start, end + 1) for start, end in edges.reshape(-1, 2).tolist()]


def spelled_rows(index: Index, request: Request) -> dict[int, float]:
    """Find the tools whose name the query spells: whole, or, as in `analyze_`, the share that was typed of it."""
    known: dict[int, float] | None = request.kept.get(SPELLED)
    if known is None:
        known = request.kept[SPELLED] = _spelled_rows(index, request)
    return known


def _spelled_rows(index: Index, request: Request) -> dict[int, float]:
    found = {row: 1.0 for name in request.analysed.identifiers for row in index.names.get(name, ())}
    text = request.query.text.strip()
    if text.endswith(("_", "-", ".")) and " " not in text and (typed := compact(text)):
        found |= {row: len(typed) / len(name) for name, rows in index.names.starting(typed) for row in rows}
    return found


Together: TypeAlias = Callable[[ToolId], Mapping[ToolId, float] | None]
"""How often other tools were called after this one, as shares."""


class SpelledNames:
    """Ranks what the query spells before what it resembles; of names typed in part, the most complete first."""

    def __init__(self, index: Index) -> None:
        self._index = index

    def __call__(self, request: Request, ranking: Ranking) -> Ranking:
        spelled = spelled_rows(self._index, request)
        if not spelled:
            return ranking
        typed = np.array([spelled.get(row, 0.0) for row in ranking.rows.tolist()], np.float32)
        boost = SPELLED_BOOST * (typed > 0) + COMPLETION_BOOST * typed * (typed < 1)
        return reordered(ranking, ranking.scores + boost, self._index)


class Acting:
    """Boosts tools whose names say what the request asks to do, among those that match it nearly as well."""

    def __init__(self, index: Index) -> None:
        self._index = index

    def __call__(self, request: Request, ranking: Ranking) -> Ranking:
        scores = ranking.scores
        if len(ranking) < 2 or scores[1] < scores[0] - NEARLY_AS_GOOD:
            return ranking  # most first hits lead by more, and then no action is worth reading
        asked = _asked_actions(request.analysed)
        if not asked:
            return ranking
        words = {word for term in request.analysed.terms for word in (term.term, *(each for each, _ in term.instead))}
        near = int(np.count_nonzero(scores >= scores[0] - NEARLY_AS_GOOD))
        lifts = {row: self._lift(asked, words, row) for row in ranking.rows[:near].tolist()}
        if len({*lifts.values()}) < 2:
            return ranking
        request.kept[ACTING] = lifts
        lifted = scores.copy()
        lifted[:near] += np.array([*lifts.values()], np.float32)
        return reordered(ranking, lifted, self._index)

    def _lift(self, asked: Mapping[tuple[str, ...], float], words: set[str], row: int) -> float:
        tool = self._index.tool(row)
        verb, *rest = named_action(tool.name) or ("",)
        ways = [
            (lift, said) for said, lift in asked.items() if verb == said[0] and (len(said) == 1 or said[-1] in rest)
        ]
        if not ways:
            return 0.0
        lift, said = max(ways)
        return lift + WHOLE_NAME * {*rest}.issubset(words.union(said, terms(tool.server)))


def _asked_actions(analysed: AnalysedQuery) -> Mapping[tuple[str, ...], float]:
    """Return what names may say for what a request asks to do, a verb or one with its object, with the boosts."""
    if analysed.reading is not None and analysed.is_glossed:
        senses = [sense.english.lower() for unit in analysed.reading.units for sense in unit.senses]
        is_new = not {"a", "an", "new"}.isdisjoint(senses)
        said = [word for sense in senses if (word := sense.partition(" ")[0]) in ACTIONS]
        return {name: lift for word in reversed(said) for name, lift in _named_for(word, is_new=is_new).items()}
    first = FIRST_WORD.match(analysed.text)
    if first is None or (word := first[1].lower()) not in ACTIONS:
        return {}
    return _named_for(word, is_new=bool(_OPEN_NEW.match(analysed.text, first.end())))


@lru_cache(maxsize=1_024)
def _named_for(action: str, *, is_new: bool) -> Mapping[tuple[str, ...], float]:
    """Return what stands for an action in names; "open" stands for what is done with new things, or with others."""
    word = stem(action)
    alike = dict.fromkeys(shipped_expansions().phrases.get(word, ()), ALIKE_ACTION)
    if action == "open":
        return {_CREATE: SAME_ACTION} if is_new else {said: lift for said, lift in alike.items() if said != _CREATE}
    return alike | {(word,): SAME_ACTION}


class FollowUp:
    """Boosts the servers used last, and the tool called last, as far as the request follows on from them."""

    def __init__(self, index: Index) -> None:
        self._index = index

    def __call__(self, request: Request, ranking: Ranking) -> Ranking:
        query = request.query
        if not (query.recent_servers or query.recent_tools) or not len(ranking):
            return ranking
        by_server, by_tool = FOLLOW_UPS[query.relation]
        gains = {server: by_server / (1 + age) for age, server in reversed(list(enumerate(query.recent_servers)))}
        servers, ids, last = self._index.facets.servers, self._index.ids, query.recent_tools[:1]
        boost = [gains.get(servers[row], 0.0) + by_tool * (ids[row] in last) for row in ranking.rows.tolist()]
        return reordered(ranking, ranking.scores + np.array(boost, np.float32), self._index)


class Preferred:
    """Boosts tools that match a hint. The first hits may change places, but none of them drops out."""

    def __init__(self, index: Index) -> None:
        self._index = index

    def __call__(self, request: Request, ranking: Ranking) -> Ranking:
        hints = request.query.preferred
        masks = [mask for each in hints if (mask := self._matching(each, ranking)) is not None] if hints else ()
        if not masks or not len(ranking):
            return ranking
        lift: Scores = np.float32(PREFERRED_BOOST) * np.stack(masks).sum(axis=0, dtype=np.float32)
        first = min(request.query.limit, PROTECTED)
        head = reordered(ranking[:first], ranking.scores[:first] + lift[:first], self._index)
        rest = Ranking(ranking.rows[first:], ranking.scores[first:])
        tail = reordered(rest, rest.scores + lift[first:], self._index)
        scores = np.minimum.accumulate(np.concatenate([head.scores, tail.scores]))
        return Ranking(np.concatenate([head.rows, tail.rows]), scores)

    def _matching(self, hint: Filters, ranking: Ranking) -> NDArray[np.bool_] | None:
        """Return which hits match a hint: a label must be one that ranks, not one that a server gave its own tool."""
        passing = self._index.among(hint).rows
        if passing is None:
            return None
        found = passing[ranking.rows]
        if labels := (hint.categories or frozenset()) | (hint.tags or frozenset()):
            matching = found.nonzero()[0].tolist()
            rows = ranking.rows[matching].tolist()
            found[matching] = [not labels.isdisjoint(self._index.tool(row).keywords) for row in rows]
        return found


class CoUse:
    """Boosts what is usually called after the tools that this caller called last."""

    def __init__(self, index: Index, together: Together) -> None:
        self._index = index
        self._together = together

    def __call__(self, request: Request, ranking: Ranking) -> Ranking:
        shares: dict[ToolId, float] = {}
        for called in request.query.recent_tools:
            for other, share in (self._together(called) or {}).items():
                shares[other] = max(shares.get(other, 0.0), share)
        if not shares:
            return ranking
        boost = [TOGETHER_BOOST * shares.get(self._index.ids[row], 0.0) for row in ranking.rows.tolist()]
        learned = request.kept.setdefault(LEARNED, {})
        for row, lift in zip(ranking.rows.tolist(), boost, strict=True):
            learned[row] = learned.get(row, 0.0) + lift
        return reordered(ranking, ranking.scores + np.array(boost, np.float32), self._index)


class Diversity:
    """Picks greedily and penalises similarity to what is picked, for queries that need several different tools."""

    def __init__(self, index: Index) -> None:
        self._index = index

    def __call__(self, request: Request, ranking: Ranking) -> Ranking:
        dense = self._index.dense
        if not request.query.diverse or dense is None or len(ranking) < 3:
            return ranking
        vectors = dense.vectors(ranking.rows.tolist())
        order = _spread(ranking.scores, vectors @ vectors.T, request.query.limit)
        return replace(ranking, rows=ranking.rows[order], scores=ranking.scores[order])


def reordered(ranking: Ranking, scores: Scores, index: Index) -> Ranking:
    """Return a ranking in the order of other scores."""
    return rank(scores.astype(np.float32), ranking.rows, index.ids, len(ranking))


def _spread(scores: Scores, likeness: NDArray[np.float32], limit: int) -> list[int]:
    span = max(float(scores.max() - scores.min()), 1e-6)
    chosen, rest = [0], list(range(1, len(scores)))
    while rest and len(chosen) < limit:
        best = max(rest, key=lambda i: (float(scores[i]) / span - DIVERSITY * float(likeness[i, chosen].max()), -i))
        chosen.append(best)
        rest.remove(best)
    return chosen + rest
