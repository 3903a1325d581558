"""Tools at large tell a query for somebody else's tools."""

from pathlib import Path

import numpy as np
import pytest

from shortlist.index.embedders import shipped
from shortlist.models import Query
from shortlist.search.fitted import FOLDER, background_file, fitted_for, fitted_to
from shortlist.search.fusion import NEAREST, Background
from shortlist.search.searcher import Searcher
from tests.fakes import WORKPLACE, catalog


def sample(*first: float) -> Background:
    """Tools whose only difference is how much they point along the first axis."""
    along = np.array(first, np.float32)
    return Background.of(np.stack([along, np.sqrt(1 - along**2)], axis=1))


def test_nearness_is_the_mean_of_the_nearest() -> None:
    background = sample(*[0.9] * NEAREST, *[-1.0] * 50)

    assert background.nearness(np.array([[1.0, 0.0]], np.float32)) == pytest.approx(0.9, abs=0.01)


def test_a_query_of_several_parts_is_read_as_a_whole() -> None:
    background = sample(*[1.0] * NEAREST)
    whole, part = [1.0, 0.0], [0.0, 1.0]

    assert background.nearness(np.array([whole, part], np.float32)) == pytest.approx(1.0, abs=0.01)


def test_what_is_written_reads_back_the_same(tmp_path: Path) -> None:
    background, query = sample(*np.linspace(-1, 1, 40)), np.array([[0.6, 0.8]], np.float32)
    background.write(tmp_path / "some.npz")

    assert Background.read(tmp_path / "some.npz").nearness(query) == background.nearness(query)


def test_the_sample_is_as_wide_as_the_model() -> None:
    narrow, whole = shipped("small:128"), fitted_for("shortlist-small").background
    assert narrow is not None
    assert whole is not None
    background, query = fitted_to(narrow).background, narrow.embed_query("what is the weather like")[None]
    assert background is not None
    first = whole.sample.vectors(np.arange(whole.sample.size))[:, :128]
    cosines = np.sort((first / np.linalg.norm(first, axis=1, keepdims=True)) @ query[0])
    assert background.nearness(query) == pytest.approx(cosines[-NEAREST:].mean(), abs=0.01)


def test_a_search_runs_with_fewer_dimensions() -> None:
    narrow = Searcher(catalog(WORKPLACE), shipped("small:128"))
    narrow.prepare()
    result = narrow.search(Query(text="I want my branch reviewed and merged by the others"))
    assert result.hits[0].tool.server == "github"
    assert narrow.index.dense is not None
    assert narrow.index.dense.dimensions == 128


@pytest.mark.parametrize("model", ["shortlist-small", "shortlist-static"])
def test_the_shipped_models_have_a_sample_of_their_own(model: str) -> None:
    assert fitted_for(model).background is not None
    assert background_file(FOLDER / f"{model}.json").stat().st_size < 500_000


def test_an_unknown_model_has_none() -> None:
    assert fitted_for("somebody-elses").background is None
