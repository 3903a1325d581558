"""Which engine for the lexical arm: python -m benchmarks.engines, in an environment that has bm25s and tantivy.

Every engine is given the same terms, made by our own text analysis, in the same fields where it has fields. So the
differences are the engine's: how it weighs, how long it takes, what one changed tool costs, whether a filter acts
inside the search, and whether it can say why a tool ranks where it does. Quality is looked at on training sets only.
"""

import argparse
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from importlib import import_module
from statistics import fmean
from typing import Any, Protocol

import numpy as np
from benchmarks.measuring import Times, bench_file, interleaved, milliseconds, one_thread, publish, spread
from numpy.typing import NDArray

from shortlist.catalog.catalog import Catalog
from shortlist.catalog.readers import read_catalog
from shortlist.evals.datasets import load_dataset, read_catalogs
from shortlist.evals.metrics import measure
from shortlist.evals.tables import Table
from shortlist.index.index import Index
from shortlist.index.lexical import FIELD_WEIGHTS, ExactLexicalIndex
from shortlist.models import Filters, Query, Tool, ToolId
from shortlist.search.searcher import Searcher
from shortlist.text.documents import FIELDS, Document, document, shared_sentences
from shortlist.text.tokens import terms

LIMIT = 10
QUALITY_SETS = ("train/authored", "train/toolalpaca", "train/apibank")
SIZE_SETS = ("azure_mcp", "toolret_apigen", "mcp_union")
NAME_REPEATS = 3
"""How an engine without fields is told that the name matters."""
UPDATES = 10


class Engine(Protocol):
    """One index over documents that were read before."""

    def search(self, query: str, limit: int, server: str | None = None) -> list[ToolId]: ...

    def replace(self, tool: Tool, words: Document) -> None: ...


@dataclass(frozen=True, slots=True)
class Read:
    """A catalog and the terms of its tools."""

    catalog: Catalog
    documents: Mapping[ToolId, Document]

    @classmethod
    def of(cls, catalog: Catalog) -> "Read":
        shared = {name: shared_sentences(catalog.of_server(name)) for name in catalog.servers}
        return cls(
            catalog,
            {t.id: document(t, catalog.servers[t.server], shared[t.server]) for t in catalog.tools.values()},
        )

    def masks(self) -> dict[str, NDArray[np.bool_]]:
        """Return the rows of each server, for engines that filter by a mask."""
        servers = np.array([self.catalog.tools[i].server for i in self.documents])
        return {name: servers == name for name in [_largest_server(self.catalog)]}


class Ours:
    """The sparse BM25F of this package, scoring the query's plain terms."""

    def __init__(self, read: Read) -> None:
        self._ids = list(read.documents)
        self._row = {tool_id: row for row, tool_id in enumerate(self._ids)}
        self._masks = read.masks()
        self._index = ExactLexicalIndex.build(read.documents.values())

    def search(self, query: str, limit: int, server: str | None = None) -> list[ToolId]:
        scores = np.zeros(self._index.size, np.float32)
        for term in dict.fromkeys(terms(query)):
            postings = self._index.postings(term)
            scores[postings.rows] += np.float32(self._index.idf(term)) * postings.weights
        return _best(
            np.where(self._index.alive if server is None else self._masks[server], scores, 0), self._ids, limit
        )

    def replace(self, tool: Tool, words: Document) -> None:
        self._index = self._index.changed([self._row[tool.id]], [words])
        self._row[tool.id] = len(self._ids)
        self._ids.append(tool.id)


class AsShipped:
    """The same inside the lexical pipeline: synonyms, spellings, stages, confidence and all."""

    def __init__(self, read: Read) -> None:
        self._searcher = Searcher(Index.build(read.catalog))

    def search(self, query: str, limit: int, server: str | None = None) -> list[ToolId]:
        filters = Filters(servers=None if server is None else frozenset((server,)))
        asked = Query(text=query, limit=limit, mode="lexical", filters=filters)
        return [hit.tool.id for hit in self._searcher.search(asked).hits] if query.strip() else []

    def replace(self, tool: Tool, _words: Document) -> None:
        catalog = self._searcher.catalog
        others = [each for each in catalog.of_server(tool.server) if each.id != tool.id]
        changed = replace(tool, content_hash=f"{tool.content_hash} changed")
        self._searcher.update(catalog.with_server(catalog.servers[tool.server], [*others, changed]))


