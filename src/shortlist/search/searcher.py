"""From a query to an answer, over an index that is replaced but never changed: many threads may search at once."""

import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import count, repeat
from time import perf_counter
from typing import NamedTuple, TypeVar

import numpy as np

from shortlist.catalog.catalog import Catalog
from shortlist.errors import InvalidQuery, ModelError, ShortlistError, ToolNotFound
from shortlist.index.embedders import Embedder, Progress, Vectors
from shortlist.index.embedding import VectorCache, embed_cached
from shortlist.index.index import Index, IndexChange, as_it_is
from shortlist.index.ports import Among
from shortlist.index.saved import SavedCopies
from shortlist.index.vectors import QueryVectors, query_vectors, texts_to_read
from shortlist.models import Confidence, Hit, OtherAsk, Query, SearchResult, Step, ToolId
from shortlist.search.caution import JUDGED_ACTIONS, Judged, by_head, following, heads_in, without_action
from shortlist.search.chats import nearest
from shortlist.search.copies import CopyFinder, without_copies
from shortlist.search.doubt import as_other, weighed
from shortlist.search.exemplars import EXEMPLARS, MOST_LIFT, Memory
from shortlist.search.explain import Explained, Explanation, every_hit, explain, explain_answer
from shortlist.search.families import ANY_ORDER, NO_COPIES, Copies, ServerOrder
from shortlist.search.fitted import Fitted, fitted_to
from shortlist.search.fusion import NO_MATCH, as_asked, at_large, confidence_features, missing_product
from shortlist.search.pipeline import ACTING, DEPTH, Evidence, HitSignals, Pipeline, PipelineRun, Request, Together
from shortlist.search.presets import BY_MODE, Parts, nothing_together, pipeline
from shortlist.search.rerank import RERANKED, Reranker, reranked
from shortlist.search.spelling import Spelled, respelled
from shortlist.search.wishes import answer_each, serve_each
from shortlist.text.asks import Ask
from shortlist.text.kinds import with_kinds
from shortlist.text.queries import (
    READING_WEIGHTS,
    Expansions,
    Wish,
    analyse_ask,
    ask_of,
    asked_text,
    is_glossed,
    may_err,
    query_of,
    texts_to_embed,
    wishes,
)
from shortlist.text.tokens import clean_text, distinct_words, one_line, typed_text

T = TypeVar("T")

MOST_ROUNDS = 5
"""How often vectors are completed for tools that came while others were embedded, before the model takes over."""
MAX_LIMIT = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchOptions:
    """How a searcher is set up."""

    pipeline: str = "default"
    cache: VectorCache | None = None
    expansions: Expansions | None = None
    """Expansions of abbreviations and synonyms; None uses the bundled ones."""
    together: Together = nothing_together
    """Which tools are called after which."""
    order: ServerOrder = ANY_ORDER
    """Which servers' tools are the originals of copies on others, and which servers are interchangeable."""
    clauses: bool = True
    """Embed the parts of a query that asks for several things; each costs as much as a query."""
    memory: Memory | None = None
    """What was learned from use; None learns nothing."""
    reranker: Reranker | None = None
    """Scores the best hits again."""
    rerank_top: int = RERANKED
    arrange: Callable[[Index], Index] = as_it_is
    keep: Callable[[Index], None] | None = None
    """What prepares an index whose vectors are complete for searching, and what saves it."""
    copies: SavedCopies | None = None


DEFAULTS = SearchOptions()


@dataclass(frozen=True, slots=True)
class _Ready:
    """One version of the index with everything that is derived from it; replaced as a whole."""

    index: Index
    embedder: Embedder | None
    """The model whose vectors answer now."""
    fitted: Fitted
    parts: Parts
    taught: int
    uncopied: "_Ready | None"
    """The same where copies do not count; None where there are none."""
    _pipelines: dict[str, Pipeline] = field(default_factory=dict)

    @classmethod
    def of(
        cls, index: Index, embedder: Embedder | None, options: SearchOptions, copies: Copies = NO_COPIES
    ) -> "_Ready":
        fitted, taught = fitted_to(embedder), options.memory.taught if options.memory is not None else 0

        def ready(index: Index, uncopied: "_Ready | None") -> "_Ready":
            parts = Parts.of(index, fitted, options.expansions)
            known = replace(parts, together=options.together, memory=options.memory, order=options.order, copies=copies)
            return cls(index, embedder, fitted, known, taught, uncopied)

        return ready(index, ready(without_copies(index, copies), None) if len(copies) else None)

    def answering(self, query: Query) -> tuple["_Ready", Among]:
        """Return what answers a query, and which rows may: no copies of what else may answer."""
        among = self.index.among(query.filters)
        if self.uncopied is None:
            return self, among
        among, all_left_out = self.parts.copies.left_out(query, among, self.index)
        return self.uncopied if all_left_out else self, among

    def pipeline(self, name: str) -> Pipeline:
        """Return a pipeline by name, built when it is first asked for."""
        if name not in self._pipelines:
            self._pipelines[name] = pipeline(name, self.parts)
        return self._pipelines[name]


