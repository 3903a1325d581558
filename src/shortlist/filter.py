"""The library's front door: the best tools for this turn, out of any catalog, for any framework."""

import logging
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from time import monotonic, perf_counter
from typing import Any, Literal, Self, TypeAlias, TypedDict, Unpack

import anyio.to_thread

from shortlist.catalog.catalog import Catalog
from shortlist.catalog.naming import Names
from shortlist.context import Context, read_context
from shortlist.errors import ModelError, ToolNotFound
from shortlist.index.cache import SqliteVectorCache
from shortlist.index.index import Change, Index, VectorCache
from shortlist.library.models import Embedding, query_vectors, static_model
from shortlist.library.options import Choices, FilterOptions
from shortlist.library.results import FilterResult, Metrics, ScoredTool, Stats
from shortlist.library.saved import SavedIndexes
from shortlist.library.scores import chances
from shortlist.library.sources import Source, SourceReading, read_source
from shortlist.library.vectors import CAPACITY, COOL_DOWN_SECONDS
from shortlist.library.view import Narrowing, View
from shortlist.models import Query, SearchResult, Tool, ToolId
from shortlist.paths import cache_folder
from shortlist.remote import ProviderUnavailable
from shortlist.search.confidence import NOTHING
from shortlist.search.explain import Explanation
from shortlist.search.fusion import DEPTH
from shortlist.search.rerank import RERANKED, Reranker, reranked
from shortlist.search.searcher import Options, Searcher
from shortlist.selection import LIMIT as SELECTED
from shortlist.selection import LanguageModel, Selection, Selector, model_from_environment

log = logging.getLogger(__name__)

BY_VECTORS = ("hybrid", "dense")
"""The modes of search that ask for a query's vector."""

Chat: TypeAlias = str | Mapping[str, Any] | Sequence[Any]


class SetupChoices(TypedDict, total=False):
    """The settings of a filter that are fixed once it is made."""

    include_server_description: bool
    reranker: Reranker | None
    rerank_top: int
    vector_cache: VectorCache | Literal["default"] | None
    cache_capacity: int
    save_index: bool
    wait: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """How a filter is made."""

    include_server_description: bool = True
    """Whether a server's own words help to find each of its tools."""
    reranker: Reranker | None = None
    rerank_top: int = RERANKED
    vector_cache: VectorCache | Literal["default"] | None = "default"
    """Where documents' vectors are kept between starts; None keeps none."""
    cache_capacity: int = CAPACITY
    save_index: bool = True
    wait: bool = True
    """False answers at once by words, and by vectors as soon as they are made."""