class Bm25s:
    """bm25s: one sparse matrix over one bag of words; the name is repeated to count more."""

    def __init__(self, read: Read) -> None:
        self._package = import_module("bm25s")
        self._documents = dict(read.documents)
        self._masks = read.masks()
        self._rebuild()

    def search(self, query: str, limit: int, server: str | None = None) -> list[ToolId]:
        asked = list(dict.fromkeys(terms(query)))
        if not asked:
            return []
        mask = None if server is None else self._masks[server]
        found, scores = self._index.retrieve(
            [asked], k=min(limit, len(self._ids)), show_progress=False, n_threads=1, weight_mask=mask
        )
        return [self._ids[row] for row, score in zip(found[0], scores[0], strict=True) if score > 0]

    def replace(self, tool: Tool, words: Document) -> None:
        self._documents[tool.id] = words
        self._rebuild()

    def _rebuild(self) -> None:
        self._ids = list(self._documents)
        self._index = self._package.BM25(k1=1.5, b=0.75)
        self._index.index([_bag(words) for words in self._documents.values()], show_progress=False)


class Tantivy:
    """tantivy (Rust): an index in memory with a field for each of ours, boosted by our weights."""

    boosts: Mapping[str, float] = {field: weight.weight for field, weight in FIELD_WEIGHTS.items()}

    def __init__(self, read: Read) -> None:
        self._package = import_module("tantivy")
        builder = self._package.SchemaBuilder()
        builder.add_text_field("id", stored=True, tokenizer_name="raw")
        builder.add_text_field("of", tokenizer_name="raw")
        for field in self.boosts:
            builder.add_text_field(field, tokenizer_name="whitespace", index_option="freq")
        self._schema = builder.build()
        self._index = self._package.Index(self._schema)
        self._writer = self._index.writer(100_000_000, 1)
        for tool_id, words in read.documents.items():
            self._writer.add_document(self._document(read.catalog.tools[tool_id], words))
        self._commit()

    def search(self, query: str, limit: int, server: str | None = None) -> list[ToolId]:
        searcher = self._index.searcher()
        return [searcher.doc(at)["id"][0] for _, at in searcher.search(self._query(query, server), limit).hits]

    def replace(self, tool: Tool, words: Document) -> None:
        self._writer.delete_documents_by_term("id", tool.id)
        self._writer.add_document(self._document(tool, words))
        self._commit()

    def fields_of(self, words: Document) -> dict[str, str]:
        return {field: " ".join(words[field]) for field in FIELDS}

    def _query(self, query: str, server: str | None) -> Any:
        should, must, make = self._package.Occur.Should, self._package.Occur.Must, self._package.Query
        asked = make.boolean_query(
            [
                (should, make.boost_query(make.term_query(self._schema, field, term), boost))
                for term in dict.fromkeys(terms(query))
                for field, boost in self.boosts.items()
            ]
        )
        if server is None:
            return asked
        here = make.const_score_query(make.term_query(self._schema, "of", server), 0.0)
        return make.boolean_query([(must, asked), (must, here)])

    def _document(self, tool: Tool, words: Document) -> Any:
        return self._package.Document(id=tool.id, of=tool.server, **self.fields_of(words))

    def _commit(self) -> None:
        self._writer.commit()
        self._index.reload()


class TantivyBag(Tantivy):
    """The same over one bag of words: tantivy's fields each have an idf of their own, which can mislead it."""

    boosts: Mapping[str, float] = {"bag": 1.0}

    def fields_of(self, words: Document) -> dict[str, str]:
        return {"bag": " ".join(_bag(words))}


