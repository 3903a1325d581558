"""What was fitted for an embedder: fusion and calibration, kept beside the weights."""

import json
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from shortlist.errors import ModelError
from shortlist.index.embedders import Embedder
from shortlist.search.background import Background
from shortlist.search.confidence import Calibration
from shortlist.search.fusion import FusionWeights

FOLDER = Path(__file__).parent.parent / "weights" / "search"
WITHOUT_VECTORS = "none"
ANY_MODEL = "any"
"""For embedders that nothing was fitted for: fitted on an untuned general model."""


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
    """Give what fits this model best: its own numbers, or those for any model."""
    if model_name is None:
        return read_fitted(FOLDER / f"{WITHOUT_VECTORS}.json")
    own = FOLDER / f"{model_name}.json"
    return read_fitted(own if own.exists() else FOLDER / f"{ANY_MODEL}.json")


def fitted_to(embedder: Embedder | None) -> Fitted:
    """Give what fits an embedder best, as wide as its vectors are."""
    found = fitted_for(embedder.model_id.partition("@")[0] if embedder else None)
    if embedder is None or found.background is None:
        return found
    return replace(found, background=found.background.first(embedder.dimensions))


def background_file(fitted: Path) -> Path:
    """Name the sample of tools at large that belongs to a fitted file."""
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
