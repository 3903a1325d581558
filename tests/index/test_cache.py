from pathlib import Path

import numpy as np
import pytest

from shortlist.index.cache import SqliteVectorCache
from shortlist.index.index import Index
from tests.fakes import WORKPLACE, HashingEmbedder, catalog

VECTOR = np.array([0.6, -0.8, 0.0], np.float32)


def test_a_vector_is_found_by_its_text_and_model(tmp_path: Path) -> None:
    cache = SqliteVectorCache(tmp_path / "new" / "vectors.db")
    cache.put("m@1", {"one text": VECTOR})
    assert cache.get("m@1", ["one text", "another"])["one text"] == pytest.approx(VECTOR, abs=0.01)
    assert cache.get("m@1", ["one text", "another"]).keys() == {"one text"}
    assert cache.get("m@2", ["one text"]) == {}


def test_vectors_outlive_the_process_that_made_them(tmp_path: Path) -> None:
    SqliteVectorCache(tmp_path / "vectors.db").put("m@1", {"text": VECTOR})
    assert len(SqliteVectorCache(tmp_path / "vectors.db")) == 1


def test_thousands_are_asked_for_at_once(tmp_path: Path) -> None:
    cache = SqliteVectorCache(tmp_path / "vectors.db")
    texts = [f"text {n}" for n in range(1_203)]
    cache.put("m@1", dict.fromkeys(texts, VECTOR))
    assert cache.get("m@1", texts).keys() == set(texts)


def test_a_damaged_file_is_put_aside_and_begun_again(tmp_path: Path) -> None:
    path = tmp_path / "vectors.db"
    path.write_bytes(b"this is not a database, " * 100)
    cache = SqliteVectorCache(path)
    cache.put("m@1", {"text": VECTOR})
    assert len(cache) == 1
    assert (tmp_path / "vectors.damaged").exists()


def test_a_file_that_fails_later_costs_what_is_in_it_and_no_more(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "vectors.db"
    cache = SqliteVectorCache(path)
    path.unlink()
    path.write_bytes(b"this is not a database, " * 100)
    cache.put("m@1", {"text": VECTOR})
    assert cache.get("m@1", ["text"]) == {}
    assert [record.message.partition(" while ")[0] for record in caplog.records] == [
        "vectors are made anew and not kept"
    ]


def test_a_place_where_no_file_can_be_is_an_error_of_the_system(tmp_path: Path) -> None:
    (tmp_path / "vectors.db").mkdir()
    with pytest.raises(OSError, match="unable to open") as refused:
        SqliteVectorCache(tmp_path / "vectors.db")
    assert refused.value.filename == str(tmp_path / "vectors.db")
    assert (tmp_path / "vectors.db").is_dir()


def test_half_characters_have_a_key_too(tmp_path: Path) -> None:
    cache = SqliteVectorCache(tmp_path / "vectors.db")
    cache.put("m@1", {"half\ud83d": VECTOR})
    assert len(cache.get("m@1", ["half\ud83d"])) == 1


def test_nothing_is_embedded_twice_over_the_same_cache(tmp_path: Path) -> None:
    embedder, cache = HashingEmbedder(), SqliteVectorCache(tmp_path / "vectors.db")
    Index.build(catalog(WORKPLACE)).embedded(embedder, cache=cache)
    embedder.embedded.clear()
    Index.build(catalog(WORKPLACE)).embedded(embedder, cache=cache)
    assert embedder.embedded == []
    cache.clear()
    assert len(cache) == 0