class ToolFilter:
    """Finds the tools for a turn; safe to share between threads and tasks."""

    def __init__(
        self,
        tools: Source,
        *,
        embedding: Embedding = "auto",
        defaults: FilterOptions | Mapping[str, Any] | None = None,
        **setup: Unpack[SetupChoices],
    ) -> None:
        self._setup = Setup(**setup)
        self.defaults = defaults if isinstance(defaults, FilterOptions) else FilterOptions(**(defaults or {}))
        self._lock = threading.Lock()
        self._vectors, self._trouble = query_vectors(embedding, self._setup.cache_capacity)
        model_id = self._vectors.model_id if self._vectors is not None else None
        self._saved = SavedIndexes(cache_folder() / "indexes", model_id) if self._setup.save_index else None
        self._view = self._viewed(read_source(tools))
        self._searcher = self._make_searcher(self._view.catalog)
        self._words: Searcher | None = None
        self._worker: threading.Thread | None = None
        self._checked_at = 0.0
        if self._is_answered():
            self.prepare(wait=self._setup.wait)

    @property
    def catalog(self) -> Catalog:
        return self._view.catalog

    @property
    def problems(self) -> tuple[str, ...]:
        """Say what was left out of the source, and why."""
        return self._view.problems

    @property
    def names(self) -> Names:
        """Give the names that models call the tools by, in both directions."""
        return self._view.names

    def resolve(self, name: str) -> frozenset[ToolId]:
        """Find tools by id, by the name shown to models, or by their own name, which several may share."""
        return self._view.resolve(name)

    def tool(self, name: str) -> Tool:
        """Give the one tool of this id or name; raises ToolNotFound with what may be meant."""
        found = self.resolve(name)
        if len(found) != 1:
            raise ToolNotFound(name, suggestions=sorted(found) or self.similar(name))
        return self.catalog.tools[next(iter(found))]

    def similar(self, name: str) -> tuple[ToolId, ...]:
        """Give the ids that look most like this one."""
        return self._searcher.similar_names(name)

    def filter(self, query: Chat, **choices: Unpack[Choices]) -> FilterResult:
        """Give the tools for a text or a chat, best first."""
        run = _Run(replace(self.defaults, **choices))
        options, view = run.options, self._view
        narrowing = view.narrow(options)
        run.step("options", f"limit {options.limit}, {narrowing.evaluated} of {len(view.catalog)} tools")
        context = read_context(query, messages=options.context_messages, tokens=options.max_context_tokens)
        run.step("context", f"{len(context.text)} characters, {len(context.called)} tools called before")
        asked = _query(context, view, options, narrowing)
        looked = self._look_up(asked, run)
        run.step("embedding", looked.outcome)
        found, view = self._find(asked, looked, narrowing)
        run.step("search", f"{len(found.hits)} candidates, {found.confidence.level} confidence")
        found = self._rerank(found, run)
        chosen = _chosen(found, view, narrowing.always, options)
        run.step("selection", f"{len(chosen)} tools")
        return FilterResult(
            tools=chosen,
            metrics=run.metrics(narrowing.evaluated, hit=looked.hit),
            query=replace(asked, limit=options.limit),
            confidence=found.confidence,
            warnings=(*narrowing.warnings, *run.warnings, *found.notes),
            did_you_mean=found.did_you_mean,
        )

    async def afilter(self, query: Chat, **choices: Unpack[Choices]) -> FilterResult:
        """Do what `filter` does beside the event loop."""
        return await anyio.to_thread.run_sync(lambda: self.filter(query, **choices))

    def search(self, text: str, **fields: Any) -> SearchResult:
        """Run the core's own search; `fields` are those of `Query`: mode, limit, filters, collapse and so on."""
        return self._ask(Query(text=text, **fields))

    def explain(self, text: str, tool: str, **fields: Any) -> Explanation:
        """Say why a tool, by id or by name, ranks where it does for a query."""
        tool_id = self.tool(tool).id
        asked = Query(text=text, **fields)
        looked = self._look_up(asked, _Run(self.defaults))
        with self._lock:
            return self._ready(looked).explain(asked, tool_id)

    def smart_select(
        self, query: Chat, *, limit: int = SELECTED, model: LanguageModel | Literal["auto"] | None = "auto"
    ) -> Selection:
        """Let a language model pick; `auto` takes the provider whose key is in the environment, None only searches."""
        options = self.defaults
        context = read_context(query, messages=options.context_messages, tokens=options.max_context_tokens)
        asked = model_from_environment() if model == "auto" else model
        return Selector(self.catalog, self._ask, asked).select(context.text, limit)

    def update(self, tools: Source) -> Change:
        """Take up a new catalog in the place of the old: what is not in it any more is gone."""
        view = self._viewed(read_source(tools))
        self.wait()  # before the lock: the searches of others must not wait for vectors in the making
        with self._lock:
            change = self._searcher.update(view.catalog)
            self._view, self._words = view, None
        self.prepare(wait=self._setup.wait)
        return change

    def prepare(self, *, wait: bool = True) -> None:
        """Make the vectors that are missing; a refused key is an error, a provider that is down is a warning."""
        if self._searcher.embedder is None:
            self._keep()
            return
        if not wait:
            self._worker = self._searcher.prepare_in_background()
            return
        try:
            self._searcher.prepare()
            self._trouble = ""
        except ProviderUnavailable as error:
            self._failed(error)
            return
        self._keep()

    def wait(self) -> None:
        """Wait for vectors that are being made in the background."""
        if self._worker is not None:
            self._worker.join()

    def stats(self) -> Stats:
        vectors, index = self._vectors, self._searcher.index
        waiting = index.waiting if vectors is not None else 0
        return Stats(
            initialised=not waiting,
            tools=len(self.catalog),
            servers=len(self.catalog.servers),
            waiting=waiting,
            cache_size=vectors.size if vectors is not None else 0,
            cache_capacity=self._setup.cache_capacity,
            dimensions=index.dense.dimensions if index.dense is not None and vectors is not None else None,
            model=vectors.model_id if vectors is not None else None,
        )

    def clear_cache(self) -> None:
        """Forget query vectors; documents' vectors stay in their own cache."""
        if self._vectors is not None:
            self._vectors.clear()

    def close(self) -> None:
        """Let go of a provider's connections."""
        for part in (self._vectors.embedder if self._vectors is not None else None, self._setup.reranker):
            closing = getattr(part, "close", None)
            if callable(closing):
                closing()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _is_answered(self) -> bool:
        """Ask a provider once before anything depends on it; a shipped model needs no asking."""
        check = getattr(self._vectors.embedder, "check", None) if self._vectors is not None else None
        try:
            if check is not None:
                check()
        except ProviderUnavailable as error:
            self._failed(error)
            return False
        return True

    def _failed(self, error: ModelError) -> None:
        self._trouble = f"Searching by words alone: {error}"
        self._checked_at = monotonic()

    def _recover(self) -> None:
        """Try again beside the turns, now and then, what failed at the start."""
        waiting = monotonic() - self._checked_at < COOL_DOWN_SECONDS
        if self._vectors is None or waiting or (self._worker is not None and self._worker.is_alive()):
            return
        self._checked_at = monotonic()
        self._worker = threading.Thread(target=self._prepare_quietly, daemon=True)
        self._worker.start()

    def _prepare_quietly(self) -> None:
        try:
            self.prepare()
        except ModelError as error:
            self._failed(error)

    def _keep(self) -> None:
        if self._saved is not None:
            self._saved.keep(self._searcher.index)

    def _viewed(self, reading: SourceReading) -> View:
        if self._setup.include_server_description:
            return View(reading)
        return View(replace(reading, catalog=_undescribed(reading.catalog)))

    def _make_searcher(self, catalog: Catalog) -> Searcher:
        cache = self._setup.vector_cache
        if cache == "default":
            cache = SqliteVectorCache(cache_folder() / "vectors.sqlite") if self._vectors is not None else None
        index = self._saved.open(catalog) if self._saved is not None else Index.build(catalog)
        fallback = static_model() if self._vectors is not None and not self._setup.wait else None
        return Searcher(index, self._vectors, fallback=fallback, options=Options(cache=cache))

    def _look_up(self, asked: Query, run: "_Run") -> "_Vector":
        """Embed outside of the lock, so that one slow provider does not hold up the others' searches."""
        vectors = self._vectors
        ready = vectors is not None and self._searcher.model_id == vectors.model_id
        if self._trouble and not ready:
            run.warnings.append(self._trouble)
            self._recover()
        if vectors is None or not ready or asked.mode not in BY_VECTORS:
            return _Vector("words alone")
        try:
            hit = vectors.look_up(asked.text).hit
        except ModelError as error:
            run.warnings.append(f"Searching by words alone: {error}")
            return _Vector("failed", failed=True)
        return _Vector("cache hit" if hit else "cache miss", hit=hit)

    def _find(self, asked: Query, looked: "_Vector", narrowing: Narrowing) -> tuple[SearchResult, View]:
        """Search, and give the view of the catalog that was searched: it may have changed since the call began."""
        if not narrowing.evaluated:
            reason = "No tool passes the filters." if len(self.catalog) else "The catalog is empty."
            return SearchResult(query=asked, hits=(), confidence=NOTHING, notes=(reason,)), self._view
        with self._lock:
            return self._ready(looked).search(asked), self._view

    def _ask(self, asked: Query) -> SearchResult:
        run = _Run(self.defaults)
        looked = self._look_up(asked, run)
        with self._lock:
            found = self._ready(looked).search(asked)
        return replace(found, notes=(*run.warnings, *found.notes))

    def _ready(self, looked: "_Vector") -> Searcher:
        """Give what can search now: without its vectors the same index, by the weights fitted for words alone."""
        if not looked.failed:
            return self._searcher
        if self._words is None:
            self._words = Searcher(self._searcher.index)
        return self._words

    def _rerank(self, found: SearchResult, run: "_Run") -> SearchResult:
        if self._setup.reranker is None or not found.hits:
            return found
        better = reranked(found, self._setup.reranker, self._setup.rerank_top)
        run.step("rerank", f"by {self._setup.reranker.model_id}")
        return better


