"""Learning from use: queries that led to a call boost the called tools for similar queries.

What a caller did counts for itself. Others of its group count only where they agree: of what they say for a tool,
the loudest is left out, so one caller alone lifts nothing for anybody else. docs/learning.md says what that bounds.
"""

import math
import threading
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from shortlist.index.embedders import Embedder, Vectors
from shortlist.index.embedding import VectorCache, known_vectors
from shortlist.index.index import Index
from shortlist.index.ports import NOTHING, Candidates, Rows
from shortlist.index.vectors import ExactVectorIndex
from shortlist.models import Exemplar, Scores, ToolId
from shortlist.search.pipeline import LEARNED, Found, Fuse, Fused, Request, rank
from shortlist.text.queries import AnalysedQuery, analyse

EXEMPLARS = "exemplars"
"""The retriever's name; its boost is added to the fused scores unchanged."""
MOST_LIFT = 6.0
"""The maximum boost in log-odds; a first hit that leads by more stays first."""
DOUBT = 0.3
"""The share of the boost that no tool gets: a few distant exemplars have little effect on the ranking."""
NEAREST = 12
"""The number of nearest exemplars that count …"""
NEAREST_OF_ANOTHER = 4
"""… and the maximum of one other caller."""
EASE = 0.05
"""How fast the weight falls with similarity: at a cosine of 0.9 to a third, at 0.5 to a twentieth."""


class Likeness(Protocol):
    """Computes the similarity of a query to each exemplar, 0 to 1; None if that is not possible."""

    def __call__(self, request: Request, model_id: str | None, /) -> Scores | None: ...


class LikeVectors:
    """The cosine of the queries' vectors."""

    def __init__(self, embedder: Embedder, vectors: Vectors) -> None:
        self._index = ExactVectorIndex.of(embedder.model_id, vectors)

    def __call__(self, request: Request, model_id: str | None) -> Scores | None:
        if request.vectors is None or model_id != self._index.model_id:
            return None
        likeness: Scores = self._index.cosines(request.vectors[:1])[0].clip(0, 1)
        return likeness


class LikeWords:
    """The cosine of the queries' terms, rare ones first: for a search without a model."""

    def __init__(self, queries: Sequence[AnalysedQuery]) -> None:
        self._size = len(queries)
        self._frequency = Counter(asked.term for query in queries for asked in query.terms)
        postings: defaultdict[str, list[tuple[int, float]]] = defaultdict(list)
        for row, query in enumerate(queries):
            for term, weight in self._weights(query).items():
                postings[term].append((row, weight))
        self._postings = {
            term: (np.array([row for row, _ in found]), np.array([weight for _, weight in found], np.float32))
            for term, found in postings.items()
        }

    def __call__(self, request: Request, _model_id: str | None) -> Scores | None:
        likeness = np.zeros(self._size, np.float32)
        for term, weight in self._weights(request.analysed).items():
            if term in self._postings:
                rows, weights = self._postings[term]
                likeness[rows] += np.float32(weight) * weights
        return likeness

    def _weights(self, query: AnalysedQuery) -> dict[str, float]:
        raw = {a.term: a.weight * math.log1p(self._size / (0.5 + self._frequency[a.term])) for a in query.terms}
        length = math.sqrt(sum(weight * weight for weight in raw.values())) or 1.0
        return {term: weight / length for term, weight in raw.items()}


class Said(NamedTuple):
    """The evidence of one exemplar for its tool."""

    tool: ToolId
    caller: str
    strength: float


