"""The one way in: a query to an answer, whatever is ready."""

import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from time import perf_counter
from typing import NamedTuple, TypeVar

import numpy as np

from shortlist.catalog.catalog import Catalog
from shortlist.errors import InvalidQuery, ModelError, ShortlistError, ToolNotFound
from shortlist.index.embedders import Embedder, Progress, Vectors
from shortlist.index.index import Change, Index, VectorCache, embed_cached
from shortlist.models import Confidence, Hit, Query, SearchResult, Step, ToolId
from shortlist.search.background import at_large
from shortlist.search.confidence import NOTHING, confidence_features
from shortlist.search.exemplars import EXEMPLARS, MOST_LIFT, Memory
from shortlist.search.explain import Explanation, explain
from shortlist.search.features import Evidence
from shortlist.search.fitted import Fitted, fitted_to
from shortlist.search.pipeline import Outcome, Pipeline
from shortlist.search.presets import BY_MODE, Parts, nothing_together, pipeline
from shortlist.search.request import Request
from shortlist.search.signals import HitSignals, Placed
from shortlist.search.stages import Together
from shortlist.text.clean import clean_text
from shortlist.text.expansions import Expansions
from shortlist.text.queries import analyse, texts_to_embed

T = TypeVar("T")

MAX_LIMIT = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """How a searcher is set up."""

    pipeline: str = "default"
    cache: VectorCache | None = None
    expansions: Expansions | None = None
    """What words mean here; None takes the shipped ones."""
    together: Together = nothing_together
    clauses: bool = True
    """Embed the parts of a query that asks for several things; each costs as much as a query."""
    memory: Memory | None = None
    """What was learned from use; None learns nothing."""


DEFAULTS = Options()


@dataclass(frozen=True, slots=True)
class Explained:
    """An answer, and why each of its hits is there, in their order."""

    result: SearchResult
    explanations: tuple[Explanation, ...]


class _Run(NamedTuple):
    """One query through one pipeline, with the steps before it."""

    request: Request
    outcome: Outcome
    steps: tuple[Step, ...]


