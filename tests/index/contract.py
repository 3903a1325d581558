"""The contract of every index of vectors: compared with exact search over the same rows."""

from collections.abc import Callable
from typing import TypeAlias

import numpy as np

from shortlist.index.embedders import Vectors
from shortlist.index.ports import Among, Mask, VectorIndex
from shortlist.index.vectors import ExactVectorIndex

Make: TypeAlias = Callable[[ExactVectorIndex], ExactVectorIndex]
CANDIDATES, FIRST, DIMENSIONS = 300, 10, 64
MODEL = "drawn"
ODD_ROWS = 400
"""Rows of the smaller indexes, whose vectors are unusual."""


def drawn(count: int, seed: int) -> Vectors:
    """Draw vectors in clusters of different density, as texts about the same things have them."""
    centres = np.random.default_rng(7).standard_normal((200, DIMENSIONS))
    draw = np.random.default_rng(seed)
    spread = draw.uniform(0.4, 1.2, (count, 1))
    made = centres[draw.integers(len(centres), size=count)] + spread * draw.standard_normal((count, DIMENSIONS))
    unit: Vectors = (made / np.linalg.norm(made, axis=1, keepdims=True)).astype(np.float32)
    return unit


def exact_index(count: int) -> ExactVectorIndex:
    return ExactVectorIndex.of(MODEL, drawn(count, 1))


def agreement(index: VectorIndex, exact: ExactVectorIndex, among: Among, queries: Vectors) -> tuple[float, float]:
    """Return the recall of the candidates, and the share of queries with the same first ten."""
    recalls, same = [], []
    for query in queries:
        found, wanted = (each.retrieve(query[None], CANDIDATES, among) for each in (index, exact))
        recalls.append(np.isin(wanted.rows, found.rows).mean())
        firsts = [each.rows[np.argsort(-each.scores, kind="stable")[:FIRST]].tolist() for each in (found, wanted)]
        same.append(firsts[0] == firsts[1])
    return float(np.mean(recalls)), float(np.mean(same))


def finds_what_exact_search_finds(make: Make, count: int) -> None:
    exact = exact_index(count)
    recall, same = agreement(make(exact), exact, Among(size=count), drawn(200, 2))
    assert recall >= 0.99
    assert same >= 0.99


def scores_like_exact_search(make: Make, count: int) -> None:
    exact = exact_index(count)
    index, query = make(exact), drawn(3, 3)
    found, wanted = (each.retrieve(query, CANDIDATES, Among(size=count)) for each in (index, exact))
    known = dict(zip(wanted.rows.tolist(), wanted.scores.tolist(), strict=True))
    shared = [(known[row], score) for row, score in zip(found.rows.tolist(), found.scores, strict=True) if row in known]
    assert len(shared) >= 0.9 * CANDIDATES, "a query of several parts"
    assert all(abs(one - other) < 1e-6 for one, other in shared)
    assert abs(found.mean - wanted.mean) < 0.01
    assert abs(found.deviation - wanted.deviation) < 0.01


def cuts_after_the_filter(make: Make, count: int) -> None:
    exact = exact_index(count)
    index, draw = make(exact), np.random.default_rng(4)
    for share in (0.9, 0.3, 0.002):
        mask: Mask = draw.random(count) < share
        among = Among(size=count, rows=mask)
        recall, same = agreement(index, exact, among, drawn(40, 5))
        assert recall >= 0.99, share
        assert same >= 0.97, share
        found = index.retrieve(drawn(1, 6), CANDIDATES, among)
        assert mask[found.rows].all()
        passing = int(np.count_nonzero(mask & (exact.cosines(drawn(1, 6))[0] > 0)))
        assert len(found.rows) >= min(CANDIDATES, passing)


def shows_updates_at_once(make: Make, count: int) -> None:
    index, query = make(exact_index(count)), drawn(1, 8)
    newer = index.grown(count + 1).with_vectors(np.array([count]), query)
    mask: Mask = np.ones(count + 1, np.bool_)
    found = newer.retrieve(query, FIRST, Among(size=count + 1))
    assert found.rows[found.scores.argmax()] == count, "a new row is found"
    nearest = int(found.rows[np.argsort(-found.scores)[1]])
    mask[[count, nearest]] = False
    left = newer.retrieve(query, FIRST, Among(size=count + 1, rows=mask)).rows
    assert not {count, nearest} & set(left.tolist()), "removed rows are not"
    assert len(left) == FIRST
    older = index.retrieve(query, FIRST, Among(size=count)).rows
    assert nearest in older, "the index before the update answers as it did"
    assert count not in older


def answers_when_few_or_no_rows_may(make: Make, count: int) -> None:
    exact = exact_index(count)
    index, query = make(exact), drawn(1, 9)
    for left in ([], [0, count // 2, count - 1]):
        mask: Mask = np.zeros(count, np.bool_)
        mask[left] = True
        found, wanted = (each.retrieve(query, CANDIDATES, Among(size=count, rows=mask)) for each in (index, exact))
        assert found.rows.tolist() == wanted.rows.tolist()
        assert found.scores.tolist() == wanted.scores.tolist()
        assert abs(found.mean - wanted.mean) < 0.01
        assert abs(found.deviation - wanted.deviation) < 0.01


def takes_vectors_that_are_all_the_same_or_zero(make: Make, count: int) -> None:
    query, everything = drawn(1, 9), Among(size=ODD_ROWS)
    vectors = np.tile(query, (ODD_ROWS, 1))
    vectors[8:20] = 0
    found = make(ExactVectorIndex.of(MODEL, vectors)).retrieve(query, FIRST, everything)
    assert len(found.rows) >= min(FIRST, count)
    assert min(found.scores) > 0.99
    assert not set(found.rows.tolist()) & set(range(8, 20)), "a row without a vector is not found"
    nothing = make(ExactVectorIndex.of(MODEL, np.zeros_like(vectors))).retrieve(query, FIRST, everything)
    assert not len(nothing.rows)


CONTRACT = (
    finds_what_exact_search_finds,
    scores_like_exact_search,
    cuts_after_the_filter,
    shows_updates_at_once,
    answers_when_few_or_no_rows_may,
    takes_vectors_that_are_all_the_same_or_zero,
)