@dataclass(frozen=True, slots=True)
class Shelf:
    """The exemplars of one group."""

    tools: tuple[ToolId, ...]
    weights: Scores
    callers: tuple[str, ...]
    said_by: NDArray[np.intp]
    """Each exemplar's caller, by its place among the callers."""
    likeness: Likeness

    def lifts(self, request: Request, model_id: str | None) -> dict[ToolId, float]:
        """Distribute the boost among the tools of the nearest exemplars."""
        likeness = self.likeness(request, model_id)
        if likeness is None:
            return {}
        asker = request.query.asker.name
        offers = self._offers(self.weights * EASE * likeness / (1 + EASE - likeness), asker)
        heard = list(islice(_backed(offers, asker), NEAREST))
        support = {tool: believed(heard, tool, asker) for tool in dict.fromkeys(said.tool for said in heard)}
        total = sum(support.values()) + DOUBT
        return {tool: MOST_LIFT * strength / total for tool, strength in support.items()}

    def _offers(self, strengths: Scores, asker: str) -> list[Said]:
        """Return the strongest of each caller, more of the asker's own than of another's, the strongest first."""
        most = np.array([NEAREST if caller == asker else NEAREST_OF_ANOTHER for caller in self.callers])
        order = np.argsort(-strengths, kind="stable")
        order = order[: np.count_nonzero(strengths > 0)]
        said_by = self.said_by[order]
        rows = order[_places(said_by, len(self.callers)) < most[said_by]]
        return [Said(self.tools[row], self.callers[self.said_by[row]], float(strengths[row])) for row in rows.tolist()]


def _backed(offers: Sequence[Said], asker: str) -> Iterator[Said]:
    """Drop tools that only one other caller has called: they get no boost and would displace others."""
    backers: defaultdict[ToolId, set[str]] = defaultdict(set)
    for said in offers:
        backers[said.tool].add(said.caller)
    return (said for said in offers if asker in backers[said.tool] or len(backers[said.tool]) > 1)


def believed(heard: Iterable[Said], tool: ToolId, asker: str) -> float:
    """Sum the evidence for a tool: all of the caller's own, and of the others all but the strongest.

    Another caller counts at most as one perfect match, however often it repeats itself.
    """
    by_caller: defaultdict[str, float] = defaultdict(float)
    for said in heard:
        if said.tool == tool:
            by_caller[said.caller] += said.strength
    own = by_caller.pop(asker, 0.0)
    others = [min(strength, 1.0) for strength in by_caller.values()]
    return own + sum(others) - max(others, default=0.0)


class Memory:
    """What was learned from use, ready to be compared with queries.

    `teach` and `follow` embed, so they belong beside the requests; searches read whatever is ready.
    """

    def __init__(self, cache: VectorCache | None = None) -> None:
        self._cache = cache
        self._lock = threading.Lock()
        self._exemplars: tuple[Exemplar, ...] = ()
        self._embedder: Embedder | None = None
        self._shelves: Mapping[str, Shelf] = {}
        self.taught = 0
        """A counter of changes, so that a searcher knows when to read again."""

    def __len__(self) -> int:
        return len(self._exemplars)

    def teach(self, exemplars: Iterable[Exemplar]) -> None:
        """Replace all exemplars."""
        with self._lock:
            self._exemplars = tuple(exemplars)
            self._shelves = self._arranged()
            self.taught += 1

    def follow(self, embedder: Embedder | None) -> None:
        """Compare by another model from now on."""
        with self._lock:
            if embedder is not self._embedder:
                self._embedder = embedder
                self._shelves = self._arranged()

    def lifts(self, request: Request, model_id: str | None) -> Mapping[ToolId, float]:
        """Return the boost of each tool for a request, in the units of fused scores."""
        shelf = self._shelves.get(request.query.asker.group)
        return shelf.lifts(request, model_id) if shelf else {}

    def _arranged(self) -> dict[str, Shelf]:
        groups: defaultdict[str, list[Exemplar]] = defaultdict(list)
        for exemplar in sorted(self._exemplars, key=lambda e: (e.by.name, e.tool, e.query)):
            groups[exemplar.by.group].append(exemplar)
        return {group: self._shelf(exemplars) for group, exemplars in groups.items()}

    def _shelf(self, exemplars: Sequence[Exemplar]) -> Shelf:
        names = dict.fromkeys(exemplar.by.name for exemplar in exemplars)
        callers = {name: place for place, name in enumerate(names)}
        return Shelf(
            tools=tuple(exemplar.tool for exemplar in exemplars),
            weights=np.array([exemplar.weight for exemplar in exemplars], np.float32),
            callers=tuple(callers),
            said_by=np.array([callers[exemplar.by.name] for exemplar in exemplars], np.intp),
            likeness=self._likeness([exemplar.query for exemplar in exemplars]),
        )

    def _likeness(self, queries: Sequence[str]) -> Likeness:
        if self._embedder is None:
            return LikeWords([analyse(query) for query in queries])
        return LikeVectors(self._embedder, embed_queries(self._embedder, queries, self._cache))


