"""How sure an answer is: the chance that the first hit is right, and that the catalog has a right tool at all.

The numbers were fitted for each model and are kept beside its weights, with a sample of tools from other catalogs. A
query that is nearer to those probably asks for something this catalog does not have.
"""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from shortlist.errors import ModelError
from shortlist.index.embedders import Embedder, Vectors
from shortlist.index.vectors import SMALLEST, ExactVectorIndex
from shortlist.models import Confidence, Level
from shortlist.search.fusion import CANDIDATE_FEATURES, QUERY_FEATURES, FusionWeights
from shortlist.search.pipeline import Evidence, Matrix, Request

FOLDER = Path(__file__).parent.parent / "weights" / "search"
WITHOUT_VECTORS = "none"
ANY_MODEL = "any"
"""For embedders that nothing was fitted for: fitted on an untuned general model."""
NEAREST = 10
"""How many tools of the sample are compared with a query."""
HIGH, MEDIUM = 0.75, 0.4
"""Where `high` and `medium` begin, as the chance that the first hit is right."""
PASTED_AT_MOST = 0.35
"""The most that an answer to a paste without a request may claim; within `low`."""
TAKEN_AT_MOST = 0.74
"""The most that an answer may claim whose query holds words of earlier turns; within `medium`."""
NONE_AT_MOST = 0.1
"""Where `low` begins and `none` ends, so that a level and its probability never contradict each other."""
SURE = 0.8
"""A first hit this likely is never withheld as `none`: a web search, say, has few words of what it may find."""
FARTHEST = 4.0
"""How far from the usual a feature may take part, in standard deviations."""

CONFIDENCE_FEATURES = (
    *(f"first_{name}" for name in CANDIDATE_FEATURES),
    *QUERY_FEATURES,
    "share",  # the first hit's part of all the belief
    "runner_up",  # the second's
    "spread",  # how many hits share the belief, as an entropy
    "gap",  # the first's score less the second's
    "parameters",  # the first hit says what it takes: one that does not is often as vague as others beside it
    "at_large",  # how near the tools of other catalogs come
)
_EXACT, _UNKNOWN, _COVERAGE, _AGREEMENT, _SHARE = map(
    CONFIDENCE_FEATURES.index, ("first_exact", "unknown", "first_coverage", "agreement", "share")
)


@dataclass(frozen=True, slots=True)
class Calibration:
    """Two logistic regressions over the features and their products; fitted on training sets, measured on others.

    The first row of each is for the first hit being right, the second for there being a right one.
    """

    centre: Matrix
    spread: Matrix
    weights: Matrix
    pairs: Matrix
    """By regression and feature, what the other features add to its weight."""
    bias: Matrix
    none_below: float
    """The chance of a match under which the answer is `none`, unless its first hit is sure."""

    @classmethod
    def parse(cls, raw: Mapping[str, Any]) -> "Calibration":
        """Read the part of a fitted file that is about confidence."""
        if tuple(raw["features"]) != CONFIDENCE_FEATURES:
            raise ValueError("the calibration is of another version")
        arrays = {name: np.array(raw[name], np.float32) for name in ("centre", "spread", "weights", "pairs", "bias")}
        return cls(**arrays, none_below=float(raw["none_below"]))

    def judge(self, features: Matrix, proven: float = 0.0) -> Confidence:
        """Judge an answer by its first hit; `proven` is how sure it is from use that the hit is a match."""
        right, there = self.chances(features)
        present = 1 - (1 - there) * (1 - proven)
        level = self._level(right, present)
        right, present = (min(right, present), present) if level == "none" else (right, max(right, present))
        return Confidence(
            level=level,
            probability=min(right, NONE_AT_MOST) if level == "none" else max(right, NONE_AT_MOST),
            match_probability=present,
            reasons=_reasons(features.tolist()),
        )

    def chances(self, features: Matrix) -> tuple[float, float]:
        """Return the chance that the first hit is right where any is, and that any is."""
        usual = ((features - self.centre) / self.spread).clip(-FARTHEST, FARTHEST)
        right, there = ((self.weights + self.pairs.dot(usual)).dot(usual) + self.bias).tolist()
        return _chance(right), _chance(there)

    def _level(self, right: float, present: float) -> Level:
        if present < self.none_below and right < SURE:
            return "none"
        return "high" if right >= HIGH else "medium" if right >= MEDIUM else "low"


def with_taken_words(confidence: Confidence) -> Confidence:
    """Lower a high confidence to medium: words taken from earlier turns match tools that were not asked for now."""
    if confidence.level != "high":
        return confidence
    return replace(confidence, level="medium", probability=TAKEN_AT_MOST)


def mostly_pasted(confidence: Confidence, characters: int) -> Confidence:
    """Lower the confidence of an answer to a message in which nothing reads like a request."""
    reason = f"nothing in {characters:,} characters reads like a request"
    return replace(
        confidence,
        level="none" if confidence.level == "none" else "low",
        probability=min(confidence.probability, PASTED_AT_MOST),
        reasons=(*confidence.reasons, reason),
    )


