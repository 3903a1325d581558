"""Fit how sure an answer is: the chance that its first hit is right, and that there is a right one at all."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from shortlist.evals.calibration import expected_calibration_error
from shortlist.search.fusion import CONFIDENCE_FEATURES, FARTHEST, SURE, Calibration, confidence_features
from training.samples import Sample, group_of, logits

FALSE_ABSTENTION = 0.042
"""How many answerable queries may be answered `none` on the development sets."""
ABOUT_THE_MATCH = (
    *("first_cosine", "cosine_best", "first_coverage", "coverage_best", "unknown"),
    *("first_name_recall", "first_lexical_share", "at_large"),
)
"""What says whether catalog and query meet at all; the rest says which tasks were made, or how hits compare."""
FEATURE_PENALTY, PAIR_PENALTY = 0.003, 0.1
"""What a weight of the calibration costs; of some tried, those under which a source left out is judged best."""
NO_PAIRS = 1e6


def fit_calibration(
    samples: Sequence[Sample], theta: NDArray[np.float32], pair_penalty: float = PAIR_PENALTY
) -> dict[str, Any]:
    """Fit the chance of the first hit being right (on answerable queries), and of there being a right one."""
    usable = [s for s in samples if len(s.right)]
    described = [_first_hit(sample, theta) for sample in usable]
    matrix, right = np.stack([features for features, _ in described]), np.array([right for _, right in described])
    answerable = np.array([s.answerable for s in usable])
    weight = _even([group_of(s.task) for s in usable])
    centre, spread = matrix.mean(0), np.maximum(matrix.std(0), 1e-3)
    usual = ((matrix - centre) / spread).clip(-FARTHEST, FARTHEST)
    among_hits = np.array([name != "at_large" for name in CONFIDENCE_FEATURES])
    telling = np.array([name in ABOUT_THE_MATCH for name in CONFIDENCE_FEATURES])
    right_fit = fit_logistic(usual[answerable], right[answerable], weight[answerable], among_hits, pair_penalty)
    present_fit = fit_logistic(usual, answerable, weight, telling, pair_penalty)
    sure = right_fit.chances(usual[answerable]) >= SURE
    present = np.where(sure, 1.0, present_fit.chances(usual[answerable]))
    return {
        "features": list(CONFIDENCE_FEATURES),
        "centre": _short(centre),
        "spread": _short(spread),
        "weights": _short(np.stack([right_fit.weights, present_fit.weights])),
        "pairs": _short(np.stack([right_fit.pairs, present_fit.pairs])),
        "bias": _short(np.array([right_fit.bias, present_fit.bias])),
        "none_below": float(np.quantile(present, FALSE_ABSTENTION)),
    }


def _first_hit(sample: Sample, theta: NDArray[np.float32]) -> tuple[NDArray[np.float32], bool]:
    """Describe a sample's first hit and say whether it is right."""
    scores = logits(sample, theta)
    best = int(scores.argmax())
    row, takes = int(sample.evidence.rows[best]), bool(sample.parameters[best])
    features = confidence_features(sample.evidence, scores, row, parameters=takes, at_large=sample.at_large)
    return features, bool(sample.right[best])


def _short(numbers: NDArray[np.floating]) -> object:
    return numbers.astype(np.float64).round(5).tolist()


def _even(groups: list[str]) -> NDArray[np.float32]:
    counts = Counter(groups)
    weight = np.array([counts[group] ** -0.5 for group in groups], np.float32)
    return weight / weight.sum()


@dataclass(frozen=True, slots=True)
class Logistic:
    """A logistic regression over features and their products; `pairs` has what lies above the diagonal, and it."""

    weights: NDArray[np.float32]
    pairs: NDArray[np.float32]
    bias: float

    def chances(self, usual: NDArray[np.float32]) -> NDArray[np.float32]:
        scores = usual @ self.weights + np.einsum("bi,ij,bj->b", usual, self.pairs, usual) + self.bias
        return 1 / (1 + np.exp(-scores))


def fit_logistic(
    usual: NDArray[np.float32],
    labels: NDArray[np.bool_],
    weight: NDArray[np.float32],
    taking_part: NDArray[np.bool_],
    pair_penalty: float,
) -> Logistic:
    """Fit a weighted logistic regression on some of the standardised features and their products."""
    count = usual.shape[1]
    part = torch.from_numpy(taking_part.astype(np.float32))
    inputs = torch.from_numpy(usual.astype(np.float32)) * part
    wanted, weights = torch.from_numpy(labels.astype(np.float32)), torch.from_numpy(weight / weight.sum())
    slope, bias = torch.zeros(count, requires_grad=True), torch.zeros(1, requires_grad=True)
    pairs = torch.zeros(count, count, requires_grad=True)
    optimiser = torch.optim.LBFGS([slope, pairs, bias], max_iter=300, line_search_fn="strong_wolfe")

    def loss() -> torch.Tensor:
        optimiser.zero_grad()
        scores = inputs @ slope + ((inputs @ pairs.triu()) * inputs).sum(1) + bias
        each = torch.nn.functional.binary_cross_entropy_with_logits(scores, wanted, reduction="none")
        value = (each * weights).sum() + FEATURE_PENALTY * (slope**2).sum() + pair_penalty * (pairs**2).sum()
        value.backward()
        return value

    optimiser.step(loss)
    found = (slope * part).detach().numpy(), (pairs.triu() * part * part[:, None]).detach().numpy()
    return Logistic(*found, float(bias.detach()[0]))


def calibration_left_out(samples: Sequence[Sample], theta: NDArray[np.float32], pair_penalty: float) -> str:
    """Log loss and calibration error, mean over the sources, of each by a calibration fitted on the others."""
    found = []
    for group in sorted({group_of(s.task) for s in samples if s.answerable}):
        inside = [s for s in samples if group_of(s.task) == group and len(s.right)]
        outside = [s for s in samples if group_of(s.task) != group]
        fitted = Calibration.parse(fit_calibration(outside, theta, pair_penalty))
        described = [_first_hit(sample, theta) for sample in inside]
        stated = np.array([fitted.chances(features)[0] for features, _ in described]).clip(1e-6, 1 - 1e-6)
        right = np.array([right for _, right in described], np.float64)
        loss = -(right * np.log(stated) + (1 - right) * np.log(1 - stated)).mean()
        found.append((loss, expected_calibration_error(stated, right)))
    loss, error = np.mean(found, axis=0)
    return f"log loss {loss:.3f}, calibration error {error:.3f}"
