import pytest

from shortlist.errors import InvalidInput
from shortlist.models import Query
from shortlist.search.presets import PIPELINES
from shortlist.search.searcher import Searcher, SearchOptions
from tests.fakes import WORKPLACE, catalog, found, searcher


def test_exact_mode_finds_the_name_and_nothing_else(workplace: Searcher) -> None:
    assert found(workplace, "send_email", mode="exact") == ["mail/send_email"]
    assert found(workplace, "send", mode="exact") == []
    assert found(searcher({"a/🎉": "Party."}), "!!!", mode="exact") == []


def test_prefix_mode_prefers_the_shortest_that_starts_so(workplace: Searcher) -> None:
    assert found(workplace, "list_c", mode="prefix") == ["github/list_commits", "slack/list_channels"]


def test_fuzzy_mode_forgives_order_and_slips(workplace: Searcher) -> None:
    assert found(workplace, "request pull merge", mode="fuzzy")[0] == "github/merge_pull_request"
    assert found(workplace, "serach_fiels", mode="fuzzy")[0] == "files/search_files"


def test_regex_mode_matches_names_before_descriptions(workplace: Searcher) -> None:
    assert set(found(workplace, "^list_", mode="regex")) == {
        "calendar/list_events",
        "github/list_commits",
        "kubernetes/list_pods",
        "slack/list_channels",
    }
    assert found(workplace, "Q(UE)?RY", mode="regex") == ["postgres/run_query"]
    assert found(workplace, "attachments", mode="regex") == ["mail/send_email"]
    assert found(workplace, "^github/", mode="regex", limit=10) == sorted(
        i for i in WORKPLACE if i.startswith("github/")
    )


@pytest.mark.parametrize("name", sorted(PIPELINES))
def test_every_pipeline_answers_and_survives_an_update(name: str) -> None:
    options = SearchOptions(pipeline=name)
    changing = searcher(WORKPLACE, options=options)
    assert found(changing, "send_email")[0] == "mail/send_email"
    left = catalog({i: text for i, text in WORKPLACE.items() if not i.startswith("calendar/")})
    changing.update(left)
    changing.prepare()
    fresh = searcher(left, options=options)
    assert found(changing, "send_email") == found(fresh, "send_email")
    assert found(changing, "list_pods")[0] == "kubernetes/list_pods"


@pytest.mark.parametrize("name", sorted(PIPELINES.keys() - {"dense"}))
def test_every_pipeline_forgets_the_words_that_left(name: str) -> None:
    options = SearchOptions(pipeline=name)
    changing = searcher(WORKPLACE, dense=False, options=options)
    found(changing, "forcast")
    newer = catalog({**dict(list(WORKPLACE.items())[:12]), "sport/get_forecourt": "Find the forecourt of a club."})
    changing.update(newer)
    for text in ("forcast", "send_message"):
        assert found(changing, text) == found(searcher(newer, dense=False, options=options), text)


def test_dense_mode_asks_the_vectors_whatever_the_pipeline_is() -> None:
    by_default_lexical = searcher(WORKPLACE, options=SearchOptions(pipeline="lexical"))
    assert found(by_default_lexical, "weather forecast city", mode="dense")[0] == "weather/get_forecast"


def test_an_unknown_pipeline_is_refused_with_those_there_are() -> None:
    with pytest.raises(InvalidInput, match="No pipeline 'fast': there are default"):
        searcher(WORKPLACE, options=SearchOptions(pipeline="fast")).search(Query(text="x"))


def test_a_pipeline_without_a_part_is_a_pipeline(workplace: Searcher) -> None:
    less = workplace.pipeline.without("dense", "families")
    assert less.parts == tuple(part for part in workplace.pipeline.parts if part not in ("dense", "families"))
    with pytest.raises(InvalidInput, match="has no part"):
        workplace.pipeline.without("magic")
