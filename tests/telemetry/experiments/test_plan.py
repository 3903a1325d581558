from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shortlist.errors import InvalidInput
from shortlist.telemetry.events import Event, Exposed
from shortlist.telemetry.experiments.plan import (
    AS_CONFIGURED,
    Assignments,
    Experiment,
    Variant,
    read_variant,
)

DYNAMIC = Variant(mode="dynamic")
MODES = Experiment(name="modes", variants=(AS_CONFIGURED, DYNAMIC), metric="errors", started=1)


@given(st.text())
def test_a_workspace_is_always_assigned_to_the_same_variant(workspace: str) -> None:
    read_again = Experiment.from_data(MODES.data())
    assert MODES.assign(workspace) == MODES.assign(workspace) == read_again.assign(workspace)


@pytest.mark.parametrize("count", [2, 3, 5])
def test_workspaces_spread_evenly_over_the_variants(count: int) -> None:
    variants = (AS_CONFIGURED, *(Variant(limit=limit) for limit in range(1, count)))
    experiment = Experiment(name="spread", variants=variants, metric="errors")
    sizes = Counter(experiment.assign(f"session:{i}") for i in range(6_000))
    assert all(abs(size - 6_000 / count) < 4 * (6_000 / count) ** 0.5 for size in sizes.values())
    assert len(sizes) == count


def test_another_experiment_meets_other_halves() -> None:
    other = Experiment(name="other", variants=MODES.variants, metric="errors", started=1)
    same = sum(MODES.assign(f"w{i}") == other.assign(f"w{i}") for i in range(2_000))
    assert 900 < same < 1_100


def test_a_plan_is_read_back_as_it_was_written() -> None:
    whole = Experiment(
        name="all",
        variants=(Variant(mode="search", detail="full"), Variant(preset="mine", pipeline="rrf", limit=7)),
        metric="tokens",
        guardrails=("errors",),
        alpha=0.01,
        minimum=10,
        started=5,
        stopped=9,
    )
    assert Experiment.from_data(whole.data()) == whole


def test_a_variant_is_written_as_people_write_it_and_named_by_what_it_sets() -> None:
    variant = read_variant(" mode=dynamic , limit=10")
    assert variant == Variant(mode="dynamic", limit=10)
    assert variant.name == "mode=dynamic,limit=10"
    assert read_variant(variant.name) == variant
    assert read_variant(AS_CONFIGURED.name) == AS_CONFIGURED


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("speed=fast", "A variant sets mode, preset, pipeline, detail, limit"),
        ("mode", "as in mode=dynamic,limit=10"),
        ("mode=fast", "mode must be one of search, dynamic"),
        ("detail=long", "detail must be one of"),
        ("limit=0", "limit must be between 1 and 50"),
        ("limit=many", "limit must be between 1 and 50"),
    ],
)
def test_a_variant_that_cannot_be_served_is_refused_with_what_would_do(text: str, said: str) -> None:
    with pytest.raises(InvalidInput, match=said):
        read_variant(text)


def test_without_an_experiment_everybody_is_served_as_configured_and_nothing_is_recorded() -> None:
    recorded: list[Event] = []
    assignments = Assignments(recorded.append)
    assert assignments("local", "session:1") == AS_CONFIGURED
    assert assignments.assign is None, "so that no request enters it"
    assert recorded == []


def test_the_first_time_a_workspace_is_served_is_recorded_and_the_next_experiment_begins_anew() -> None:
    recorded: list[Event] = []
    assignments = Assignments(recorded.append)
    assert assignments.follow(MODES)
    assert not assignments.follow(MODES)
    served = [assignments("ann", "w1"), assignments("ann", "w1"), assignments("bob", "w2")]
    assert served == [MODES.assign("w1"), MODES.assign("w1"), MODES.assign("w2")]
    assert recorded == [
        Exposed(caller="ann", workspace="w1", experiment="modes", variant=MODES.assign("w1").name),
        Exposed(caller="bob", workspace="w2", experiment="modes", variant=MODES.assign("w2").name),
    ]
    assert assignments.follow(None)
    assert assignments("ann", "w1") == AS_CONFIGURED
    assert len(recorded) == 2
