import pytest
from hypothesis import given
from hypothesis import strategies as st

from shortlist.disclosure.budget import PIECE, costs, estimate_tokens, fit, kind_of

EXACT = {
    "Create a new issue in a GitHub repository. The body accepts Markdown.": 15,
    '{"type":"object","properties":{"owner":{"type":"string","description":"Account name"}}}': 19,
    "slack__post_message(channel: string, text: string, thread_ts?: string)": 18,
    "List all the databases that the current user may read, with their owners and sizes.": 17,
}
"""Counted with tiktoken's o200k_base."""


def test_the_estimate_is_near_the_exact_count() -> None:
    estimated = sum(estimate_tokens(text) for text in EXACT)
    assert abs(estimated - sum(EXACT.values())) / sum(EXACT.values()) <= 0.05


@pytest.mark.parametrize("text", list(EXACT))
def test_no_single_text_is_far_off(text: str) -> None:
    assert abs(estimate_tokens(text) - EXACT[text]) <= 3


@given(st.text(max_size=300))
def test_any_text_has_a_cost_between_nothing_and_its_bytes(text: str) -> None:
    assert 0 <= estimate_tokens(text) <= 2 * len(text.encode("utf-8", "surrogatepass")) + 1


@given(st.lists(st.integers(1, 20)), st.integers(0, 100))
def test_what_fits_is_a_prefix_within_the_budget(costs: list[int], budget: int) -> None:
    taken, left = fit(costs, budget, lambda cost: cost)
    assert list(taken) == costs[: len(taken)]
    assert sum(taken) <= budget
    assert left == len(costs) - len(taken)
    assert left == 0 or sum(costs[: len(taken) + 1]) > budget


@given(st.text(st.sampled_from(" \n\t/_-'aZé9,(漢") | st.characters(exclude_categories=["Cs"]), max_size=60))
def test_words_that_are_remembered_cost_what_their_pieces_cost(text: str) -> None:
    matches = [each for each in PIECE.finditer(text) if each.group()]
    table = costs()
    exact = sum(
        table.pieces[each.group()]
        if each.group() in table.pieces
        else table.kinds.get((kind := kind_of(each))[0], 1.0) * kind[1]
        for each in matches
    )
    assert estimate_tokens(text) == pytest.approx(exact, abs=0.51)
