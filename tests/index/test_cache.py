import sqlite3
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from shortlist.index import embedding
from shortlist.index.cache import StoredVectors
from shortlist.index.embedders import Progress, Vectors
from shortlist.index.embedding import KEPT_AT_ONCE, PARTS
from shortlist.index.index import Index
from shortlist.storage.port import VectorStore
from shortlist.storage.sqlite_vectors import SqliteVectors, VectorBounds
from tests.fakes import WORKPLACE, HashingEmbedder, catalog, tool

VECTOR = np.array([0.6, -0.8, 0.0], np.float32)


def test_a_vector_is_found_by_its_text_and_model(tmp_path: Path) -> None:
    cache = StoredVectors(SqliteVectors(tmp_path / "new" / "vectors.db"))
    cache.put("m@1", {"one text": VECTOR})
    assert cache.get("m@1", ["one text", "another"])["one text"] == pytest.approx(VECTOR, abs=0.01)
    assert cache.get("m@1", ["one text", "another"]).keys() == {"one text"}
    assert cache.get("m@2", ["one text"]) == {}


def test_vectors_outlive_the_process_that_made_them(tmp_path: Path) -> None:
    StoredVectors(SqliteVectors(tmp_path / "vectors.db")).put("m@1", {"text": VECTOR})
    assert len(SqliteVectors(tmp_path / "vectors.db")) == 1


def test_thousands_are_asked_for_at_once(tmp_path: Path) -> None:
    cache = StoredVectors(SqliteVectors(tmp_path / "vectors.db"))
    texts = [f"text {n}" for n in range(1_203)]
    cache.put("m@1", dict.fromkeys(texts, VECTOR))
    assert cache.get("m@1", texts).keys() == set(texts)


def test_a_damaged_file_is_put_aside_and_begun_again(tmp_path: Path) -> None:
    path = tmp_path / "vectors.db"
    path.write_bytes(b"this is not a database, " * 100)
    store = SqliteVectors(path)
    StoredVectors(store).put("m@1", {"text": VECTOR})
    assert len(store) == 1
    assert (tmp_path / "vectors.damaged").exists()