class _Search(NamedTuple):
    """One query through one pipeline, with the steps before it."""

    ready: _Ready
    pipeline: Pipeline
    request: Request
    run: PipelineRun
    ask: Ask
    steps: tuple[Step, ...]
    failure: str | None


class Searcher:
    """Searches a catalog. Vectors may come later; until then words, and the vectors of a fallback model, answer."""

    def __init__(
        self,
        catalog: Catalog | Index,
        embedder: Embedder | None = None,
        *,
        fallback: Embedder | None = None,
        options: SearchOptions = DEFAULTS,
    ) -> None:
        index = catalog if isinstance(catalog, Index) else Index.build(catalog)
        self.embedder = embedder
        self._fallback = fallback
        self._options = options
        self._writing = threading.Lock()
        """Held while the index is replaced, never while a model works or a query is answered."""
        self._preparing = threading.Lock()
        self.failure: str | None = None
        ready = embedder is not None and index.dense is not None and index.dense.model_id == embedder.model_id
        self._finder = CopyFinder(options.order, options.copies)
        self._copies, self._compared = self._finder.find(index), index.lexical
        self._ready = _Ready.of(index, embedder if ready else None, options, self._copies)

    @property
    def index(self) -> Index:
        """The newest index; it never changes, so hold on to it for as long as one answer takes."""
        return self._ready.index

    @property
    def catalog(self) -> Catalog:
        return self._ready.index.catalog

    @property
    def pipeline(self) -> Pipeline:
        return self._current().pipeline(self._options.pipeline)

    @property
    def model_id(self) -> str | None:
        """The model whose vectors answer now."""
        active = self._ready.embedder
        return active.model_id if active else None

    def prepare(self, progress: Progress | None = None) -> None:
        """Embed whatever has no vector yet, and wait for it; searches and updates go on meanwhile.

        The fallback's vectors are made in a moment and answer until the model's are there.
        """
        with self._preparing:
            if self.embedder is not None:
                if self._fallback is not None and self._ready.embedder is None:
                    self._embed(self._fallback, None, None)
                self._embed(self.embedder, self._options.cache, progress)
            self._keep()

    def _keep(self) -> None:
        index = self._options.arrange(known := self.index)
        with self._writing:
            if index is not known and self.index is known:
                self._use(index, self._ready.embedder)
        if self._options.keep is not None:
            self._options.keep(index)
            self._finder.keep(index)

    def prepare_in_background(self, progress: Progress | None = None) -> threading.Thread:
        """Prepare in a thread of its own; a failure is kept for the notes, not raised."""
        worker = threading.Thread(target=self._prepare_quietly, args=(progress,), daemon=True)
        worker.start()
        return worker

    def _prepare_quietly(self, progress: Progress | None) -> None:
        try:
            self.prepare(progress)
        except ShortlistError as error:
            self.failure = str(error)

    def _embed(self, embedder: Embedder, cache: VectorCache | None, progress: Progress | None) -> None:
        for attempt in count():
            index = self.index
            if not len(index) and self._stands_in(embedder):
                break  # the first tools to come are searched by the fallback's vectors, not by none
            texts = index.texts_without_vector(embedder)
            if self._ready.embedder is embedder and not texts:
                break
            vectors = embed_cached(embedder, list(texts.values()), cache, progress)
            with self._writing:
                if self.index.ids is index.ids:  # else rows have moved: the next round finds the vectors in the cache
                    rows = np.array(list(texts), np.int64)
                    fresh = self.index.with_vectors(embedder, rows, vectors)
                    # Tools that came meanwhile have no vector of the model: the fallback answers for one more round.
                    if not (fresh.waiting and self._stands_in(embedder) and attempt < MOST_ROUNDS):
                        self._use(fresh, embedder)
                elif cache is None:
                    self._use(self.index.embedded(embedder), embedder)
        if self._options.memory is not None:
            self._options.memory.follow(embedder)

    def _stands_in(self, embedder: Embedder) -> bool:
        """Return whether the fallback answers in the place of this model."""
        return embedder is not self._fallback and self._fallback is not None and self._ready.embedder is self._fallback

    def update(self, catalog: Catalog) -> IndexChange:
        """Switch to a changed catalog; new tools are found by their words until they have vectors."""
        with self._writing:
            active = self._ready.embedder
            index, change = self.index.updated(catalog)
            if active is not None and active is self._fallback:
                index = index.embedded(active)
            self._use(index, active)
        return change

    def search(self, query: Query) -> SearchResult:
        """Find the best tools for a query."""
        return self._searched(query)[0]

    def nearest(self, query: Query, vector: Vectors) -> SearchResult:
        """Rank tools by a vector that the caller has made of a whole chat; the text of the query is not read."""
        ready, among = self._current().answering(query)
        return nearest(query, vector, ready.index, among)

    def _searched(self, query: Query) -> tuple[SearchResult, dict[Wish, SearchResult]]:
        """Search; also return the answers to its wishes, and to what else may be asked."""
        ask, other = self._asks(query)
        query = replace(query, beside_paste=True) if ask.characters else query
        if other is None:
            return self._served(query, ask)
        deep = replace(query, limit=max(query.limit, DEPTH), other=None)  # chances are shared by as many on every page
        result, answers = self._served(deep, ask)
        beside, more = self._served(replace(deep, text=other.text), as_other(ask, other))
        result = replace(weighed(result, beside, other, query.limit), query=query)
        return result, {**more, Wish(other.text): beside, **answers}

    def _asks(self, query: Query) -> tuple[Ask, OtherAsk | None]:
        """Read what a query asks, and what else it may ask, as its caller says who has read a message before."""
        ask = ask_of(typed_text(query.text))
        other = query.other if query.beside_paste else query.other or ask.other
        return ask, other if query.mode == "hybrid" else None

    def _served(self, query: Query, ask: Ask) -> tuple[SearchResult, dict[Wish, SearchResult]]:
        result, answers = self._run(query, self._answer, ask), dict[Wish, SearchResult]()
        meant = respelled(ask.text, result.did_you_mean) if result.did_you_mean else ask.text
        if query.mode == "hybrid" and (apart := wishes(meant)):
            found = answer_each(query, apart, partial(self._run, finish=self._answer))
            result, answers = serve_each(result, apart, found), dict(zip(apart, found, strict=True))
        if self._options.reranker is not None:
            result = reranked(result, self._options.reranker, self._options.rerank_top)
        return result, answers

    def explained(self, query: Query, choose: Callable[[SearchResult], Sequence[ToolId]] = every_hit) -> Explained:
        """Search, and explain every hit or other tools, each for what it was found for."""
        (result, answers), (ask, other) = self._searched(query), self._asks(query)
        read = {other.text: as_other(ask, other)} if other is not None else {}

        def explanations(asked: Query, tools: Sequence[ToolId]) -> list[Explanation]:
            return self._run(asked, lambda search: [_explanation(search, tool) for tool in tools], read.get(asked.text))

        return explain_answer(result, answers, choose(result), explanations)

    def explain(self, query: Query, tool_id: ToolId) -> Explanation:
        """Explain the rank of a tool, found or not."""
        if tool_id not in self.index.rows:
            raise ToolNotFound(tool_id, suggestions=self.similar_names(tool_id))
        return self.explained(query, lambda _: (tool_id,)).explanations[0]

    def similar_names(self, name: str, limit: int = 3) -> tuple[ToolId, ...]:
        """Return the ids most similar to this one."""
        from rapidfuzz import process  # noqa: PLC0415

        found = process.extract(name, list(self.index.rows), limit=limit, score_cutoff=60)
        return tuple(found_id for found_id, _, _ in found)

    def evidence(self, query: Query) -> Evidence:
        """Return the features of a query's candidates, for fitting."""
        return self._run(query, lambda search: _evidence(search)[0])

    def texts_to_embed(self, query: Query) -> tuple[str, ...]:
        """Return all texts whose vectors a query needs: what it asks, or may ask, as corrected and wish by wish."""
        ready, (ask, other) = self._current(), self._asks(query)
        speller = (ready.uncopied or ready).parts.speller
        asks = (ask,) if other is None else (ask, as_other(ask, other))
        apart = [asked_text(wish.query) for each in asks for wish in wishes(speller(each.text).text)]
        asked = (*(with_kinds(query_of(each)) for each in asks), *apart)
        spellings = [reading.text for text in asked for reading in speller.readings(text)]
        return tuple(dict.fromkeys(text for each in spellings for text in texts_to_read(self._texts(each))))

    @property
    def waits(self) -> bool:
        """Whether the vectors of queries come from outside of this process."""
        active = self._ready.embedder
        return isinstance(active, QueryVectors) and not active.is_local

    def fetch(self, query: Query) -> None:
        """Ask for the vectors of a query ahead of its search, which finds them in the cache."""
        active = self._ready.embedder
        if isinstance(active, QueryVectors):
            with suppress(ModelError):  # the search reports it, and goes on with words
                active.look_up_all(self.texts_to_embed(query))

    def _texts(self, asked: str) -> tuple[str, ...]:
        return texts_to_embed(asked, self._options.expansions, apart=self._options.clauses)

    def _use(self, index: Index, embedder: Embedder | None) -> None:
        if index.lexical is not self._compared:
            self._copies, self._compared = self._finder.find(index), index.lexical
        self._ready = _Ready.of(index, embedder, self._options, self._copies)

    def _run(self, query: Query, finish: Callable[[_Search], T], ask: Ask | None = None) -> T:
        """Pass a query through its pipeline, over the index as it is now; `ask` is what its text asks, where known."""
        check(query)
        started = perf_counter()
        ready, among = self._current().answering(query)
        pipeline = ready.pipeline(self._pipeline_name(query))
        ask = ask or ask_of(typed_text(query.text))
        asked = with_kinds(query_of(ask))
        readings = ready.parts.speller.readings(asked) if may_err(query.mode, asked) else (Spelled(asked, {}),)

        def searched(reading: Spelled) -> _Search:
            vectors, steps, failure = self._embedded(ready, pipeline, query, reading.text, started)
            answering = ready if failure == self.failure else _Ready.of(ready.index, None, self._options)
            read_at = perf_counter()
            analysed = analyse_ask(reading.text, self._options.expansions)
            request = Request(query, analysed, among, vectors, reading.corrected, reading.likelihood)
            steps = (*steps, Step("read", (perf_counter() - read_at) * 1000, len(analysed.terms)))
            parts = pipeline if answering is ready else answering.pipeline(pipeline.name)
            return _Search(answering, parts, request, parts.run(request), ask, steps, failure)

        return finish(searched(readings[0]) if len(readings) == 1 else max(map(searched, readings), key=_likelihood))

    def _embedded(
        self, ready: _Ready, pipeline: Pipeline, query: Query, text: str, started: float
    ) -> tuple[Vectors | None, tuple[Step, ...], str | None]:
        """Embed a reading of a query where its pipeline needs vectors; say where the model fails."""
        if ready.embedder is None or "dense" not in pipeline.retrievers:
            return None, (), self.failure
        try:
            embedder = ready.embedder.reading(query) if isinstance(ready.embedder, QueryVectors) else ready.embedder
            vectors = self._vectors(embedder, ready.fitted, text)
        except ModelError as error:
            return None, (), f"Using lexical search only: {error}"
        return vectors, (Step("embed", (perf_counter() - started) * 1000, len(vectors)),), self.failure

    def _vectors(self, embedder: Embedder, fitted: Fitted, text: str) -> Vectors:
        """Embed a query; the glosses of another language make one vector."""
        vectors = query_vectors(embedder, self._texts(text))
        if is_glossed(text):
            moved = fitted.as_english(np.array(READING_WEIGHTS, np.float32) @ vectors)
            return np.asarray(moved / max(float(np.linalg.norm(moved)), 1e-9), np.float32)[None]
        return vectors

    def _current(self) -> _Ready:
        ready, memory = self._ready, self._options.memory
        if memory is not None and memory.taught != ready.taught:
            with self._writing:
                self._use(self.index, self._ready.embedder)
                ready = self._ready
        return ready

    def _pipeline_name(self, query: Query) -> str:
        return query.pipeline or self._options.pipeline if query.mode == "hybrid" else BY_MODE[query.mode]

    def _answer(self, search: _Search) -> SearchResult:
        request, (hits, confidence), reading = search.request, _judged(search), search.request.analysed.reading
        if confidence.level == "none" and hits and request.query.mode == "hybrid":
            hits, confidence = self._by_head(search, (hits, confidence))
        return SearchResult(
            query=request.query,
            hits=hits,
            confidence=confidence,
            steps=(*search.steps, *search.run.steps),
            notes=(*self._notes(search), *((reading.note,) if reading is not None else ())),
            did_you_mean=request.corrected,
        )

    def _by_head(self, search: _Search, whole: Judged) -> Judged:
        none_below, parts = search.ready.fitted.calibration.none_below, search.ready.parts
        heads = heads_in(search.request, parts.index, parts.lexical.stand_ins, whole)
        found = [self._run(replace(search.request.query, text=head.text), _judged) for head in heads]
        judged = [by_head(whole, of, none_below, is_whole=head.is_whole) for head, of in zip(heads, found, strict=True)]
        best = max(judged, key=lambda each: (each[1].level != "none", each[1].probability), default=whole)
        return following(search.request.query, best)

    def _notes(self, search: _Search) -> tuple[str, ...]:
        ready, failure = search.ready, search.failure
        if failure and failure != self.failure:
            return (failure,)
        notes = []
        if self.embedder is not None and ready.embedder is not self.embedder:
            instead = "words and a small static model" if ready.embedder else "words alone"
            notes.append(f"The model is not ready yet: this answer comes from {instead}.")
        elif ready.embedder is not None and ready.index.waiting:
            notes.append(f"{ready.index.waiting} new tools have no vectors yet: they are found by their words.")
        if ready.embedder is not None and (zero := ready.index.zero_vectors(search.request.among)):
            notes.append(f"The model returned zero vectors for {one_line(', '.join(zero), 200)}: found by words alone.")
        return (*notes, failure) if failure else tuple(notes)