class ExemplarRetriever:
    """Finds the tools that exemplars boost."""

    def __init__(self, index: Index, memory: Memory) -> None:
        self._index = index
        self._memory = memory

    def retrieve(self, request: Request, limit: int) -> Candidates:  # noqa: ARG002 - few are lifted, and all count
        lifts = self._lifts(request)
        if not lifts:
            return NOTHING
        rows = np.array(sorted(lifts), np.int64)
        return Candidates(rows, np.array([lifts[row] for row in rows.tolist()], np.float32), len(rows))

    def score(self, request: Request, rows: Rows) -> Scores:
        lifts = self._lifts(request)
        scores = np.zeros(len(rows), np.float32)
        if lifts:
            scores[:] = [lifts.get(row, 0.0) for row in rows.tolist()]
        return scores

    def _lifts(self, request: Request) -> dict[int, float]:
        """Return the boosts of the rows that pass the filters."""
        found: dict[int, float] | None = request.kept.get(self)
        if found is None:
            model_id = self._index.dense.model_id if self._index.dense else None
            lifts = self._memory.lifts(request, model_id)
            rows, mask = self._index.rows, request.among.rows
            known = {rows[tool]: lift for tool, lift in lifts.items() if tool in rows and lift > 0}
            found = {row: lift for row, lift in known.items() if mask is None or mask[row]}
            request.kept[self] = found
        return found


class LiftedFusion:
    """Another fusion, plus the boosts of exemplars."""

    def __init__(self, fuse: Fuse, ids: Sequence[ToolId]) -> None:
        self._fuse = fuse
        self._ids = ids

    def __call__(self, request: Request, found: Found) -> Fused:
        fused = self._fuse(request, found)
        lift = found.signals.get(EXEMPLARS)
        if lift is None or not lift.any():
            return fused
        request.kept[LEARNED] = dict(zip(found.rows.tolist(), lift.tolist(), strict=True))
        rows = fused.ranking.rows
        lifted = rank(fused.ranking.scores + lift[found.rows.searchsorted(rows)], rows, self._ids, len(rows))
        return fused._replace(ranking=lifted)


def embed_queries(embedder: Embedder, queries: Sequence[str], cache: VectorCache | None) -> Vectors:
    """Embed queries as queries, each distinct one once, and not at all if the cache has it."""
    place = f"{embedder.model_id}/queries"  # apart from documents: some models embed the two differently
    distinct = list(dict.fromkeys(queries))
    known = known_vectors(embedder, place, distinct, cache)
    fresh = {query: embedder.embed_query(query) for query in distinct if query not in known}
    if cache is not None:
        cache.put(place, fresh)
    known = {**known, **fresh}
    return np.stack([known[query] for query in queries]) if queries else np.zeros((0, embedder.dimensions), np.float32)


def _places(callers: NDArray[np.intp], count: int) -> NDArray[np.intp]:
    """Return for each exemplar how many of the same caller precede it."""
    grouped = np.argsort(callers, kind="stable")
    sizes = np.bincount(callers, minlength=count)
    places = np.empty(len(callers), np.intp)
    places[grouped] = np.arange(len(callers)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    return places
