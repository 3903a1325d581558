import json
from pathlib import Path
from typing import Any

import pytest

from shortlist.errors import ModelError
from shortlist.search.fusion import ANY_MODEL, FOLDER, WITHOUT_VECTORS, fitted_for, read_fitted


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
