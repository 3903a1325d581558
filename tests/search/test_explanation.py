import pytest

from shortlist.errors import InvalidInput, ToolNotFound
from shortlist.models import Query
from shortlist.search.pipeline import SPELLED_BOOST
from shortlist.search.searcher import Searcher


@pytest.mark.parametrize("text", ["create a calendar event", "k8s pods", "calender", "send_email", "🎉"])
def test_the_parts_of_an_explanation_add_up_to_the_fused_score(workplace: Searcher, text: str) -> None:
    for hit in workplace.search(Query(text=text)).hits:
        explanation = workplace.explain(Query(text=text), hit.tool.id)
        assert explanation.rank == hit.rank
        assert explanation.score == hit.score
        boost = SPELLED_BOOST if text == hit.tool.name else 0
        assert sum(explanation.parts.values()) + boost == pytest.approx(hit.score, abs=1e-3)


def test_the_matches_of_an_explanation_add_up_to_the_words_score(workplace: Searcher) -> None:
    explanation = workplace.explain(Query(text="open a PR for the brnch zorbnax"), "github/create_pull_request")
    assert sum(match.score for match in explanation.matches) == pytest.approx(
        explanation.arms["lexical"].score, rel=1e-4
    )
    assert "zorbnax" in explanation.unmatched


def test_an_explanation_says_where_each_word_was_found(workplace: Searcher) -> None:
    explanation = workplace.explain(Query(text="open a PR for the brnch"), "github/create_pull_request")
    matched = {match.asked: match for match in explanation.matches}
    assert matched["open"].fields == ("description",)
    assert matched["pr"].found in ("pull", "request")
    assert "name" in matched["pr"].fields
    assert explanation.corrected == {"brnch": "branch"}
    assert matched["branch"].found == "branch"
    assert explanation.arms["lexical"].rank == 1
    assert explanation.text().startswith("github/create_pull_request: rank ")


def test_an_explanation_shows_what_each_stage_moved(twins: Searcher) -> None:
    query = Query(text="create an issue", recent_servers=("jira",))
    assert twins.explain(query, "jira/create_issue").stages == {"context": (3, 1)}
    assert twins.explain(query, "github/create_issue").stages == {"context": (1, 2)}


def test_an_explained_search_is_the_search_with_an_explanation_of_each_hit(workplace: Searcher) -> None:
    query = Query(text="create a calendar event")
    found = workplace.explained(query)
    assert found.result.hits == workplace.search(query).hits
    assert list(found.explanations) == [workplace.explain(query, hit.tool.id) for hit in found.result.hits]


def test_an_explained_search_asks_the_pipeline_that_is_named(workplace: Searcher) -> None:
    found = workplace.explained(Query(text="k8s pods", pipeline="stackone"))
    assert {step.name for step in found.result.steps} >= {"bm25", "tfidf"}
    with pytest.raises(InvalidInput, match="No pipeline 'best': there are default"):
        workplace.explained(Query(text="k8s pods", pipeline="best"))


def test_a_tool_that_was_not_found_is_explained_too(workplace: Searcher) -> None:
    explanation = workplace.explain(Query(text="weather forecast", limit=1), "mail/send_email")
    assert explanation.rank is None
    assert explanation.unmatched
    assert "not among the results" in explanation.text()


def test_explaining_an_unknown_tool_suggests_the_nearest(workplace: Searcher) -> None:
    with pytest.raises(ToolNotFound, match="mail/send_email"):
        workplace.explain(Query(text="x"), "mail/send_emial")