def _chance(score: float) -> float:
    return 1 / (1 + math.exp(-min(max(score, -30.0), 30.0)))


NOTHING = Confidence(
    level="none", probability=0.0, match_probability=0.0, reasons=("no tool matches, or none passes the filters",)
)


def confidence_features(
    evidence: Evidence, logits: Matrix, first_row: int, *, parameters: bool, at_large: float
) -> Matrix:
    """Describe the first hit, the query, how the belief is spread over the candidates, and what others offer."""
    first = evidence.rows.tolist().index(first_row)
    behind = logits - logits[logits.argmax()]
    odds = np.exp(behind)
    total = sum(odds.tolist())
    entropy = math.log(total) - float(odds.dot(behind)) / total
    share, second, gap = float(odds[first]) / total, 0.0, 3.0
    if len(logits) > 1:
        odds[first] = -1.0
        runner_up = int(odds.argmax())
        second, gap = float(odds[runner_up]) / total, float(behind[first] - behind[runner_up])
    spread = (share, second, entropy, min(max(gap, -5.0), 5.0), parameters, at_large)
    return np.array((*evidence.candidates[first].tolist(), *evidence.query.tolist(), *spread), np.float32)


def _reasons(features: list[float]) -> tuple[str, ...]:
    found = []
    if features[_EXACT]:
        found.append("the query spells its name")
    if features[_UNKNOWN] > 0.34:
        found.append(f"{features[_UNKNOWN]:.0%} of the words are unknown here")
    if features[_COVERAGE] < 0.34:
        found.append(f"it mentions {features[_COVERAGE]:.0%} of what was asked")
    if features[_AGREEMENT]:
        found.append("words and meaning agree on it")
    if features[_SHARE] < 0.4:
        found.append("others are nearly as good")
    return tuple(found)


@dataclass(frozen=True, slots=True)
class Background:
    """Vectors of a sample of tools from other catalogs, by one model.

    A query nearer to them than to its own catalog probably asks for something the catalog does not have.
    """

    sample: ExactVectorIndex

    @classmethod
    def of(cls, vectors: Vectors) -> "Background":
        return cls(ExactVectorIndex.of("", vectors))

    @classmethod
    def read(cls, path: Path) -> "Background":
        with np.load(path) as arrays:
            return cls(ExactVectorIndex.restore("", dict(arrays)))

    def write(self, path: Path) -> None:
        state = self.sample.state()
        np.savez(path, codes=state["codes"], scales=state["scales"])

    def first(self, dimensions: int) -> "Background":
        """Return the sample as embedded by a model that keeps only its first dimensions."""
        if dimensions == self.sample.dimensions:
            return self
        vectors = self.sample.vectors(np.arange(self.sample.size))[:, :dimensions]
        return Background.of(vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), SMALLEST))

    def nearness(self, vectors: Vectors) -> float:
        """Return how near the nearest tools of the sample are to a query as a whole."""
        cosines = self.sample.cosines(vectors[:1])[0]
        return float(np.partition(cosines, -NEAREST)[-NEAREST:].mean())


def at_large(background: Background | None, request: Request) -> float:
    """Return how near tools of other catalogs are; 0 where the query or the model has no vectors for it."""
    return 0.0 if background is None or request.vectors is None else background.nearness(request.vectors)


@dataclass(frozen=True, slots=True)
class Fitted:
    """Numbers that were learned, and from what."""

    fusion: FusionWeights
    calibration: Calibration
    fitted_on: frozenset[str]
    fixed_dense: float
    """The vectors' share in the best fixed mix: what the adaptive fusion has to beat."""
    background: Background | None = None


def fitted_for(model_name: str | None) -> Fitted:
    """Return the numbers fitted for this model, or those for any model."""
    if model_name is None:
        return read_fitted(FOLDER / f"{WITHOUT_VECTORS}.json")
    own = FOLDER / f"{model_name}.json"
    return read_fitted(own if own.exists() else FOLDER / f"{ANY_MODEL}.json")


def fitted_to(embedder: Embedder | None) -> Fitted:
    """Return the numbers fitted for an embedder, with the sample as wide as its vectors."""
    found = fitted_for(embedder.model_id.partition("@")[0] if embedder else None)
    if embedder is None or found.background is None:
        return found
    return replace(found, background=found.background.first(embedder.dimensions))


def background_file(fitted: Path) -> Path:
    """Return the file with the sample of tools that belongs to a fitted file."""
    return fitted.with_suffix(".npz")


@cache
def read_fitted(path: Path) -> Fitted:
    try:
        raw: dict[str, Any] = json.loads(path.read_text("utf-8"))
        background = background_file(path)
        return Fitted(
            FusionWeights.parse(raw["fusion"]),
            Calibration.parse(raw["calibration"]),
            frozenset(raw["fitted_on"]),
            float(raw["fixed_dense"]),
            Background.read(background) if background.exists() else None,
        )
    except (OSError, ValueError, KeyError) as error:
        raise ModelError(f"{str(path)!r} cannot be used ({error}); reinstall, or fit it again.") from None