@dataclass(frozen=True, slots=True)
class _Vector:
    """What came of embedding a query."""

    outcome: str
    hit: bool = False
    failed: bool = False


class _Run:
    """One call: its options, its warnings, and what each step took."""

    def __init__(self, options: FilterOptions) -> None:
        self.options = options
        self.warnings: list[str] = []
        self._started = self._last = perf_counter()
        self._milliseconds: dict[str, float] = {}

    def step(self, name: str, detail: str) -> None:
        now = perf_counter()
        took = (now - self._last) * 1000
        self._milliseconds[name] = took
        self._last = now
        if self.options.debug:
            log.info("%s: %s (%.2f ms)", name, detail, took)

    def metrics(self, evaluated: int, *, hit: bool) -> Metrics:
        took = self._milliseconds
        return Metrics(
            total_milliseconds=(self._last - self._started) * 1000,
            embedding_milliseconds=took["embedding"],
            search_milliseconds=took["search"],
            rerank_milliseconds=took.get("rerank"),
            tools_evaluated=evaluated,
            cache_hit=hit,
        )


def _query(context: Context, view: View, options: FilterOptions, narrowing: Narrowing) -> Query:
    called = [tool_id for name in context.called for tool_id in sorted(view.resolve(name))]
    servers = dict.fromkeys(view.catalog.tools[tool_id].server for tool_id in called)
    return Query(
        text=context.text,
        limit=max(options.limit, DEPTH),  # chances are shared by as many, whatever is asked for
        filters=narrowing.filters,
        recent_servers=tuple(server for server in servers if server),
        recent_tools=tuple(called),
        diverse=options.diverse,
    )


