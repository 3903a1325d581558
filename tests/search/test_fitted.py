import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from shortlist.errors import ModelError
from shortlist.search.fitted import (
    ANY_MODEL,
    FOLDER,
    WITHOUT_VECTORS,
    fitted_for,
    gloss_file,
    read_fitted,
    read_glosses,
    save_glosses,
)
from shortlist.search.fusion import CANDIDATE_FEATURES, QUERY_FEATURES
from shortlist.search.pipeline import Evidence
from shortlist.text.queries import analyse


def shipped() -> dict[str, Any]:
    raw: dict[str, Any] = json.loads((FOLDER / f"{WITHOUT_VECTORS}.json").read_text("utf-8"))
    return raw


def test_a_model_that_nothing_was_fitted_for_takes_the_numbers_for_any() -> None:
    assert fitted_for("never heard of") is read_fitted(FOLDER / f"{ANY_MODEL}.json")
    assert fitted_for(None) is read_fitted(FOLDER / f"{WITHOUT_VECTORS}.json")


@pytest.mark.parametrize(
    "content",
    [
        None,
        "",
        "{",
        "{}",
        json.dumps({**shipped(), "fusion": {**shipped()["fusion"], "candidate_features": ["other"]}}),
        json.dumps({**shipped(), "calibration": {**shipped()["calibration"], "features": []}}),
    ],
    ids=["missing", "empty", "cut", "without parts", "fusion of another version", "calibration of another version"],
)
def test_fitted_numbers_that_do_not_fit_are_refused(tmp_path: Path, content: str | None) -> None:
    path = tmp_path / "model.json"
    if content is not None:
        path.write_text(content, "utf-8")
    with pytest.raises(ModelError, match="fit it again"):
        read_fitted(path)


def test_a_map_of_glosses_survives_saving(tmp_path: Path) -> None:
    mapped = np.eye(16, dtype=np.float32) + np.random.default_rng(1).normal(0, 0.01, (16, 16)).astype(np.float32)
    save_glosses(file := tmp_path / "model.glosses.npz", mapped)
    assert read_glosses(file) == pytest.approx(mapped, abs=3e-4)


@pytest.mark.parametrize("damage", [b"", b"PK\x03\x04 cut", None])
def test_a_damaged_map_of_glosses_is_refused(tmp_path: Path, damage: bytes | None) -> None:
    shutil.copy(FOLDER / f"{WITHOUT_VECTORS}.json", path := tmp_path / "model.json")
    save_glosses(file := gloss_file(path), np.eye(16, dtype=np.float32))
    file.write_bytes(file.read_bytes()[:200] if damage is None else damage)
    with pytest.raises(ModelError, match="reinstall, or fit it again"):
        read_fitted(path)


def test_the_weights_of_glosses_are_added_for_glossed_requests_alone() -> None:
    fusion = fitted_for("shortlist-small").fusion
    query = np.ones(len(QUERY_FEATURES), np.float32)
    evidence = Evidence(np.zeros(1, np.int64), np.zeros((1, len(CANDIDATE_FEATURES)), np.float32), query)
    assert fusion.glossed is not None
    plain, glossed = fusion.for_query(evidence), fusion.for_query(evidence, is_glossed=True)
    assert np.allclose(plain, fusion.theta @ query)
    assert np.allclose(glossed - plain, fusion.glossed, atol=1e-5)
    assert not analyse("list the files of a folder").is_glossed
    assert analyse("покажи все файлы в папке").is_glossed