def _judged(search: _Search) -> Judged:
    return _hits(search), _confidence(search)


def _likelihood(search: _Search) -> float:
    """Return how likely a reading is what was meant, by its answer and by its spelling."""
    return _confidence(search).probability * search.request.likelihood


def _explanation(search: _Search, tool_id: ToolId) -> Explanation:
    row = search.ready.index.rows[tool_id]
    return explain(search.ready.parts, search.pipeline, search.request, search.run, row)


def _evidence(search: _Search) -> tuple[Evidence, np.ndarray]:
    """Return what is known of the ranked candidates, and their scores before any stage but that of actions."""
    run, ready = search.run, search.ready
    evidence, logits, found = run.fused.evidence, run.fused.logits, run.found
    if evidence is None:
        found = found.only(run.fused.ranking.rows.astype(np.int64))
        evidence = ready.parts.reader(search.request, found)
    if logits is None:
        is_glossed = search.request.analysed.is_glossed
        logits = evidence.candidates.dot(ready.fitted.fusion.for_query(evidence, is_glossed=is_glossed))
    if lifts := search.request.kept.get(ACTING):
        logits, places = logits.copy(), evidence.rows.tolist()
        for row, lift in lifts.items():
            logits[places.index(row)] += np.float32(lift)
    learned = found.signals.get(EXEMPLARS)
    return evidence, logits if learned is None else logits + learned


