from dataclasses import replace
from itertools import pairwise

from shortlist.models import Confidence, Hit, Query, SearchResult, Tool
from shortlist.search.searcher import Searcher
from shortlist.search.wishes import serve_each
from shortlist.text.queries import Wish
from tests.fakes import WORKPLACE, HashingEmbedder, catalog


def searcher() -> Searcher:
    made = Searcher(catalog(WORKPLACE), HashingEmbedder())
    made.prepare()
    return made


BOTH = "merge the pull request and send an email to Ana"


def test_every_wish_is_served_before_one_is_served_twice() -> None:
    found = searcher().search(Query(text=BOTH, limit=5))
    assert {hit.tool.name for hit in found.hits[:2]} == {"merge_pull_request", "send_email"}


def test_the_answer_says_which_hit_is_for_which_wish() -> None:
    found = searcher().search(Query(text=BOTH, limit=5))
    by_name = {hit.tool.name: hit.wish for hit in found.hits[:2]}
    assert by_name == {"merge_pull_request": "merge the pull request", "send_email": "send an email to Ana"}
    assert [wish.text for wish in found.wishes] == ["merge the pull request", "send an email to Ana"]


def test_ranks_and_scores_of_a_merged_answer_fall() -> None:
    hits = searcher().search(Query(text=BOTH, limit=6)).hits
    assert [hit.rank for hit in hits] == list(range(1, len(hits) + 1))
    assert all(before.score >= after.score for before, after in pairwise(hits))
    assert len({hit.tool.id for hit in hits}) == len(hits)


def test_one_wish_is_answered_as_ever() -> None:
    found = searcher().search(Query(text="merge the pull request", limit=5))
    assert found.wishes == ()
    assert all(hit.wish == "" for hit in found.hits)


def test_a_wish_without_a_clear_tool_gets_the_places_that_a_clear_one_does_not_need() -> None:
    undecided = [3.0 - 0.05 * place for place in range(12)]
    whole, clear, unclear = (answered(*scores) for scores in (undecided, (9.0, 1.0, 0.9), (1.0, 0.9, 0.8)))
    hits = serve_each(whole, (Wish("first"), Wish("second")), (clear, unclear)).hits
    assert [hit.wish for hit in hits[:3]] == ["first", "second", "second"]


def test_a_tool_that_the_whole_request_asks_for_comes_before_the_second_choice_of_a_wish() -> None:
    whole, clear, other = (answered(*scores) for scores in ((5.0, 2.0, 1.0), (9.0, 5.0, 4.9), (8.0, 4.0, 3.9)))
    hits = serve_each(whole, (Wish("first"), Wish("second")), (clear, other)).hits
    assert hits[2].tool.id == whole.hits[0].tool.id
    assert hits[2].wish == ""


def test_a_request_that_is_surer_as_a_whole_is_not_taken_apart() -> None:
    whole, first, second = (answered(*scores) for scores in ((5.0, 2.0), (9.0, 5.0), (8.0, 4.0)))
    surer = replace(whole, confidence=replace(whole.confidence, probability=0.6))
    assert serve_each(surer, (Wish("first"), Wish("second")), (first, second)) is surer


def test_short_parts_with_a_tool_each_are_several_wishes_though_the_whole_is_surer_of_one_of_them() -> None:
    wishes, found = (Wish("merge pull request 12"), Wish("tell #dev")), (answered(9.0, 5.0), answered(8.0, 4.0))
    surer = replace(found[0], confidence=replace(found[0].confidence, probability=0.8))
    assert [served.text for served in serve_each(surer, wishes, found).wishes] == ["merge pull request 12", "tell #dev"]


def test_a_long_part_is_not_a_wish_of_its_own_where_the_whole_request_is_surer() -> None:
    wishes = (Wish("run ipconfig on the office machine in the basement"), Wish("tell me the servers"))
    found = (answered(9.0, 5.0), answered(8.0, 4.0))
    surer = replace(found[0], confidence=replace(found[0].confidence, probability=0.8))
    assert serve_each(surer, wishes, found) is surer


def test_a_short_part_without_a_likely_tool_is_not_a_wish_of_its_own_where_the_whole_request_is_surer() -> None:
    first, second = answered(9.0, 5.0), answered(8.0, 4.0)
    surer = replace(first, confidence=replace(first.confidence, probability=0.8))
    unlikely = replace(second, confidence=replace(second.confidence, level="low", probability=0.3))
    assert serve_each(surer, (Wish("add up the hours"), Wish("give me the sum")), (first, unlikely)) is surer


def answered(*scores: float) -> SearchResult:
    """Return an answer whose hits have some scores and are nobody else's."""
    tools = [Tool(id=f"{scores[0]}/{score}", server="s", name=f"t{score}") for score in scores]
    return SearchResult(
        query=Query(text="something"),
        hits=tuple(Hit(tool, score, rank) for rank, (tool, score) in enumerate(zip(tools, scores, strict=True), 1)),
        confidence=Confidence(level="medium", probability=0.5, match_probability=0.9, reasons=()),
    )
