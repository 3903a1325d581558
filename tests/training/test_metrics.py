import numpy as np
import pytest
from training.metrics import evaluate, judged, rank
from training.prepared import NOTHING, RankingSet, padded


def test_a_group_counts_once_and_a_miss_counts_nothing() -> None:
    ranking = np.array([[4, 1, 2], [0, 3, 5]])
    rows = judged(ranking, [[[4, 1], [2]], [[9]]])
    assert rows[0].tolist() == pytest.approx([1.0, (1 + 1 / 2) / (1 + 1 / np.log2(3)), 1.0])
    assert rows[1].tolist() == [0.0, 0.0, 0.0]


def test_equal_scores_rank_the_lower_number_first() -> None:
    queries, documents = np.ones((1, 2), np.float32), np.ones((5, 2), np.float32)
    assert rank(queries, documents, 3).tolist() == [[0, 1, 2]]


def test_splits_are_scored_beside_the_whole_set() -> None:
    vectors = {"a": [1.0, 0.0], "b": [0.0, 1.0]}
    golds = (((0,),), ((0,),))
    each = RankingSet("made", ("a", "b"), ("a", "b"), golds, golds, ("easy", "hard"))
    scores = evaluate([each], lambda texts, _: np.array([vectors[t] for t in texts], np.float32), lenient=False)
    assert (scores["made"].top1, scores["made/easy"].top1, scores["made/hard"].top1) == (50.0, 100.0, 0.0)


def test_ragged_rows_are_filled_up() -> None:
    assert padded([[1, 2], [3]]).tolist() == [[1, 2], [3, NOTHING]]