def _confidence(search: _Search) -> Confidence:
    run, ready = search.run, search.ready
    if not len(run.ranking):
        return NO_MATCH
    (evidence, logits), first, learned = _evidence(search), int(run.ranking.rows[0]), run.found.signals.get(EXEMPLARS)
    proven = float(learned[run.found.rows == first][0]) / MOST_LIFT if learned is not None else 0.0
    takes, others = ready.index.lexical.fills(first, "parameters"), at_large(ready.fitted.background, search.request)
    features = confidence_features(evidence, logits, first, parameters=takes, at_large=others)
    judged = ready.fitted.calibration.judge(features, proven, missing_product(search.request, ready.index))
    if not JUDGED_ACTIONS.isdisjoint(distinct_words(search.request.analysed.text)):
        judged = without_action(judged, search.request, ready.index, first, ready.fitted.calibration.none_below)
    return as_asked(judged, search.ask)


def _hits(search: _Search) -> tuple[Hit, ...]:
    ranking, index, found = search.run.ranking, search.ready.index, search.run.found
    ids, rows = index.ids, ranking.rows.tolist()
    tools = map(index.catalog.tools.__getitem__, map(ids.__getitem__, rows))
    stands_for = [tuple([ids[other] for other in ranking.families[row]]) for row in rows] if ranking.families else ()
    families = stands_for or repeat(())
    signals = map(HitSignals, repeat(found), rows)
    return tuple(map(Hit, tools, ranking.scores.tolist(), count(1), families, signals))


def check(query: Query) -> None:
    """Reject a query that cannot be answered."""
    if not 1 <= query.limit <= MAX_LIMIT:
        raise InvalidQuery(f"limit is {query.limit}; use a number from 1 to {MAX_LIMIT}.")
    if not clean_text(query.text).strip():
        raise InvalidQuery("The query is empty. Say what the tool should do, in a few words.")
