"""Fit fusion and calibration for an embedder, on the development part of `train/` alone.

    python -m training.fit_search --embedder small

The shipped models never trained on that part; of most of its sources they know the way of asking all the same.
"""

import argparse
import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from shortlist.index.cache import StoredVectors
from shortlist.index.embedders import shipped
from shortlist.paths import cache_folder
from shortlist.search.fitted import ANY_MODEL, FOLDER, WITHOUT_VECTORS, background_file
from shortlist.search.fusion import CANDIDATE_FEATURES, QUERY_FEATURES
from shortlist.storage.sqlite_vectors import SqliteVectors
from training.bench import data_folder
from training.calibrating import NO_PAIRS, PAIR_PENALTY, calibration_left_out, fit_calibration
from training.holdout import WHOLE_SETS
from training.samples import SETS, Sample, background_of, collect, group_of, logits, tasks

FIXED_SHARES = (0.0, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
FUSION_PENALTY = 0.05
NEWNESS = 4.0
"""How much more a source counts of which the models saw nothing: of the others they know the way of asking, and vectors
look better there than anywhere else. Of some tried, the one under which a source left out is ranked best."""


@dataclass(frozen=True, slots=True)
class Batch:
    """Samples padded to one size."""

    candidates: torch.Tensor
    query: torch.Tensor
    right: torch.Tensor
    there: torch.Tensor
    weight: torch.Tensor

    @classmethod
    def of(cls, samples: Sequence[Sample], newness: float) -> "Batch":
        size = max(len(s.right) for s in samples)
        candidates = np.zeros((len(samples), size, len(CANDIDATE_FEATURES)), np.float32)
        right, there = np.zeros((2, len(samples), size), np.bool_)
        for row, sample in enumerate(samples):
            count = len(sample.right)
            candidates[row, :count], right[row, :count], there[row, :count] = (
                sample.evidence.candidates,
                sample.right,
                True,
            )
        groups = [group_of(s.task) for s in samples]
        counts = Counter(groups)
        weight = np.array([_counts(group, newness) * counts[group] ** -0.5 for group in groups], np.float32)
        return cls(
            torch.from_numpy(candidates),
            torch.from_numpy(np.stack([s.evidence.query for s in samples])),
            torch.from_numpy(right),
            torch.from_numpy(there),
            torch.from_numpy(weight / weight.sum()),
        )


def _counts(group: str, newness: float) -> float:
    return newness if is_new(group) else 1.0


def is_new(group: str) -> bool:
    """Return whether the models saw nothing of a source: neither its tools nor its way of asking."""
    return group.partition("/")[0] in WHOLE_SETS


def best_fixed(samples: Sequence[Sample], newness: float = NEWNESS) -> float:
    """Find the vectors' share in a fixed mix that ranks best by nDCG@10, sources counting as in the fit."""

    def quality(share: float) -> float:
        found = ndcg_by_source(samples, fixed_mix(share).numpy())
        return float(np.average(list(found.values()), weights=[_counts(group, newness) for group in found]))

    return max(FIXED_SHARES, key=quality)


def ndcg_by_source(samples: Sequence[Sample], theta: NDArray[np.float32]) -> dict[str, float]:
    """Return each source's mean nDCG@10, of the queries whose right tools are among the candidates."""
    found: dict[str, list[float]] = {}
    for sample in samples:
        if sample.answerable and sample.right.any():
            order = np.argsort(-logits(sample, theta), kind="stable")[:10]
            gains = 1 / np.log2(np.arange(10) + 2)
            ideal = gains[: int(sample.right.sum())].sum()
            found.setdefault(group_of(sample.task), []).append(float(gains[: len(order)] @ sample.right[order] / ideal))
    return {group: float(np.mean(each)) for group, each in found.items()}


def fit_fusion(
    samples: Sequence[Sample], share: float, adaptive: bool = True, newness: float = NEWNESS
) -> NDArray[np.float32]:
    """Find the weights under which the right tools are likeliest, each against all that are wrong.

    What is learned is a correction to the best fixed mix, and costs something: where the training sources do not
    agree on one, the mix stays.
    """
    batch = Batch.of([s for s in samples if s.answerable and s.right.any()], newness)
    scale = torch.tensor(8.0, requires_grad=True)
    correction = torch.zeros(len(CANDIDATE_FEATURES), len(QUERY_FEATURES), requires_grad=True)
    optimiser = torch.optim.LBFGS([scale, correction], max_iter=150, line_search_fn="strong_wolfe")

    def theta() -> torch.Tensor:
        return scale * fixed_mix(share) + (correction if adaptive else 0 * correction)

    def loss() -> torch.Tensor:
        optimiser.zero_grad()
        value = _listwise(batch, theta()) + FUSION_PENALTY * (correction**2).mean()
        value.backward()
        return value

    optimiser.step(loss)
    return theta().detach().numpy()


def fixed_mix(share: float) -> torch.Tensor:
    """Write a fixed mix of the two arms as weights of features."""
    theta = torch.zeros(len(CANDIDATE_FEATURES), len(QUERY_FEATURES))
    theta[CANDIDATE_FEATURES.index("lexical"), 0] = 1 - share
    theta[CANDIDATE_FEATURES.index("cosine_place"), 0] = share
    return theta


def _listwise(batch: Batch, theta: torch.Tensor) -> torch.Tensor:
    scores = torch.einsum("bnj,jc,bc->bn", batch.candidates, theta, batch.query).masked_fill(~batch.there, -1e9)
    wrong = torch.logsumexp(scores.masked_fill(batch.right, -1e9), dim=1, keepdim=True)
    each = (torch.logaddexp(scores, wrong) - scores) * batch.right
    return (batch.weight * each.sum(1) / batch.right.sum(1)).sum()


def report(samples: Sequence[Sample], theta: NDArray[np.float32]) -> dict[str, float]:
    """Top-1 for each task."""
    hits: dict[str, list[bool]] = {}
    for sample in samples:
        if sample.answerable:
            first = bool(len(sample.right) and sample.right[int(logits(sample, theta).argmax())])
            hits.setdefault(group_of(sample.task), []).append(first)
    return {task: float(np.mean(found)) for task, found in hits.items()}


def leave_one_out(samples: Sequence[Sample], adaptive: bool, newness: float) -> dict[str, float]:
    """nDCG@10 on each source by weights fitted on the others: what an unseen set would get."""
    found: dict[str, float] = {}
    for group in sorted({group_of(s.task) for s in samples if s.answerable}):
        inside = [s for s in samples if group_of(s.task) == group]
        outside = [s for s in samples if group_of(s.task) != group]
        found |= ndcg_by_source(inside, fit_fusion(outside, best_fixed(outside, newness), adaptive, newness))
    return found


def check_fusion(samples: Sequence[Sample]) -> None:
    """Print how a fixed mix and weights by the query do on sources left out, and what counting new ones more gives."""
    for name, adaptive in (("fixed", False), ("adaptive", True)):
        for newness in (1.0, NEWNESS):
            found = leave_one_out(samples, adaptive, newness)
            new = np.mean([value for group, value in found.items() if is_new(group)])
            print(
                f"{name}, new sources count {newness}: all {np.mean(list(found.values())):.4f}, new {new:.4f}: {found}"
            )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=data_folder())
    parser.add_argument("--embedder", default="small")
    parser.add_argument("--name", help="the file to write, if not the embedder's")
    parser.add_argument("--check", action="store_true", help="leave each source out in turn and report")
    options = parser.parse_args()
    if options.name is None and ":" in Path(options.embedder).name:
        parser.error("what is fitted for some of a model's dimensions needs a --name of its own")
    embedder = shipped(options.embedder)
    cache = StoredVectors(SqliteVectors(cache_folder() / "vectors.sqlite"))
    name = options.name or (embedder.model_id.partition("@")[0] if embedder else WITHOUT_VECTORS)
    file = FOLDER / f"{name}.json"
    background = background_of(options.data, embedder, cache) if embedder and name != ANY_MODEL else None
    if background:
        background.write(background_file(file))
    samples = collect(tasks(options.data), embedder, cache, background)
    if options.check:
        check_fusion(samples)
        found = fit_fusion(samples, best_fixed(samples))
        for name, penalty in (("features alone", NO_PAIRS), ("in pairs", PAIR_PENALTY)):
            print(f"calibration by {name}: {calibration_left_out(samples, found, penalty)}")
    share = best_fixed(samples)
    theta = fit_fusion(samples, share)
    print("fitted", report(samples, theta))
    fitted = {
        "fusion": {
            "candidate_features": list(CANDIDATE_FEATURES),
            "query_features": list(QUERY_FEATURES),
            "theta": theta.round(5).tolist(),
        },
        "calibration": fit_calibration(samples, theta),
        "fitted_on": [f"train/{name}" for name in SETS],
        "fixed_dense": share,
    }
    file.write_text(json.dumps(fitted) + "\n")


if __name__ == "__main__":
    main()
