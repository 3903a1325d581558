"""Rankings of the golden set as they were recorded: rebuilding the engine must not move a hit.

`python -m benchmarks.parity record tests/search/data/golden_rankings.json` records them again after a change that is
meant to alter rankings.
"""

from pathlib import Path

import pytest
from benchmarks.parity import Rankings, differences, read_rankings, record_golden

RECORDED = Path(__file__).parent / "data" / "golden_rankings.json"


@pytest.fixture(scope="module")
def recorded() -> dict[str, Rankings]:
    return read_rankings(RECORDED)


def test_every_recorded_ranking_is_found_again(recorded: dict[str, Rankings]) -> None:
    assert differences(recorded, record_golden()) == []


def test_a_hit_that_moves_or_a_score_that_changes_is_a_difference(
    recorded: dict[str, Rankings],
) -> None:
    asked, hits = next(iter(recorded["none"].items()))
    (first, score), *rest = hits
    moved = {"none": {asked: [*rest, [first, score]]}}
    rescored = {"none": {asked: [[first, float(str(score)) + 0.01], *rest]}}
    before = {"none": {asked: hits}}
    assert differences(before, before) == []
    assert len(differences(before, moved)) == len(differences(before, rescored)) == 1
