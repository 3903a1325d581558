from collections.abc import Iterable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shortlist.models import Asker, Exemplar, Filters, Query, ToolId
from shortlist.search.exemplars import EXEMPLARS, MOST_LIFT, Memory, Said, believed
from shortlist.search.searcher import Searcher, SearchOptions
from tests.fakes import WORKPLACE, HashingEmbedder, catalog, found, ids, searcher

ME, ANNA, BEN, EVE = (Asker(name, "team") for name in ("me", "anna", "ben", "eve"))
STRANGER = Asker("stranger", "elsewhere")
ASKED = "the crew should hear about the release"
FIRST = "github/create_pull_request"
CALLED = "slack/send_message"


def exemplar(by: Asker = ME, tool: ToolId = CALLED, query: str = ASKED, weight: float = 1.0) -> Exemplar:
    return Exemplar(query=query, tool=tool, by=by, weight=weight)


def taught(*exemplars: Exemplar, dense: bool = True) -> Searcher:
    memory = Memory()
    made = searcher(WORKPLACE, dense=dense, options=SearchOptions(memory=memory))
    memory.teach(exemplars)
    return made


def lifts(exemplars: Iterable[Exemplar], asker: Asker = ME, text: str = ASKED) -> dict[ToolId, float]:
    made = taught(*exemplars)
    hits = made.search(Query(text=text, limit=len(WORKPLACE), asker=asker)).hits
    signals = {hit.tool.id: hit.signals.get(EXEMPLARS) for hit in hits}
    return {tool_id: signal.score for tool_id, signal in signals.items() if signal is not None and signal.score}


def order(made: Searcher, asker: Asker = ME, text: str = ASKED) -> list[ToolId]:
    return found(made, text, limit=len(WORKPLACE), asker=asker)


@pytest.mark.parametrize("dense", [True, False], ids=["by vectors", "by words"])
def test_what_a_caller_called_for_a_query_comes_first_when_it_asks_alike(dense: bool) -> None:
    before, after = order(taught(dense=dense)), order(taught(exemplar(), dense=dense))
    assert before[0] != CALLED
    assert after[0] == CALLED
    assert sorted(after) == sorted(before)


def test_a_query_about_something_else_is_answered_as_before() -> None:
    text = "kubernetes pod logs"
    assert order(taught(exemplar(), dense=False), text=text) == order(taught(dense=False), text=text)


def test_one_other_caller_lifts_nothing_two_that_agree_do() -> None:
    assert lifts([exemplar(ANNA)]) == {}
    assert lifts([exemplar(ANNA), exemplar(ANNA, query=f"{ASKED} today")]) == {}
    assert lifts([exemplar(ANNA), exemplar(BEN)]).keys() == {CALLED}


def test_callers_of_another_group_are_not_heard() -> None:
    others = [exemplar(Asker(name, "elsewhere")) for name in ("anna", "ben", "me")]
    assert lifts(others) == {}
    assert lifts(others, STRANGER).keys() == {CALLED}


def test_what_counts_less_lifts_less() -> None:
    full, half, none = (lifts([exemplar(weight=weight)]).get(CALLED, 0.0) for weight in (1.0, 0.5, 0.0))
    assert MOST_LIFT > full > half > none == 0.0


def test_the_lift_is_shared_where_the_same_query_led_to_different_tools() -> None:
    both = lifts([exemplar(), exemplar(tool="mail/send_email")])
    assert both[CALLED] == pytest.approx(both["mail/send_email"])
    assert both[CALLED] < lifts([exemplar()])[CALLED]


def test_weak_evidence_does_not_displace_a_clear_match() -> None:
    text = "list the pods of a kubernetes namespace"
    far = exemplar(query="list the invoices of a customer and send the reminder")
    assert 0 < lifts([far], text=text)[CALLED] < MOST_LIFT / 4
    assert order(taught(far), text=text)[0] == "kubernetes/list_pods"


def test_a_tool_that_may_not_answer_is_not_lifted() -> None:
    filters = Filters(exclude=frozenset({CALLED}))
    assert CALLED not in ids(taught(exemplar()).search(Query(text=ASKED, asker=ME, filters=filters)))
    assert order(taught(exemplar(tool="gone/tool"))) == order(taught())


