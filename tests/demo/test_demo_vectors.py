"""The vectors that the package ships are those of its demo's tools by its model."""

from pathlib import Path

import numpy as np
import pytest
from training.demo_vectors import demo_texts

from shortlist.index.cache import StoredVectors
from shortlist.index.embedders import Embedder, shipped
from shortlist.index.shipped import ShippedVectors, write_shipped
from shortlist.storage.sqlite_vectors import SqliteVectors
from tests.demo.bundle import tools

REMEDY = "run `python -m training.demo_vectors`"


@pytest.fixture
def kept(tmp_path: Path) -> StoredVectors:
    return StoredVectors(SqliteVectors(tmp_path / "vectors.db"))


@pytest.fixture
def model() -> Embedder:
    found = shipped("small")
    assert found is not None
    return found


def test_every_tool_of_the_demo_has_a_vector_by_the_shipped_model_from_its_file_and_as_it_is_served(
    model: Embedder, kept: StoredVectors
) -> None:
    texts = demo_texts()
    found = ShippedVectors(kept).get(model.model_id, texts)
    assert len(texts) == 2 * len(tools())
    assert set(texts) == set(found), REMEDY


def test_a_shipped_vector_is_what_the_model_makes_of_the_text(model: Embedder, kept: StoredVectors) -> None:
    some = demo_texts()[::200]
    found = ShippedVectors(kept).get(model.model_id, some)
    made = model.embed_documents(some)
    cosines = [float(found[text] @ vector) for text, vector in zip(some, made, strict=True)]
    assert min(cosines) > 0.999, REMEDY


def test_vectors_of_another_model_or_text_are_not_given(tmp_path: Path, kept: StoredVectors) -> None:
    path = tmp_path / "some.npz"
    write_shipped(path, "mine@1", {"send mail": np.array([0.6, -0.8], np.float32)})
    vectors = ShippedVectors(kept, path)
    assert vectors.get("mine@1", ["send mail"])["send mail"] == pytest.approx([0.6, -0.8], abs=0.01)
    assert vectors.get("mine@1", ["send a mail"]) == {}
    assert vectors.get("mine@2", ["send mail"]) == {}


def test_what_was_embedded_here_comes_before_what_was_shipped(tmp_path: Path, kept: StoredVectors) -> None:
    path = tmp_path / "some.npz"
    write_shipped(path, "mine@1", {"send mail": np.array([1, 0], np.float32)})
    vectors = ShippedVectors(kept, path)
    vectors.put("mine@1", {"send mail": np.array([0, 1], np.float32)})
    assert vectors.get("mine@1", ["send mail"])["send mail"].tolist() == [0, 1]


@pytest.mark.parametrize("content", [None, b"", b"PK\x03\x04 cut off"])
def test_a_missing_or_damaged_file_gives_nothing_and_breaks_nothing(
    tmp_path: Path, kept: StoredVectors, content: bytes | None
) -> None:
    path = tmp_path / "some.npz"
    if content is not None:
        path.write_bytes(content)
    assert ShippedVectors(kept, path).get("mine@1", ["send mail"]) == {}
