"""The numbers that were fitted for each model: of the fusion, the calibration, tools of other catalogs and glosses."""

import json
import zlib
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np

from shortlist.errors import ModelError
from shortlist.index.embedders import Embedder, Vectors
from shortlist.index.vectors import quantise
from shortlist.search.fusion import Background, Calibration, FusionWeights
from shortlist.search.pipeline import Matrix

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
    """The weight of the vectors in the best fixed mix, the baseline of the adaptive fusion."""
    background: Background | None = None
    glosses: Matrix | None = None
    """A linear map from the vector of a gloss to that of the English request it stands for."""

    def as_english(self, gloss: Vectors) -> Vectors:
        """Move the vector of a gloss to where its English request would be; only where this model has a map."""
        if self.glosses is None or len(self.glosses) != len(gloss):
            return gloss
        moved: Vectors = gloss @ self.glosses
        return moved


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


def gloss_file(fitted: Path) -> Path:
    """Return the file with the map of glosses that belongs to a fitted file."""
    return fitted.with_suffix(".glosses.npz")


def save_glosses(path: Path, mapped: Matrix) -> None:
    """Write a map of glosses by what it differs from the identity, in bytes with a scale for each row."""
    codes, scales = quantise(mapped - np.eye(len(mapped), dtype=np.float32))
    np.savez_compressed(path, codes=codes, scales=scales)


def read_glosses(path: Path) -> Matrix:
    with np.load(path) as stored:
        found: Matrix = np.eye(len(stored["codes"]), dtype=np.float32) + stored["codes"] * stored["scales"][:, None]
    return found


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
            read_glosses(glosses) if (glosses := gloss_file(path)).exists() else None,
        )
    except (OSError, ValueError, KeyError, EOFError, BadZipFile, zlib.error) as error:
        raise ModelError(f"{str(path)!r} cannot be used ({error}); reinstall, or fit it again.") from None