def test_an_exemplar_brings_in_a_tool_that_no_other_arm_knows() -> None:
    crowd = {f"s{n:03}/thing_{n}": "About something else." for n in range(150)}
    memory = Memory()
    made = searcher({**crowd, "slack/post": "Zzz."}, dense=False, options=SearchOptions(memory=memory))
    assert "slack/post" not in found(made, ASKED, limit=100, asker=ME)
    memory.teach([exemplar(tool="slack/post")])
    assert "slack/post" in found(made, ASKED, limit=100, asker=ME)


def test_an_explanation_says_what_exemplars_gave() -> None:
    explanation = taught(exemplar()).explain(Query(text=ASKED, asker=ME), CALLED)
    assert explanation.parts[EXEMPLARS] == pytest.approx(explanation.arms[EXEMPLARS].score)
    assert explanation.parts[EXEMPLARS] > 1
    assert "earlier requests that led to this tool" in explanation.text()


def test_a_hit_that_use_has_proven_is_surer() -> None:
    plain, proven = (made.search(Query(text=ASKED, asker=ME)) for made in (taught(), taught(exemplar())))
    assert proven.confidence.probability > plain.confidence.probability
    assert proven.confidence.match_probability > plain.confidence.match_probability


def test_a_searcher_that_may_not_learn_has_no_such_arm() -> None:
    assert EXEMPLARS not in searcher(WORKPLACE).pipeline.parts
    assert EXEMPLARS not in taught().pipeline.parts  # nor one that has learned nothing yet
    assert EXEMPLARS in taught(exemplar()).pipeline.parts


def test_exemplars_follow_a_change_of_the_model() -> None:
    memory = Memory()
    memory.teach([exemplar()])
    made = Searcher(
        catalog(WORKPLACE),
        HashingEmbedder("better@1"),
        fallback=HashingEmbedder("quick@1"),
        options=SearchOptions(memory=memory),
    )
    assert order(made)[0] == CALLED, "by words, before there is a vector"
    made.prepare()
    assert made.model_id == "better@1"
    assert order(made)[0] == CALLED
    memory.follow(HashingEmbedder("another@1"))
    assert order(made) == order(taught()), "vectors of different models are never compared"


said = st.builds(
    exemplar,
    by=st.sampled_from([ANNA, BEN]),
    tool=st.sampled_from(sorted(WORKPLACE)[:6]),
    query=st.sampled_from([ASKED, "tell the team", "list what happened", "send the release notes"]),
    weight=st.floats(0.1, 1),
)
TARGET = "weather/get_forecast"


@given(st.lists(said, max_size=8), st.integers(1, 60))
def test_a_hostile_caller_cannot_change_anything_by_a_tool_that_nobody_else_calls(
    honest: list[Exemplar], times: int
) -> None:
    flood = [exemplar(EVE, TARGET, f"{ASKED} {n}") for n in range(times)]
    asked = [exemplar(EVE, TARGET, ASKED)]
    assert lifts([*honest, *asked, *flood]) == lifts(honest)


@given(st.lists(said, max_size=8), st.integers(1, 20))
def test_a_hostile_caller_adds_no_more_to_a_tool_than_honest_ones_say_for_it(
    honest: list[Exemplar], times: int
) -> None:
    with_eve = lifts([*honest, *(exemplar(EVE, CALLED, f"{ASKED}{' now' * n}") for n in range(times))])
    if not any(each.tool == CALLED for each in honest):
        assert CALLED not in with_eve
    assert sum(with_eve.values()) < MOST_LIFT


@given(st.lists(st.floats(0, 1), max_size=6), st.floats(0, 1_000))
def test_what_is_believed_of_others_is_bounded_by_what_the_rest_of_them_say(
    honest: list[float], shouted: float
) -> None:
    voices = [Said(CALLED, f"caller {n}", strength) for n, strength in enumerate(honest)]
    heard = believed([*voices, Said(CALLED, "eve", shouted)], CALLED, "me")
    assert heard <= sum(honest) + 1e-6
    assert heard >= believed(voices, CALLED, "me") - 1e-6


def test_the_same_exemplars_in_another_order_lift_the_same() -> None:
    exemplars = [exemplar(by, tool, f"{ASKED} {n}") for n in range(9) for by in (ANNA, BEN) for tool in (CALLED, FIRST)]
    shuffled = [exemplars[n] for n in np.random.default_rng(1).permutation(len(exemplars))]
    assert lifts(exemplars) == lifts(shuffled)
