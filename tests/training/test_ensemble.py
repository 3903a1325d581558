"""What the models say together, where torch is there: the checks of the package do without it."""

from typing import Any

import numpy as np
import pytest
from training.prepared import NOTHING, TrainingSet

torch = pytest.importorskip("torch")
ensemble, mining, train = (pytest.importorskip(f"training.{name}") for name in ("ensemble", "mining", "train"))

QUERIES = torch.tensor([[4.0, 0.0], [0.0, 4.0], [1.0, 1.0]])
TEXTS = torch.eye(3)[:, :2]
PARTS = np.array([[0, NOTHING], [1, NOTHING], [0, 1]], np.int32)


def panel() -> Any:
    return ensemble.Panel(QUERIES, TEXTS, torch.from_numpy(PARTS).long(), 1.0)


def material() -> Any:
    data = TrainingSet(
        queries=("a", "b", "a and b"),
        kinds=("written_authored", "written_authored", "errand_authored"),
        positives=PARTS,
        right=PARTS,
        parts=PARTS,
        texts=("A", "B", "C"),
        groups=np.arange(3, dtype=np.int32),
        negatives=np.ones(3, bool),
    )
    return train.Material(data, mining.arrays_of(data, torch.eye(3)), None, None)


def test_of_an_errand_is_said_what_is_said_of_its_wishes() -> None:
    rows, texts = torch.arange(3), torch.arange(3)
    said = panel().opinion(rows, texts)
    assert said.sum(1).tolist() == pytest.approx([1, 1, 1])
    assert said[2].tolist() == pytest.approx(((said[0] + said[1]) / 2).tolist())
    assert int(said[0].argmax()) == 0


def test_every_answer_of_an_errand_is_in_the_batch_and_nobodys_wrong_answer() -> None:
    rows, documents = torch.tensor([0, 2]), torch.tensor([0, 1, 2])
    unfair = torch.zeros(2, 3, dtype=torch.bool)
    batch = ensemble.with_every_answer(material(), train.Batch(rows, documents, unfair, torch.zeros(2, 1)))
    assert batch.documents.tolist() == [0, 1, 2, 0, 1]
    assert batch.unfair[:, 3:].tolist() == [[True, False], [True, True]]
