import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shortlist.index.embedders import Vectors
from shortlist.index.vectors import ExactVectorIndex, quantise, query_vectors
from shortlist.text.queries import MAX_CLAUSES, texts_to_embed
from tests.fakes import HashingEmbedder

seeds = st.integers(0, 2**32 - 1)


def unit_vectors(seed: int, count: int, dimensions: int) -> Vectors:
    vectors = np.random.default_rng(seed).normal(size=(count, dimensions)).astype(np.float32)
    unit: Vectors = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    return unit


def filled(vectors: Vectors) -> ExactVectorIndex:
    return ExactVectorIndex.of("random@1", vectors)


@given(seeds, st.sampled_from([32, 128, 384]))
def test_a_byte_per_dimension_gives_the_cosine_within_a_hundredth(seed: int, dimensions: int) -> None:
    vectors = unit_vectors(seed, 40, dimensions)
    query = unit_vectors(seed + 1, 1, dimensions)[0]
    assert np.abs(filled(vectors).cosines(query[None])[0] - vectors @ query).max() < 0.01


@given(seeds)
def test_a_vector_is_nearest_to_itself(seed: int) -> None:
    vectors = unit_vectors(seed, 20, 64)
    index = filled(vectors)
    assert [int(index.cosines(vector[None]).argmax()) for vector in vectors] == list(range(20))


@given(seeds)
def test_quantising_what_was_quantised_changes_nothing(seed: int) -> None:
    vectors = unit_vectors(seed, 5, 64)
    index = filled(vectors)
    codes, scales = quantise(index.vectors(list(range(5))))
    assert (codes == quantise(vectors)[0]).all()
    assert scales == pytest.approx(quantise(vectors)[1])


def test_rows_without_a_vector_score_nothing_and_are_named() -> None:
    index = ExactVectorIndex.empty(8, "m@1", 3).with_vectors(np.array([1]), unit_vectors(1, 1, 8))
    assert index.rows_without_vector().tolist() == [0, 2]
    assert index.missing == 2
    (scores,) = index.cosines(unit_vectors(1, 1, 8))
    assert scores[[0, 2]].tolist() == [0, 0]
    assert scores[1] == pytest.approx(1, abs=0.01)


def test_a_query_without_direction_is_near_nothing() -> None:
    assert filled(unit_vectors(3, 4, 16)).cosines(np.zeros((1, 16), np.float32)).tolist() == [[0, 0, 0, 0]]


def test_an_empty_index_gives_no_scores() -> None:
    assert ExactVectorIndex.empty(16, "m@1").cosines(unit_vectors(1, 1, 16)).shape == (1, 0)


def test_what_is_saved_is_one_byte_a_dimension_and_comes_back() -> None:
    index = filled(unit_vectors(5, 10, 64))
    state = index.state()
    assert state["codes"].nbytes == 10 * 64
    restored = ExactVectorIndex.restore("random@1", state)
    query = unit_vectors(6, 1, 64)[0]
    assert restored.cosines(query[None]).tolist() == index.cosines(query[None]).tolist()


class Reading(HashingEmbedder):
    """Remembers what it was asked to embed."""

    def __init__(self) -> None:
        super().__init__()
        self.read: list[str] = []

    def embed_query(self, text: str) -> Vectors:
        self.read.append(text)
        return super().embed_query(text)


LONG = " ".join(f"Then read the sales report of month {month} and mail its totals to Ruth." for month in range(14))


def test_a_long_request_is_read_once_in_few_parts_and_their_mean_stands_for_the_whole() -> None:
    embedder = Reading()
    texts = texts_to_embed(LONG)
    vectors = query_vectors(embedder, texts)
    assert embedder.read == list(texts[1:])
    assert len(texts) <= 1 + MAX_CLAUSES
    assert all(str(month) in " ".join(embedder.read) for month in range(14))
    assert len(vectors) == len(texts)
    assert np.linalg.norm(vectors[0]) == pytest.approx(1, abs=1e-5)
    lengths = np.array([len(text) for text in texts[1:]])
    mean = lengths @ vectors[1:]
    assert vectors[0] == pytest.approx(mean / np.linalg.norm(mean), abs=1e-5)


def test_a_short_request_is_read_as_a_whole_and_by_its_parts() -> None:
    embedder = Reading()
    texts = texts_to_embed("Read the sales report. Then mail its totals to Ruth.")
    query_vectors(embedder, texts)
    assert embedder.read == list(texts)
    assert len(texts) == 3