class Fts5:
    """SQLite's full-text index: a column for each of our fields, `bm25()` with our weights."""

    def __init__(self, read: Read) -> None:
        self._database = sqlite3.connect(":memory:")
        columns = ", ".join(FIELDS)
        self._database.execute("CREATE TABLE tools (row INTEGER PRIMARY KEY, id TEXT UNIQUE, server TEXT)")
        self._database.execute(f"CREATE VIRTUAL TABLE words USING fts5({columns}, tokenize='unicode61')")
        for tool_id, words in read.documents.items():
            self._insert(read.catalog.tools[tool_id], words)
        weights = ", ".join(str(FIELD_WEIGHTS[field].weight) for field in FIELDS)
        self._search = (
            "SELECT tools.id FROM words JOIN tools ON tools.row = words.rowid "
            f"WHERE words MATCH ? AND (? IS NULL OR tools.server = ?) ORDER BY bm25(words, {weights}) LIMIT ?"
        )

    def search(self, query: str, limit: int, server: str | None = None) -> list[ToolId]:
        asked = " OR ".join(f'"{term}"' for term in dict.fromkeys(terms(query)))
        if not asked:
            return []
        return [row[0] for row in self._database.execute(self._search, (asked, server, server, limit))]

    def replace(self, tool: Tool, words: Document) -> None:
        (row,) = self._database.execute("SELECT row FROM tools WHERE id = ?", (tool.id,)).fetchone()
        self._database.execute("DELETE FROM tools WHERE row = ?", (row,))
        self._database.execute("DELETE FROM words WHERE rowid = ?", (row,))
        self._insert(tool, words)

    def _insert(self, tool: Tool, words: Document) -> None:
        row = self._database.execute("INSERT INTO tools (id, server) VALUES (?, ?)", (tool.id, tool.server)).lastrowid
        marks = ", ".join("?" * (len(FIELDS) + 1))
        fields = [" ".join(words[field]) for field in FIELDS]
        self._database.execute(f"INSERT INTO words (rowid, {', '.join(FIELDS)}) VALUES ({marks})", (row, *fields))


ENGINES: Mapping[str, Callable[[Read], Engine]] = {
    "ours (sparse BM25F)": Ours,
    "ours, as shipped": AsShipped,
    "bm25s": Bm25s,
    "tantivy": Tantivy,
    "tantivy, one field": TantivyBag,
    "SQLite FTS5": Fts5,
}
ABILITIES: Mapping[str, tuple[str, str]] = {
    "ours (sparse BM25F)": ("a mask on the scores, before the cut", "each term, its fields and its share"),
    "ours, as shipped": ("the same", "the same, and every later step"),
    "bm25s": ("a mask on the scores, before the cut", "none: one number per term and tool"),
    "tantivy": ("a clause of the query", "`Query.explain`, a tree per tool"),
    "tantivy, one field": ("a clause of the query", "`Query.explain`, a tree per tool"),
    "SQLite FTS5": ("a condition on the join, after matching", "none: `bm25()` gives the sum"),
}


def main() -> None:
    one_thread()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--queries", type=int, default=1_000, help="at most so many of each training set")
    parser.add_argument("--sample", type=int, default=60, help="queries timed at each size")
    options = parser.parse_args()
    quality = {name: _quality(name, options.queries) for name in QUALITY_SETS}
    sizes = {name: _timed(name, options.sample) for name in SIZE_SETS}
    publish("engines", _tables(quality, sizes), {"quality": quality, "sizes": sizes, "abilities": ABILITIES})


def _installed(read: Read) -> dict[str, Engine]:
    found: dict[str, Engine] = {}
    for name, make in ENGINES.items():
        try:
            found[name] = make(read)
        except ImportError as error:
            print(f"{name} is left out: {error}")
    return found


def _quality(name: str, count: int) -> dict[str, dict[str, float]]:
    dataset = load_dataset(name.removeprefix("train/"))
    read = Read.of(read_catalogs(dataset.catalogs).catalog)
    cases = spread(dataset.cases, count)
    scores: dict[str, dict[str, float]] = {}
    for engine, index in _installed(read).items():
        each = [measure(index.search(case.query, LIMIT), case.gold, case.groups) for case in cases]
        scores[engine] = {metric: fmean(found[metric] for found in each if found) for metric in ("ndcg@10", "top1")}
    return scores


