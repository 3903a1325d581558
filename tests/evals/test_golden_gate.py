import pytest

from shortlist.evals.bench import Bench
from shortlist.evals.datasets import load_dataset, read_catalogs
from shortlist.evals.gates import Gate
from shortlist.evals.runner import Runner
from shortlist.index.embedders import WEIGHTS, shipped

FLOORS = {
    "none": {"lenient_top1": 0.69, "lenient_r@5": 0.79, "lenient_ndcg@10": 0.75},
    "static": {"lenient_top1": 0.74, "lenient_r@5": 0.85, "lenient_ndcg@10": 0.81},
    "small": {"lenient_top1": 0.73, "lenient_r@5": 0.85, "lenient_ndcg@10": 0.81},
}
"""By embedder: what the default pipeline must reach on the golden set's test split.

Raise a floor when a change lifts the score for good; lower one only with a reason in the commit.
"""


def shipped_here(embedder: str) -> bool:
    return embedder == "none" or (WEIGHTS / embedder / "model.json").is_file()


@pytest.mark.parametrize("embedder", [name for name in FLOORS if shipped_here(name)])
def test_the_default_pipeline_stays_above_its_floors_on_the_golden_set(embedder: str) -> None:
    dataset = load_dataset("golden:test")
    catalog = read_catalogs(dataset.catalogs).catalog
    contender = Bench(catalog, shipped(embedder)).contender("default")
    run = Runner(tools=catalog.tools).run(dataset, contender)
    assert Gate(floors=FLOORS[embedder], drops={}).failures([run]) == ()
