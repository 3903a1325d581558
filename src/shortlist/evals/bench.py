"""The pipelines of this package as contenders: a catalog is indexed and embedded once, whatever runs on it."""

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from time import perf_counter
from typing import TypeAlias

from shortlist.catalog.catalog import Catalog
from shortlist.errors import InvalidInput, InvalidQuery
from shortlist.evals.contender import NOTHING_FOUND, Contender, Ranked, Ranker
from shortlist.evals.learned import Learned
from shortlist.evals.sweep import Make
from shortlist.index.embedders import Embedder, Progress, Vectors
from shortlist.index.embedding import VectorCache
from shortlist.index.index import Index
from shortlist.index.vectors import query_vectors
from shortlist.models import Asker, Filters, Query, SearchResult, Tool, ToolId
from shortlist.search.exemplars import Memory
from shortlist.search.fitted import fitted_to
from shortlist.search.pipeline import Pipeline, Request
from shortlist.search.presets import Parts, stackone, weighted
from shortlist.search.searcher import Searcher, SearchOptions
from shortlist.text.queries import analyse, asked_text, texts_to_embed

DENSE = "dense"

Swept: TypeAlias = Callable[[Parts, float], Pipeline]

SWEEPS: Mapping[str, Swept] = {"alpha": stackone, "dense": weighted}
"""What can be swept: StackOne's α, and the dense arm's weight in a fixed mix."""


class VectorMemory:
    """Keeps the vectors of texts for as long as the process lives."""

    def __init__(self) -> None:
        self._vectors: dict[tuple[str, str], Vectors] = {}

    def get(self, model_id: str, texts: list[str]) -> dict[str, Vectors]:
        return {text: self._vectors[model_id, text] for text in texts if (model_id, text) in self._vectors}

    def put(self, model_id: str, vectors: Mapping[str, Vectors]) -> None:
        self._vectors.update({(model_id, text): vector for text, vector in vectors.items()})


class Bench:
    """A catalog ready for any pipeline; it is embedded when the first one needs vectors."""

    def __init__(
        self,
        catalog: Catalog,
        embedder: Embedder | None = None,
        *,
        vectors: VectorCache | None = None,
        progress: Progress | None = None,
        learned: Learned | None = None,
    ) -> None:
        self.catalog = catalog
        self._learned = learned
        self._embedder = embedder
        self._vectors = vectors if vectors is not None else VectorMemory()
        self._progress = progress
        self._index = Index.build(catalog)
        self._embedded_query: Callable[[str, bool], Vectors | None] = cache(self._embed_query)

    def contender(self, pipeline: str) -> Contender:
        """Return a named pipeline behind the searcher that users have."""
        memory = Memory(self._vectors) if self._learned else None
        options = SearchOptions(pipeline=pipeline, memory=memory)
        searcher = Searcher(self._index, None, options=options)
        if self._with_vectors(searcher.pipeline):
            searcher = Searcher(self._index, self._embedder, options=options)
        if memory is not None and self._learned is not None:
            memory.follow(searcher.embedder)
            memory.teach(self._learned.exemplars)
        asker = self._learned.asker if self._learned else Asker()
        return self._named(searcher.pipeline, _searching(searcher, asker))

    def build(self, pipelines: Sequence[str], tools: Mapping[ToolId, Tool]) -> dict[str, Contender]:
        """Return pipelines over some of the tools; cached vectors are reused."""
        part = Catalog.of(tools.values(), self.catalog.servers.values())
        bench = Bench(part, self._embedder, vectors=self._vectors, progress=self._progress)
        return {name: bench.contender(name) for name in pipelines}

    def without_each(self, pipeline: str) -> dict[str, Contender]:
        """Return the pipeline without each of its parts in turn, named after the part."""
        full = self._pipeline(pipeline)
        words = Searcher(self._index, None, options=SearchOptions(pipeline=pipeline)).pipeline  # fitted without vectors
        return {part: self._running((words if part == DENSE else full).without(part)) for part in full.parts}

    def bare(self, pipeline: str) -> Contender:
        """Return a pipeline without its stages, asked every query as a whole: retrievers and fusion alone."""
        full = self._pipeline(pipeline)
        return self._running(full.without(*full.stages), apart=False)

    def swept(self, name: str) -> Make:
        """Return a function that builds a contender for each value of a swept number."""
        if name not in SWEEPS:
            raise InvalidInput(f"Cannot sweep {name!r}. There are: {', '.join(SWEEPS)}.")
        parts = self._parts()
        return lambda value: self._running(SWEEPS[name](parts, value))

    def _pipeline(self, name: str) -> Pipeline:
        self._with_vectors(Searcher(self._index, None, options=SearchOptions(pipeline=name)).pipeline)
        return Searcher(self._index, self._embedder, options=SearchOptions(pipeline=name)).pipeline

    def _parts(self) -> Parts:
        self._embed()
        return Parts.of(self._index, fitted_to(self._embedder))

    def _with_vectors(self, pipeline: Pipeline) -> bool:
        """Embed the catalog if this pipeline looks at vectors and there is a model."""
        if DENSE not in pipeline.retrievers or self._embedder is None:
            return False
        self._embed()
        return True

    def _embed(self) -> None:
        if self._embedder is not None:
            self._index = self._index.embedded(self._embedder, cache=self._vectors, progress=self._progress)

    def _embed_query(self, text: str, apart: bool) -> Vectors | None:
        return (
            query_vectors(self._embedder, texts_to_embed(asked_text(text), apart=apart))
            if self._embedder and text.strip()
            else None
        )

    def _named(self, pipeline: Pipeline, rank: Ranker) -> Contender:
        embedder = self._embedder.model_id if self._embedder and DENSE in pipeline.retrievers else ""
        return Contender(pipeline=pipeline.name, embedder=embedder, fitted_on=pipeline.fitted_on, rank=rank)

    def _running(self, pipeline: Pipeline, *, apart: bool = True) -> Contender:
        """Run a pipeline that has no searcher; it states no confidence."""

        def rank(text: str, limit: int) -> Ranked:
            vector = self._embedded_query(text, apart) if DENSE in pipeline.retrievers else None
            started = perf_counter()
            request = Request(Query(text=text, limit=limit), analyse(text), self._index.among(Filters()), vector)
            rows = pipeline.run(request).ranking.rows.tolist()
            return Ranked(
                ids=tuple(self._index.ids[row] for row in rows),
                level="high" if rows else "none",
                probability=float("nan"),
                match_probability=float("nan"),
                milliseconds=(perf_counter() - started) * 1000,
            )

        return self._named(pipeline, rank)


def _searching(searcher: Searcher, asker: Asker) -> Ranker:
    def rank(text: str, limit: int) -> Ranked:
        try:
            return _ranked(searcher.search(Query(text=text, limit=limit, asker=asker)))
        except InvalidQuery:  # an empty query finds nothing; the rest of the set still counts
            return NOTHING_FOUND

    return rank


def _ranked(result: SearchResult) -> Ranked:
    return Ranked(
        ids=tuple(hit.tool.id for hit in result.hits),
        level=result.confidence.level,
        probability=result.confidence.probability,
        match_probability=result.confidence.match_probability,
        milliseconds=result.milliseconds,
    )