def _timed(name: str, sample: int) -> dict[str, Any]:
    catalog = read_catalog(bench_file("eval", name, "tools.jsonl.gz")).catalog
    queries = [case.query for case in spread(load_dataset(name).cases, sample)]
    read = Read.of(catalog)
    engines = {engine: make(read) for engine, make in ENGINES.items() if engine in _installed(_small(read))}
    building = {e: milliseconds(partial(ENGINES[e], read)) for e in engines}
    server = _largest_server(catalog)
    plain = interleaved({e: lambda q, i=i: i.search(q, LIMIT) for e, i in engines.items()}, queries)  # type: ignore[misc]
    within = {e: lambda q, i=i: i.search(q, LIMIT, server) for e, i in engines.items()}
    filtered = interleaved(within, queries, 1)
    updating = {engine: _updating(index, read) for engine, index in engines.items()}
    return {"tools": len(catalog), "build": building, "search": plain, "filtered": filtered, "update": updating}


def _small(read: Read) -> Read:
    some = list(read.documents)[:2]
    return Read(Catalog.of(read.catalog.tools[i] for i in some), {i: read.documents[i] for i in some})


def _updating(engine: Engine, read: Read) -> Times:
    changed = [read.catalog.tools[i] for i in spread(list(read.documents), UPDATES)]
    return Times.of([[milliseconds(lambda t=t: engine.replace(t, read.documents[t.id])) for t in changed]])  # type: ignore[misc]


def _tables(quality: Mapping[str, Any], sizes: Mapping[str, Any]) -> list[Table]:
    tools = [found["tools"] for found in sizes.values()]
    engines = list(next(iter(sizes.values()))["search"])
    largest = list(sizes.values())[-1]
    header = ("engine", *(f"{name} nDCG@10 / top-1" for name in quality))
    grades = [
        (
            engine,
            *(
                f"{100 * found[engine]['ndcg@10']:.1f} / {100 * found[engine]['top1']:.1f}"
                for found in quality.values()
            ),
        )
        for engine in engines
    ]
    costs = [
        (
            engine,
            *(f"{found['search'][engine].p50:.2f} ({found['search'][engine].best:.2f})" for found in sizes.values()),
            f"{largest['filtered'][engine].p50:.2f} ({largest['filtered'][engine].best:.2f})",
            f"{largest['update'][engine].p50:.1f}",
            f"{largest['build'][engine] / 1000:.1f}",
            *ABILITIES[engine],
        )
        for engine in engines
    ]
    columns = (
        "engine",
        *(f"{count:,} tools: ms" for count in tools),
        "with a filter: ms",
        "one changed tool: ms",
        "build: s",
        "filter",
        "explanation",
    )
    return [
        Table("Quality of the engines on training sets", header, _rows(grades)),
        Table(
            "Cost of the engines",
            columns,
            _rows(costs),
            ("Per query: the median and, in brackets, the median of the fastest of a query's answers; in turns.",),
        ),
    ]


def _rows(lines: Sequence[Sequence[str]]) -> tuple[tuple[str, ...], ...]:
    return tuple(tuple(line) for line in lines)


def _best(scores: Any, ids: Sequence[ToolId], limit: int) -> list[ToolId]:
    found = np.flatnonzero(scores)
    if len(found) > limit:
        found = found[np.argpartition(scores[found], len(found) - limit)[len(found) - limit :]]
    pairs = sorted(zip((-scores[found]).tolist(), (ids[row] for row in found.tolist()), strict=True))
    return [tool_id for _, tool_id in pairs]


def _largest_server(catalog: Catalog) -> str:
    return max(sorted(catalog.members), key=lambda name: len(catalog.members[name]))


def _bag(words: Document) -> list[str]:
    rest = [term for field in FIELDS if field != "name" for term in words[field]]
    return [*NAME_REPEATS * [*words["name"]], *rest]


if __name__ == "__main__":
    main()
