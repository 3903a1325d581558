"""ToolHive's optimizer (Go, over SQLite), rebuilt from its tool store: two searches, two quotas, one list."""

import sqlite3

from benchmarks.baselines.dense import Vectors
from benchmarks.baselines.documents import as_text, ids_of, text_of, wire_names
from benchmarks.baselines.lexical import best
from benchmarks.baselines.protocol import Baseline, Embed, Tools, required

SEMANTIC_SHARE = 0.5
SEMANTIC_DISTANCE = 1.0  # of a vector that is still a result
_DROPPED = """
name description schema input output type properties required title id tool server meta data content text
value field column table index key primary
"""
DROPPED = frozenset(_DROPPED.split())
SCHEMA = """
CREATE TABLE capabilities (name TEXT PRIMARY KEY, description TEXT NOT NULL);
CREATE VIRTUAL TABLE words USING fts5(
    name, description, content=capabilities, content_rowid=rowid, tokenize='porter'
);
"""
SEARCH = """
SELECT tool.name FROM words JOIN capabilities tool ON tool.rowid = words.rowid
WHERE words MATCH ? ORDER BY rank LIMIT ?
"""


class ToolHive:
    """The semantic quota first, then the words' quota without repeats: never fused, never refilled."""

    def __init__(self, name: str, tools: Tools, embed: Embed | None) -> None:
        self.name = name
        self._names = wire_names(tools)
        self._ids = dict(zip(self._names, ids_of(tools), strict=True))
        self._vectors = Vectors([text_of(tool) for tool in tools], embed) if embed else None
        self._database = sqlite3.connect(":memory:", check_same_thread=False)
        self._database.executescript(SCHEMA)
        rows = [(key, as_text(tool.get("description"))) for key, tool in zip(self._names, tools, strict=True)]
        self._database.executemany("INSERT INTO capabilities VALUES (?, ?)", rows)
        self._database.execute("INSERT INTO words(words) VALUES ('rebuild')")

    def rank(self, query: str, limit: int) -> list[str]:
        semantic = int(limit * SEMANTIC_SHARE + 0.5) if self._vectors else 0
        names = [*self._by_meaning(query, semantic), *self._by_words(query, limit - semantic)]
        return [self._ids[name] for name in dict.fromkeys(names)]

    def _by_meaning(self, query: str, limit: int) -> list[str]:
        if self._vectors is None:
            return []
        return best(self._names, self._vectors.scores(query), limit, floor=1 - SEMANTIC_DISTANCE)

    def _by_words(self, query: str, limit: int) -> list[str]:
        expression = match_expression(query)
        if not expression:
            return []
        found = self._database.execute(SEARCH, (expression, limit))
        return [name for (name,) in found]


def match_expression(query: str) -> str:
    """Each word once, quoted, joined with OR; words that every schema is full of are dropped."""
    unique = {word.lower(): word for word in reversed(query.split())}
    kept = [word for key, word in reversed(unique.items()) if key not in DROPPED]
    return " OR ".join('"' + word.replace('"', '""') + '"' for word in kept)


def toolhive(tools: Tools, embed: Embed | None) -> Baseline:
    return ToolHive("toolhive", tools, required("toolhive", embed))


def toolhive_words(tools: Tools, _embed: Embed | None = None) -> Baseline:
    """Without an embedding service: the keyword-only path."""
    return ToolHive("toolhive-fts5", tools, None)
