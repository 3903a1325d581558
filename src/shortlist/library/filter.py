"""The library's front door: the best tools for this turn, out of any catalog, for any framework."""

import threading
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from importlib.util import find_spec
from time import monotonic
from typing import Any, Literal, Self, TypeAlias, Unpack

import anyio.to_thread

from shortlist.catalog.catalog import Catalog
from shortlist.catalog.naming import Names
from shortlist.code.report import ProgramReport
from shortlist.errors import InvalidInput, InvalidQuery, ModelError, ToolNotFound
from shortlist.index.choosing import EmbedderChoice, choose_embedder, static_model
from shortlist.index.embedders import Vectors
from shortlist.index.index import IndexChange
from shortlist.index.shipped import open_vectors
from shortlist.index.vectors import COOL_DOWN_SECONDS
from shortlist.library.choosing import cautious, choose, is_new_topic, query_of, recalled, standing_alone
from shortlist.library.explaining import explain_turn
from shortlist.library.following import follows_a_chat, other_readings, ranked_by_chat, whole_reading
from shortlist.library.messages import read_context
from shortlist.library.options import Choices, FilterOptions
from shortlist.library.reading import SourceReading
from shortlist.library.results import FilterResult, Stats
from shortlist.library.setup import Setup, SetupChoices
from shortlist.library.sources import Source, read_source
from shortlist.library.turn import Turn
from shortlist.library.view import Narrowing, View
from shortlist.models import Query, SearchResult, Tool, ToolId
from shortlist.remote import ProviderUnavailable
from shortlist.search.explain import Explanation
from shortlist.search.fusion import NO_MATCH
from shortlist.search.opening import open_searcher
from shortlist.search.rerank import choose_reranker, reranked
from shortlist.search.searcher import Searcher, SearchOptions
from shortlist.selection import LIMIT as SELECTED
from shortlist.selection import LanguageModel, Selection, Selector, WholeCatalog, model_from_environment
from shortlist.storage.local import local_vectors
from shortlist.text.queries import read_expansions

BY_VECTORS = ("hybrid", "dense")
"""The modes of search that ask for a query's vector."""
SHOWN_PROBLEMS = 20
"""Tools that could not be read and are named in the warning about them."""

Chat: TypeAlias = str | Mapping[str, Any] | Sequence[Any]


