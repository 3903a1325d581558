import numpy as np
import pytest

from shortlist.index.ports import Among
from shortlist.models import Query, SearchMode
from shortlist.search.pipeline import Diversity, Ranking, Request
from shortlist.search.searcher import Searcher, SearchOptions
from shortlist.text.queries import analyse
from tests.fakes import TWINS, found, searcher


def test_near_duplicates_collapse_into_one_family(twins: Searcher) -> None:
    (head, *rest) = twins.search(Query(text="create an issue", collapse=True)).hits
    assert {head.tool.id, *head.family} == {i for i in TWINS if i.endswith("/create_issue")}
    assert not any(hit.tool.name == "create_issue" for hit in rest)
    assert len(rest) == 2


def test_without_collapsing_near_duplicates_stand_side_by_side_in_the_order_of_their_ids(twins: Searcher) -> None:
    result = twins.search(Query(text="create an issue"))
    assert [hit.tool.id for hit in result.hits[:3]] == sorted(i for i in TWINS if i.endswith("/create_issue"))
    assert not any(hit.family for hit in result.hits)


@pytest.mark.parametrize("server", ["github", "gitlab", "jira"])
def test_the_server_just_used_heads_its_family(twins: Searcher, server: str) -> None:
    head = twins.search(Query(text="create an issue", collapse=True, recent_servers=(server,))).hits[0]
    assert head.tool.id == f"{server}/create_issue"
    assert len(head.family) == 2


@pytest.mark.parametrize("name", ["createIssue", "gitlab_create_issue", "Create-Issue"])
def test_a_name_spelled_otherwise_or_with_one_word_before_it_is_of_the_family(name: str) -> None:
    offers = ("github/create_issue", f"gitlab/{name}")
    result = searcher(dict.fromkeys(offers, "Create an issue in a repository.")).search(
        Query(text="create an issue", collapse=True, diverse=True)
    )
    (head,) = result.hits
    assert {head.tool.id, *head.family} == set(offers)


def test_tools_of_one_server_are_no_family() -> None:
    both = ("github/create_issue", "github/createIssue")
    result = searcher(dict.fromkeys(both, "Create an issue.")).search(Query(text="create an issue", collapse=True))
    assert len(result.hits) == 2


def test_tools_that_only_share_a_name_are_no_family() -> None:
    result = searcher(
        {"github/search": "Search code in repositories.", "spotify/search": "Find songs, albums and artists."}
    ).search(Query(text="search", collapse=True))
    assert all(hit.family == () for hit in result.hits)


def test_of_names_that_were_begun_the_nearest_to_their_end_come_first() -> None:
    names = ("ci/run_everything_there_is", "ci/run_tests", "ci/run_quality_gate", "ci/rerun_tests")
    source = searcher(dict.fromkeys(names, "Run, run and run again what the project has."))
    assert found(source, "run_")[:3] == ["ci/run_tests", "ci/run_quality_gate", names[0]]


@pytest.mark.parametrize("recent", [("gitlab",), ("jira", "gitlab"), ("gitlab", "jira")])
def test_servers_used_recently_are_lifted_the_last_one_most(twins: Searcher, recent: tuple[str, ...]) -> None:
    lifted = found(twins, "create an issue", recent_servers=recent)[: len(recent)]
    assert lifted == [f"{server}/create_issue" for server in recent]


def test_a_recent_server_does_not_beat_a_clear_match_elsewhere(workplace: Searcher) -> None:
    assert found(workplace, "send_email", recent_servers=("slack",))[0] == "mail/send_email"


@pytest.mark.parametrize("mode", ["hybrid", "lexical", "fuzzy", "prefix", "exact", "regex"])
def test_a_boost_far_down_a_long_list_reaches_the_top(mode: SearchMode) -> None:
    source = searcher({f"s{n:03}/list_things": "List things." for n in range(120)}, dense=False)
    result = source.search(Query(text="list_things", mode=mode, limit=100, recent_servers=("s099",)))
    assert result.hits[0].tool.id == "s099/list_things"


def test_what_is_called_together_is_lifted() -> None:
    def together(tool_id: str) -> dict[str, float]:
        return {"jira/create_issue": 1.0} if tool_id == "mail/send_email" else {}

    source = searcher(TWINS, dense=False, options=SearchOptions(together=together))
    assert found(source, "create an issue", recent_tools=("mail/send_email",))[0] == "jira/create_issue"
    assert found(source, "create an issue", recent_tools=("github/list_branches",))[0] == "github/create_issue"


def test_diversity_brings_a_different_tool_before_more_of_the_same() -> None:
    crowd = {f"s/create_issue_{n}": "Create an issue in the tracker." for n in range(4)}
    index = searcher({**crowd, "s/notify_people": "Notify by message.", "s/zip": "Zip a folder."}).index
    ranking = Ranking(
        np.array([index.rows[i] for i in (*crowd, "s/notify_people", "s/zip")], np.int32),
        np.array([1.0, 0.99, 0.98, 0.97, 0.95, 0.0], np.float32),
    )
    spread, plain = (
        Diversity(index)(Request(Query(text="x", limit=3, diverse=diverse), analyse("x"), Among()), ranking)
        for diverse in (True, False)
    )
    assert [index.ids[row] for row, _ in spread][:2] == ["s/create_issue_0", "s/notify_people"]
    assert sorted(spread.rows.tolist()) == sorted(ranking.rows.tolist()), "nothing is lost"
    assert plain is ranking