class Searcher:
    """Searches a catalog; vectors may come later, and until then the words (and a fallback's vectors) answer."""

    def __init__(
        self,
        catalog: Catalog | Index,
        embedder: Embedder | None = None,
        *,
        fallback: Embedder | None = None,
        options: Options = DEFAULTS,
    ) -> None:
        self.index = catalog if isinstance(catalog, Index) else Index.build(catalog)
        self.embedder = embedder
        self._fallback = fallback
        self._options = options
        self._lock = threading.RLock()
        """Held for a search or a change of the index, never while a model works."""
        self._preparing = threading.Lock()
        self.failure: str | None = None
        dense = self.index.dense
        ready = embedder is not None and dense is not None and dense.model_id == embedder.model_id
        self._use(embedder if ready else None)

    @property
    def catalog(self) -> Catalog:
        return self.index.catalog

    @property
    def pipeline(self) -> Pipeline:
        return self._pipelines[self._options.pipeline]

    @property
    def model_id(self) -> str | None:
        """Name the model whose vectors answer now."""
        return self._active.model_id if self._active else None

    def prepare(self, progress: Progress | None = None) -> None:
        """Embed whatever has no vector yet, and wait for it; searches and updates go on meanwhile.

        The fallback's vectors, made in a moment, answer until the model's are there.
        """
        if self.embedder is None:
            return
        with self._preparing:
            if self._fallback is not None and self._active is None:
                self._embed(self._fallback, None, None)
            self._embed(self.embedder, self._options.cache, progress)

    def prepare_in_background(self, progress: Progress | None = None) -> threading.Thread:
        """Prepare in a thread of its own; a failure is kept for the notes, not raised."""
        worker = threading.Thread(target=self._prepare_quietly, args=(progress,), daemon=True)
        worker.start()
        return worker

    def _embed(self, embedder: Embedder, cache: VectorCache | None, progress: Progress | None) -> None:
        while texts := self._texts_without_vector(embedder):
            vectors = embed_cached(embedder, list(texts.values()), cache, progress)
            with self._lock:
                self.index.put_vectors(embedder, texts, vectors)
                self._use(embedder)
        if self._options.memory is not None:
            self._options.memory.follow(embedder)

    def update(self, catalog: Catalog) -> Change:
        """Take up a changed catalog; new tools are found by their words until their vectors come."""
        with self._lock:
            change = self.index.update(catalog)
            if self._active is not None and self._active is self._fallback:
                self.index.embed(self._active)
            self._use(self._active)  # what was derived from the old words: spellings, comparison pipelines
        return change

    def search(self, query: Query) -> SearchResult:
        """Find the best tools for a query."""
        return self._run(query, Searcher._answer)

    def explained(self, query: Query) -> Explained:
        """Search, and say of every hit why it is there."""
        return self._run(query, Searcher._explained)

    def explain(self, query: Query, tool_id: ToolId) -> Explanation:
        """Say why a tool ranks where it does, found or not."""
        if tool_id not in self.index.rows:
            raise ToolNotFound(tool_id, suggestions=self.similar_names(tool_id))
        return self._run(query, lambda searcher, run: searcher._explanation(run, tool_id))

    def _run(self, query: Query, finish: Callable[["Searcher", _Run], T]) -> T:
        """Ask the query's pipeline, and finish its outcome before the index can change."""
        check(query)
        pipeline, started = self._pipeline_for(query), perf_counter()
        try:
            asker, vectors = self._active, self._vectors(query, pipeline)
        except ModelError as error:
            return self._without_model(error)._run(query, finish)
        took = (perf_counter() - started) * 1000
        steps = (Step("embed", took, len(vectors)),) if vectors is not None else ()
        with self._lock:
            started = perf_counter()
            request = self._request(query, vectors if asker is self._active else None)
            read = Step("read", (perf_counter() - started) * 1000, len(request.analysed.terms))
            return finish(self, _Run(request, pipeline.run(request), (*steps, read)))

    def _without_model(self, error: ModelError) -> "Searcher":
        """Give a searcher of the same index by the weights fitted for words alone, which says why."""
        with self._lock:
            words = Searcher(self.index, options=self._options)
        words._lock = self._lock
        words.failure = f"Searching by words alone: {error}"
        return words

    def _answer(self, run: _Run) -> SearchResult:
        query, outcome = run.request.query, run.outcome
        evidence, logits = self._evidence(run.request, outcome)
        return SearchResult(
            query=query,
            hits=self._hits(outcome, evidence),
            confidence=self._confidence(run.request, outcome, evidence, logits),
            steps=(*run.steps, *outcome.steps),
            notes=self._notes(),
            did_you_mean=self._parts.lexical.look_up(run.request).respelled,
        )

    def _explained(self, run: _Run) -> Explained:
        result = self._answer(run)
        return Explained(result, tuple(self._explanation(run, hit.tool.id) for hit in result.hits))

    def _explanation(self, run: _Run, tool_id: ToolId) -> Explanation:
        return explain(self._parts, run.request, run.outcome, self.index.rows[tool_id])

    def similar_names(self, name: str, limit: int = 3) -> tuple[ToolId, ...]:
        """Give the ids that look most like this one."""
        from rapidfuzz import process  # noqa: PLC0415

        found = process.extract(name, list(self.index.rows), limit=limit, score_cutoff=60)
        return tuple(found_id for found_id, _, _ in found)

    def evidence(self, query: Query) -> Evidence:
        """Give the features of a query's candidates, for fitting."""
        request = self._request(query, self._vectors(query, self.pipeline))
        outcome = self.pipeline.run(request)
        return self._evidence(request, outcome)[0]

    def _use(self, embedder: Embedder | None) -> None:
        self._active = embedder
        self._fitted: Fitted = fitted_to(embedder)
        self._parts = Parts.of(self.index, self._fitted, self._options.together, self._options.memory)
        self._pipelines = _Pipelines(self._parts)

    def _prepare_quietly(self, progress: Progress | None) -> None:
        try:
            self.prepare(progress)
        except ShortlistError as error:
            self.failure = str(error)

    def _texts_without_vector(self, embedder: Embedder) -> dict[int, str]:
        with self._lock:
            texts = self.index.texts_without_vector(embedder)
            if not texts:
                self.index.put_vectors(embedder, (), np.zeros((0, embedder.dimensions), np.float32))
                self._use(embedder)
            return texts

    def _request(self, query: Query, vectors: Vectors | None) -> Request:
        analysed = analyse(query.text, self._options.expansions)
        return Request(query, analysed, self.index.mask(query.filters), vectors)

    def texts_to_embed(self, text: str) -> tuple[str, ...]:
        """Give the texts whose vectors a query needs."""
        return texts_to_embed(text, self._options.expansions, apart=self._options.clauses)

    def _vectors(self, query: Query, pipeline: Pipeline) -> Vectors | None:
        if self._active is None or "dense" not in pipeline.retrievers:
            return None
        return query_vectors(self._active, self.texts_to_embed(query.text))

    def _pipeline_for(self, query: Query) -> Pipeline:
        if query.mode == "hybrid":
            return self._pipelines[query.pipeline] if query.pipeline else self.pipeline
        return self._pipelines[BY_MODE[query.mode]]

    def _evidence(self, request: Request, outcome: Outcome) -> tuple[Evidence, np.ndarray]:
        evidence = outcome.fused.evidence
        if evidence is None:
            rows = outcome.fused.ranking.rows.astype(np.int64)
            evidence = self._parts.reader(request, outcome.signals, rows)
        logits = outcome.fused.logits
        if logits is None:
            logits = evidence.candidates.dot(self._fitted.fusion.for_query(evidence))
        learned = outcome.signals.get(EXEMPLARS)
        return evidence, logits if learned is None else logits + learned[evidence.rows]

    def _confidence(self, request: Request, outcome: Outcome, evidence: Evidence, logits: np.ndarray) -> Confidence:
        if not len(outcome.ranking):
            return NOTHING
        first = int(outcome.ranking.rows[0])
        learned = outcome.signals.get(EXEMPLARS)
        proven = float(learned[first]) / MOST_LIFT if learned is not None else 0.0
        features = confidence_features(
            evidence,
            logits,
            first,
            parameters=self.index.lexical.fills(first, "parameters"),
            at_large=at_large(self._fitted.background, request),
        )
        return self._fitted.calibration.judge(features, proven)

    def _hits(self, outcome: Outcome, evidence: Evidence) -> tuple[Hit, ...]:
        ranking, tools, ids = outcome.ranking, self.index.catalog.tools, self.index.ids
        families = ranking.families
        candidates = evidence.rows
        placed = Placed(candidates, {name: scores[candidates] for name, scores in outcome.signals.items()})
        hits = [
            Hit(
                tools[ids[row]],
                score,
                position,
                tuple([ids[other] for other in families[row]]) if families else (),
                HitSignals(placed, row),
            )
            for position, (row, score) in enumerate(ranking, 1)
        ]
        return tuple(hits)

    def _notes(self) -> tuple[str, ...]:
        notes = []
        if self.embedder is not None and self._active is not self.embedder:
            instead = "words and a small static model" if self._active else "words alone"
            notes.append(f"The model is not ready yet: this answer comes from {instead}.")
        elif self._active is not None and self.index.waiting:
            notes.append(f"{self.index.waiting} new tools wait for their vectors: they are found by their words.")
        if self.failure:
            notes.append(self.failure)
        return tuple(notes)


class _Pipelines:
    """Builds pipelines when they are first asked for."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._built: dict[str, Pipeline] = {}

    def __getitem__(self, name: str) -> Pipeline:
        if name not in self._built:
            self._built[name] = pipeline(name, self._parts)
        return self._built[name]


def query_vectors(embedder: Embedder, texts: Iterable[str]) -> Vectors:
    """Embed the texts of one query: the whole of it, and what it asks for apart."""
    return np.array([embedder.embed_query(text) for text in texts], np.float32)


def check(query: Query) -> None:
    """Refuse what cannot be answered, saying what would do."""
    if not 1 <= query.limit <= MAX_LIMIT:
        raise InvalidQuery(f"limit is {query.limit}; it goes from 1 to {MAX_LIMIT}.")
    if not clean_text(query.text).strip():
        raise InvalidQuery("The query is empty. Say what the tool should do, in a few words.")