def _chosen(
    found: SearchResult, view: View, always: tuple[ToolId, ...], options: FilterOptions
) -> tuple[ScoredTool, ...]:
    """Take the best up to the limit; what must be there takes the places of the weakest."""
    scores = chances([hit.score for hit in found.hits], found.confidence)
    ranked = {hit.tool.id: (score, hit.rank) for hit, score in zip(found.hits, scores, strict=True)}
    least = options.min_score if options.min_score is not None else 0.0
    must = [tool_id for tool_id in always if tool_id in view.catalog.hashes]
    others = [tool_id for tool_id, (score, _) in ranked.items() if score >= least and tool_id not in must]
    wanted = {*must, *others[: max(options.limit - len(must), 0)]}
    order = [*(tool_id for tool_id in ranked if tool_id in wanted), *(i for i in must if i not in ranked)]
    return tuple(_scored(view, tool_id, *ranked.get(tool_id, (0.0, None))) for tool_id in order)


def _scored(view: View, tool_id: ToolId, score: float, rank: int | None) -> ScoredTool:
    return ScoredTool(
        tool=view.catalog.tools[tool_id],
        name=view.names.by_id[tool_id],
        score=score,
        rank=rank,
        original=view.originals.get(tool_id),
    )


def _undescribed(catalog: Catalog) -> Catalog:
    """Give the same tools under servers that say nothing of themselves."""
    return Catalog.of(catalog.tools.values(), (replace(s, description="") for s in catalog.servers.values()))