class ToolFilter:
    """Finds the tools for a turn; safe to share between threads and tasks."""

    def __init__(
        self,
        tools: Source,
        *,
        embedder: EmbedderChoice = "auto",
        embedding: EmbedderChoice = "auto",
        defaults: FilterOptions | Mapping[str, Any] | None = None,
        **setup: Unpack[SetupChoices],
    ) -> None:
        self._setup = Setup(**setup)
        self.defaults = defaults if isinstance(defaults, FilterOptions) else FilterOptions(**(defaults or {}))
        self._lock = threading.Lock()
        chosen = embedding if embedder == "auto" else embedder  # the older word is still understood
        self._vectors, self._trouble = choose_embedder(
            chosen, dimensions=self._setup.dimensions, capacity=self._setup.cache_capacity
        )
        self._chats = self._vectors.for_chats() if self._vectors is not None else None
        self._reranker = choose_reranker(self._setup.reranker)
        self._view = self._viewed(read_source(tools))
        self._searcher = self._make_searcher(self._view.catalog)
        self._words: Searcher | None = None
        self._worker: threading.Thread | None = None
        self._clock = self._vectors.clock if self._vectors is not None else monotonic
        self._checked_at = 0.0
        if self._is_answered():
            self.prepare(wait=self._setup.wait)

    @property
    def catalog(self) -> Catalog:
        return self._view.catalog

    @property
    def problems(self) -> tuple[str, ...]:
        """Return what was skipped in the source, and why."""
        return self._view.problems

    @property
    def names(self) -> Names:
        """Return the names that models call the tools by, in both directions."""
        return self._view.names

    def resolve(self, name: str) -> frozenset[ToolId]:
        """Find tools by id, by the name shown to models, or by their own name, which several may share."""
        return self._view.resolve(name)

    def tool(self, name: str) -> Tool:
        """Return the one tool of this id or name; raises ToolNotFound with what may be meant."""
        found = self.resolve(name)
        if len(found) != 1:
            raise ToolNotFound(name, suggestions=sorted(found) or self.similar(name), finder="search")
        return self.catalog.tools[next(iter(found))]

    def similar(self, name: str) -> tuple[ToolId, ...]:
        """Return the ids that look most like this one."""
        return self._searcher.similar_names(name)

    def filter(self, query: Chat, **choices: Unpack[Choices]) -> FilterResult:
        """Return the tools for a text or a chat, best first."""
        turn = Turn(replace(self.defaults, **choices))
        options, view = turn.options, self._view
        narrowing = view.narrow(options)
        turn.step("options", f"limit {options.limit}, {narrowing.evaluated} of {len(view.catalog)} tools")
        context = read_context(query, messages=options.context_messages, tokens=options.max_context_tokens)
        turn.step("context", f"{len(context.text)} characters, {len(context.called)} tools called before")
        asked = query_of(context, view, options, narrowing)
        looked = self._look_up(asked, turn) if narrowing.evaluated else _Vector("nothing to search")
        turn.step("embedding", looked.outcome)
        found, view = self._find(asked, looked, narrowing)
        if narrowing.evaluated and (alone := standing_alone(context, asked)) is not None:
            standing, seen = self._find(alone, self._look_up(alone, turn), narrowing)
            if is_new_topic(standing):
                asked, found, view = alone, standing, seen
        found = replace(found, confidence=cautious(found.confidence, found, context))
        if not looked.failed and follows_a_chat(context, found):
            found = ranked_by_chat(found, context, partial(self._find_all, view, turn, narrowing))
        turn.step("search", f"{len(found.hits)} candidates, {found.confidence.level} confidence")
        found = self._rerank(found, turn)
        must = tuple(dict.fromkeys((*narrowing.always, *recalled(asked, narrowing, options.limit))))
        chosen = choose(found, view, must, options)
        turn.step("selection", f"{len(chosen)} tools")
        return FilterResult(
            tools=chosen,
            metrics=turn.metrics(narrowing.evaluated, hit=looked.hit),
            query=replace(asked, limit=options.limit),
            confidence=found.confidence,
            warnings=tuple(dict.fromkeys((*narrowing.warnings, *turn.warnings, *found.notes))),
            did_you_mean=found.did_you_mean,
            asked=replace(context.asked, relation="new", taken="") if asked.relation == "new" else context.asked,
            wishes=found.wishes,
        )

    async def afilter(self, query: Chat, **choices: Unpack[Choices]) -> FilterResult:
        """Do what `filter` does beside the event loop."""
        return await anyio.to_thread.run_sync(lambda: self.filter(query, **choices))

    def search(self, text: str, **fields: Any) -> SearchResult:
        """Run the core's own search; `fields` are those of `Query`: mode, limit, filters, collapse and so on."""
        if not isinstance(text, str):
            raise InvalidQuery(f"search takes a text, not {type(text).__name__}. Pass a chat to filter(messages).")
        return self._ask(Query(text=text, **fields))

    def explain(self, query: Chat, tool: str | None = None, **fields: Any) -> Explanation:
        """Explain the rank of a tool, given by id or name, or of the first hit, for a text or a chat.

        `fields` are the options of `filter` and the fields of `Query`.
        """
        choices = {name: value for name, value in fields.items() if name in Choices.__annotations__}
        turn = Turn(replace(self.defaults, **choices))
        options, view = turn.options, self._view
        tool_id = self.tool(tool).id if tool is not None else None
        context = read_context(query, messages=options.context_messages, tokens=options.max_context_tokens)
        asked = query_of(context, view, options, view.narrow(options))
        asked = replace(asked, **{name: value for name, value in fields.items() if name not in choices})
        looked, chat = self._look_up(asked, turn), None
        if context.is_chat:  # not while the lock is held
            self._look_up_all([*other_readings(asked, context).values()])
            chat = self._chat_vector(whole_reading(asked, context), turn)
        with self._lock:
            found = explain_turn(self._ready(looked), context, asked, tool_id, chat)
        if found is None:
            raise InvalidQuery("Nothing was found, so there is nothing to explain. Name a tool to see why.")
        return replace(found, notes=(*turn.warnings, *found.notes))

    def smart_select(
        self, query: Chat, *, limit: int = SELECTED, model: LanguageModel | Literal["auto"] | None = "auto"
    ) -> Selection:
        """Let a language model pick; `auto` takes the provider whose key is in the environment, None only searches."""
        options = self.defaults
        context = read_context(query, messages=options.context_messages, tokens=options.max_context_tokens)
        asked = model_from_environment() if model == "auto" else model
        return Selector(WholeCatalog(self.catalog), self._ask, asked).select(context.text, limit)

    async def run(
        self, code: str, call: Callable[[Tool, dict[str, Any]], Any] | None = None, **budget: Any
    ) -> ProgramReport:
        """Run a Python program over the tools: `await tools.server.tool(…)`, `search(…)` and `describe(…)`.

        `call` calls a tool with its arguments; without it the tools must be callables. All of them run unasked.
        `calls`, `seconds`, `memory` and `output` limit the program. Needs the extra `code`.
        """
        if find_spec("pydantic_monty") is None:
            raise InvalidInput("Programs need the extra `code`: pip install 'shortlist-core[code]'.")
        from shortlist.code.sandbox import Budget  # noqa: PLC0415 - part of an extra
        from shortlist.library.programs import calling, run_code  # noqa: PLC0415

        chosen = call or calling(self._view.originals)
        return await run_code(code, self.catalog, chosen, self.search, Budget(**budget))

    def update(self, tools: Source) -> IndexChange:
        """Replace the catalog; tools that the new one does not contain are removed."""
        view = self._viewed(read_source(tools))
        self.wait()  # before the lock: the searches of others must not wait for vectors in the making
        with self._lock:
            change = self._searcher.update(view.catalog)
            self._view, self._words = view, None
        self.prepare(wait=self._setup.wait)
        return change

    def prepare(self, *, wait: bool = True) -> None:
        """Make the vectors that are missing; a refused key is an error, a provider that is down is a warning."""
        if not wait and self._searcher.embedder is not None:
            self._worker = self._searcher.prepare_in_background()
            return
        try:
            self._searcher.prepare()
        except ProviderUnavailable as error:
            self._failed(error)
            return
        if self._searcher.embedder is not None:
            self._trouble = ""

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
        for vectors in (self._vectors, self._chats):
            if vectors is not None:
                vectors.clear()

    def close(self) -> None:
        """Close the connections to a provider."""
        for part in (self._vectors.embedder if self._vectors is not None else None, self._reranker):
            closing = getattr(part, "close", None)
            if callable(closing):
                closing()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _is_answered(self) -> bool:
        """Check a provider with one request before it is used; shipped models need no check."""
        check = getattr(self._vectors.embedder, "check", None) if self._vectors is not None else None
        try:
            if check is not None:
                check()
        except ProviderUnavailable as error:
            self._failed(error)
            return False
        return True

    def _failed(self, error: ModelError) -> None:
        self._trouble = f"Using lexical search only: {error}"
        self._checked_at = self._clock()

    def _recover(self) -> None:
        """Retry in the background what failed at the start."""
        waiting = self._clock() - self._checked_at < COOL_DOWN_SECONDS
        if self._vectors is None or waiting or (self._worker is not None and self._worker.is_alive()):
            return
        self._checked_at = self._clock()
        self._worker = threading.Thread(target=self._prepare_quietly, daemon=True)
        self._worker.start()

    def _prepare_quietly(self) -> None:
        try:
            self.prepare()
        except ModelError as error:
            self._failed(error)

    def _viewed(self, reading: SourceReading) -> View:
        if reading.problems:
            shown = "; ".join(reading.problems[:SHOWN_PROBLEMS])
            more = len(reading.problems) - SHOWN_PROBLEMS
            rest = f"; and {more} more in `.problems`" if more > 0 else ""
            warnings.warn(f"{len(reading.problems)} tools were left out: {shown}{rest}", stacklevel=3)
        if self._setup.include_server_description:
            return View(reading)
        return View(replace(reading, catalog=_undescribed(reading.catalog)))

    def _make_searcher(self, catalog: Catalog) -> Searcher:
        cache = self._setup.vector_cache
        if cache == "default":
            cache = open_vectors(local_vectors()) if self._vectors is not None else None
        fallback = static_model() if self._vectors is not None and not self._setup.wait else None
        options = SearchOptions(cache=cache, expansions=read_expansions(*self._setup.expansions))
        choices = self._setup if self._setup.save_index else replace(self._setup, saved_index=False)
        return open_searcher(catalog, self._vectors, choices, options, fallback=fallback)

    def _look_up(self, asked: Query, turn: Turn) -> "_Vector":
        """Embed outside of the lock, so that one slow provider does not hold up the others' searches."""
        vectors = self._vectors
        ready = vectors is not None and self._searcher.model_id == vectors.model_id
        if self._trouble and not ready:
            turn.warnings.append(self._trouble)
            self._recover()
        if vectors is None or not ready or asked.mode not in BY_VECTORS:
            return _Vector("words alone")
        try:
            hit = vectors.reading(asked).look_up_all(self._searcher.texts_to_embed(asked))
        except ModelError as error:
            turn.warnings.append(f"Using lexical search only: {error}")
            return _Vector("failed", failed=True)
        return _Vector("cache hit" if hit else "cache miss", hit=hit)

    def _look_up_all(self, queries: Sequence[Query]) -> None:
        """Embed several queries side by side; the searches for them report what fails."""
        if self._vectors is not None and self._searcher.model_id == self._vectors.model_id:
            with suppress(ModelError):
                self._vectors.look_up_all([text for each in queries for text in self._searcher.texts_to_embed(each)])

    def _find(self, asked: Query, looked: "_Vector", narrowing: Narrowing) -> tuple[SearchResult, View]:
        """Search, and give the view of the catalog that was searched: it may have changed since the call began."""
        if not narrowing.evaluated:
            reason = "No tool passes the filters." if len(self.catalog) else "The catalog is empty."
            return SearchResult(query=asked, hits=(), confidence=NO_MATCH, notes=(reason,)), self._view
        with self._lock:
            return self._ready(looked).search(asked), self._view

    def _chat_vector(self, whole: Query, turn: Turn) -> Vectors | None:
        """Embed a whole chat; None where the vectors in use are not of a model that reads chats."""
        if self._chats is None or self._searcher.model_id != self._chats.model_id or whole.mode not in BY_VECTORS:
            return None
        try:
            return self._chats.embed_query(whole.text)
        except ModelError as error:
            turn.warnings.append(f"Ranking without the vector of the whole chat: {error}")
            return None

    def _find_all(
        self, view: View, turn: Turn, narrowing: Narrowing, queries: Sequence[Query], whole: Query
    ) -> tuple[list[SearchResult], SearchResult | None]:
        """Search for queries and for a whole chat in one view of the catalog: tools that came since are left out."""
        self._look_up_all(queries)
        found = [self._find(each, self._look_up(each, turn), narrowing)[0] for each in queries]
        chat, nearest = self._chat_vector(whole, turn), None
        if chat is not None:
            with self._lock:
                nearest = self._searcher.nearest(whole, chat)
        return [_known(each, view) for each in found], _known(nearest, view) if nearest is not None else None

    def _ask(self, asked: Query) -> SearchResult:
        turn = Turn(self.defaults)
        looked = self._look_up(asked, turn)
        with self._lock:
            found = self._ready(looked).search(asked)
        return replace(found, notes=(*turn.warnings, *found.notes))

    def _ready(self, looked: "_Vector") -> Searcher:
        """Return what can search now: without its vectors the same index, by the weights fitted for words alone."""
        if not looked.failed:
            return self._searcher
        if self._words is None:
            self._words = Searcher(self._searcher.index)
        return self._words

    def _rerank(self, found: SearchResult, turn: Turn) -> SearchResult:
        if self._reranker is None or not found.hits:
            return found
        better = reranked(found, self._reranker, self._setup.rerank_top)
        turn.step("rerank", f"by {self._reranker.model_id}")
        return better


@dataclass(frozen=True, slots=True)
class _Vector:
    """What came of embedding a query."""

    outcome: str
    hit: bool = False
    failed: bool = False


def _known(found: SearchResult, view: View) -> SearchResult:
    """Leave out tools that are not in a view of the catalog."""
    return replace(found, hits=tuple(hit for hit in found.hits if hit.tool.id in view.catalog.tools))


def _undescribed(catalog: Catalog) -> Catalog:
    """Return the same tools under servers that say nothing of themselves."""
    return Catalog.of(catalog.tools.values(), (replace(s, description="") for s in catalog.servers.values()))