def test_a_file_that_fails_later_costs_what_is_in_it_and_no_more(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "vectors.db"
    cache = StoredVectors(SqliteVectors(path))
    cache.put("m@1", {"other": VECTOR})
    for file in tmp_path.iterdir():
        file.unlink()
    path.write_bytes(b"this is not a database, " * 100)
    cache.put("m@1", {"text": VECTOR})
    assert [record.message.partition(" while ")[0] for record in caplog.records] == ["vectors are computed again"]
    cache.put("m@1", {"text": VECTOR})
    assert cache.get("m@1", ["text"]).keys() == {"text"}  # the damaged file was moved aside


def test_a_place_where_no_file_can_be_is_reported_once_and_nothing_fails(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "vectors.db").mkdir()
    cache = StoredVectors(SqliteVectors(tmp_path / "vectors.db"))
    cache.put("m@1", {"text": VECTOR})
    assert cache.get("m@1", ["text"]) == {}
    assert (tmp_path / "vectors.db").is_dir()
    assert [record.message for record in caplog.records if "unable to open" in record.message] == [
        record.message for record in caplog.records
    ]
    assert len(caplog.records) == 1


def test_a_file_of_a_newer_version_is_left_unchanged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "vectors.db"
    connection = sqlite3.connect(path)
    connection.executescript("CREATE TABLE vectors (vector); PRAGMA user_version = 9")
    connection.close()
    before = path.read_bytes()
    cache = StoredVectors(SqliteVectors(path))
    cache.put("m@1", {"text": VECTOR})
    assert cache.get("m@1", ["text"]) == {}
    assert path.read_bytes()[100:] == before[100:]  # SQLite notes in its header that it was opened
    assert "newer version of shortlist" in caplog.text


def test_a_file_of_the_first_release_is_used(tmp_path: Path) -> None:
    path = tmp_path / "vectors.db"
    StoredVectors(SqliteVectors(path)).put("m@1", {"text": VECTOR})
    connection = sqlite3.connect(path)
    connection.execute("DROP TABLE uses")
    connection.close()
    assert StoredVectors(SqliteVectors(path)).get("m@1", ["text"]).keys() == {"text"}


class Days:
    """A clock that moves by days."""

    def __init__(self) -> None:
        self.day = 20_000

    def __call__(self) -> float:
        return self.day * 86_400.0


def test_vectors_that_were_not_used_for_long_go(tmp_path: Path) -> None:
    days = Days()
    cache = StoredVectors(SqliteVectors(tmp_path / "vectors.db", VectorBounds(days=30, checked_every=1), days))
    cache.put("m@1", {"used": VECTOR, "forgotten": VECTOR})
    days.day += 29
    cache.get("m@1", ["used"])
    days.day += 2
    cache.put("m@1", {"new": VECTOR})
    assert cache.get("m@1", ["used", "forgotten", "new"]).keys() == {"used", "new"}


def test_vectors_beyond_the_size_go_the_least_recently_used_first(tmp_path: Path) -> None:
    days, size = Days(), 10 * (len(VECTOR) + 16) / 1e6
    store = SqliteVectors(tmp_path / "vectors.db", VectorBounds(megabytes=size, checked_every=1), days)
    cache = StoredVectors(store)
    for number in range(25):
        days.day += 1
        cache.put("m@1", {f"text {number}": VECTOR})
    assert len(store) == 10
    assert cache.get("m@1", [f"text {n}" for n in range(15, 25)]).keys() == {f"text {n}" for n in range(15, 25)}


def test_half_characters_have_a_key_too(tmp_path: Path) -> None:
    cache = StoredVectors(SqliteVectors(tmp_path / "vectors.db"))
    cache.put("m@1", {"half\ud83d": VECTOR})
    assert len(cache.get("m@1", ["half\ud83d"])) == 1


def test_nothing_is_embedded_twice_over_the_same_cache(tmp_path: Path) -> None:
    embedder, store = HashingEmbedder(), SqliteVectors(tmp_path / "vectors.db")
    cache = StoredVectors(store)
    Index.build(catalog(WORKPLACE)).embedded(embedder, cache=cache)
    embedder.embedded.clear()
    Index.build(catalog(WORKPLACE)).embedded(embedder, cache=cache)
    assert embedder.embedded == []
    store.clear()
    assert len(store) == 0


class Watched(StoredVectors):
    """A cache of one process that notes when another one holds all that it asks for."""

    def __init__(self, store: VectorStore) -> None:
        super().__init__(store)
        self.refused = threading.Event()

    @contextmanager
    def claim(self, model_id: str, parts: Sequence[int]) -> Iterator[frozenset[int]]:
        with super().claim(model_id, parts) as mine:
            if not mine:
                self.refused.set()
            yield mine


class Slow(HashingEmbedder):
    """An embedder that works until another process has been refused."""

    def __init__(self, until: threading.Event) -> None:
        super().__init__()
        self.until, self.begun = until, threading.Event()

    def embed_documents(self, texts: Sequence[str], progress: Progress | None = None) -> Vectors:
        self.begun.set()
        assert self.until.wait(60)
        return super().embed_documents(texts, progress)


def test_processes_that_start_at_once_embed_nothing_twice(tmp_path: Path) -> None:
    first, second = (Watched(SqliteVectors(tmp_path / "vectors.db")) for _ in range(2))
    slow, late = Slow(until=second.refused), HashingEmbedder()
    index = Index.build(catalog(WORKPLACE))
    with ThreadPoolExecutor(2) as threads:
        one = threads.submit(index.embedded, slow, cache=first)
        assert slow.begun.wait(60)
        other = threads.submit(Index.build(catalog(WORKPLACE)).embedded, late, cache=second)
        assert one.result().waiting == other.result().waiting == 0
    assert len(slow.embedded) == len(WORKPLACE)
    assert late.embedded == [], "it waited, and found the vectors of the other"


def test_many_texts_are_shared_between_processes_and_none_is_embedded_twice(tmp_path: Path) -> None:
    whole = catalog([tool(f"s/tool_{n}", f"Does number {n}.") for n in range(2 * KEPT_AT_ONCE)])
    embedders = [HashingEmbedder(), HashingEmbedder()]
    with ThreadPoolExecutor(2) as threads:
        caches = [StoredVectors(SqliteVectors(tmp_path / "vectors.db")) for _ in embedders]
        made = [
            threads.submit(Index.build(whole).embedded, embedder, cache=cache)
            for embedder, cache in zip(embedders, caches, strict=True)
        ]
        assert [index.result().waiting for index in made] == [0, 0]
    embedded = [text for embedder in embedders for text in embedder.embedded]
    assert len(embedded) == len(set(embedded)) == len(whole)


def test_a_process_that_never_lets_go_is_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedding, "PATIENCE_SECONDS", 0.0)
    embedder, stopped = HashingEmbedder(), SqliteVectors(tmp_path / "vectors.db")
    with StoredVectors(stopped).claim(embedder.model_id, range(PARTS)) as held:
        assert len(held) == PARTS
        cache = StoredVectors(SqliteVectors(tmp_path / "vectors.db"))
        assert Index.build(catalog(WORKPLACE)).embedded(embedder, cache=cache).waiting == 0
    assert len(embedder.embedded) == len(WORKPLACE)


def test_a_vector_of_the_wrong_size_is_computed_again(tmp_path: Path) -> None:
    embedder, cache = HashingEmbedder(), StoredVectors(SqliteVectors(tmp_path / "vectors.db"))
    Index.build(catalog(WORKPLACE)).embedded(embedder, cache=cache)
    (text, *_) = embedder.embedded
    cache.put(embedder.model_id, {text: VECTOR})
    embedder.embedded.clear()
    Index.build(catalog(WORKPLACE)).embedded(embedder, cache=cache)
    assert embedder.embedded == [text]
