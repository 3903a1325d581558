"""Sentences about what a search finds."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shortlist.errors import InvalidInput, InvalidQuery, ModelError, ToolNotFound
from shortlist.index.index import Index
from shortlist.models import Filters, Query, Ranking, SearchMode, Server, Tool
from shortlist.search.fitted import fitted_for
from shortlist.search.presets import PIPELINES, Parts
from shortlist.search.request import Request
from shortlist.search.searcher import MAX_LIMIT, Options, Searcher
from shortlist.search.stages import Diversity
from shortlist.text.clean import clean_text
from shortlist.text.queries import analyse, parse_expansions
from tests.fakes import WORKPLACE, HashingEmbedder, catalog, found, searcher, tool

MODES: tuple[SearchMode, ...] = ("hybrid", "lexical", "dense", "fuzzy", "prefix", "exact")
BOMBS = [
    "(a+)+$",
    "(?:a|a)*b",
    "((((((((((x*)*)*)*)*)*)*)*)*)*",
    "(.*){1000}",
    "[" * 500,
    "(" * 500,
    "(?=x)y",
    r"\1(a)",
]


@pytest.fixture(scope="module")
def workplace() -> Searcher:
    return searcher(WORKPLACE)


@pytest.fixture(scope="module")
def by_words() -> Searcher:
    return searcher(WORKPLACE, dense=False)


# Bad input


@pytest.mark.parametrize("text", ["", " ", "\t\n  \r", "\u200b\u2060", "\x00", "\u3000"])
@pytest.mark.parametrize("mode", [*MODES, "regex"])
def test_a_query_without_a_visible_character_is_refused_with_the_remedy(
    workplace: Searcher, text: str, mode: SearchMode
) -> None:
    with pytest.raises(InvalidQuery, match="Say what the tool should do"):
        workplace.search(Query(text=text, mode=mode))


@pytest.mark.parametrize("limit", [0, -1, MAX_LIMIT + 1])
def test_an_impossible_limit_is_refused(workplace: Searcher, limit: int) -> None:
    with pytest.raises(InvalidQuery, match=f"limit is {limit}"):
        workplace.search(Query(text="event", limit=limit))


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    "text",
    [
        "create a calendar event " * 42_000,
        "x" * 1_000_000,
        "🎉🔥👍🏽",
        "(a+)+$" * 50,
        "'; DROP TABLE tools; -- OR 1=1",
        "Создай 日程 événement حدث calendar",
        "half\ud83d a character",
        "\x1b[31mcalendar\x1b[0m\x00",
    ],
    ids=["1 MB of words", "1 MB without a space", "emoji", "regex bomb", "SQL", "mixed scripts", "surrogate", "ANSI"],
)
def test_a_hostile_query_is_answered(workplace: Searcher, text: str, mode: SearchMode) -> None:
    result = workplace.search(Query(text=text, mode=mode))
    assert len(result.hits) <= 5
    assert 0 <= result.confidence.probability <= result.confidence.match_probability <= 1


def test_a_megabyte_that_asks_at_its_end_is_still_understood(by_words: Searcher) -> None:
    pasted = "lorem ipsum " * 80_000
    assert found(by_words, f"{pasted} merge the pull request")[0] == "github/merge_pull_request"


def test_words_in_several_scripts_find_what_any_of_them_names(workplace: Searcher) -> None:
    assert found(workplace, "создай 日程 calendar event create")[0] == "calendar/create_event"


@given(st.text(max_size=200), st.sampled_from(MODES))
def test_any_text_is_answered_or_blank(workplace: Searcher, text: str, mode: SearchMode) -> None:
    if not clean_text(text).strip():
        with pytest.raises(InvalidQuery):
            workplace.search(Query(text=text, mode=mode))
        return
    result = workplace.search(Query(text=text, mode=mode))
    assert result.confidence.level in ("high", "medium", "low", "none")
    if mode == "hybrid":
        assert len(result.hits) == 5


@given(st.text(st.sampled_from("ab(|)*+?{}[]^$\\.1,é\ud83d\x00"), min_size=1, max_size=30))
def test_any_pattern_is_run_or_refused(workplace: Searcher, pattern: str) -> None:
    try:
        workplace.search(Query(text=pattern, mode="regex"))
    except InvalidQuery:
        return


@pytest.mark.parametrize("pattern", BOMBS)
def test_a_regex_bomb_is_run_in_linear_time_or_refused(workplace: Searcher, pattern: str) -> None:
    stuffed = searcher([tool("a/x", "a" * 4_000 + "!")], dense=False)
    try:
        result = stuffed.search(Query(text=pattern, mode="regex"))
    except InvalidQuery:
        return
    assert len(result.hits) <= 1


@pytest.mark.parametrize(
    ("pattern", "says"), [("(", "not a pattern"), ("x" * 1_001, "1000 characters"), ("(?=x)", "RE2")]
)
def test_a_pattern_that_cannot_be_run_is_refused_with_the_reason(workplace: Searcher, pattern: str, says: str) -> None:
    with pytest.raises(InvalidQuery, match=says):
        workplace.search(Query(text=pattern, mode="regex"))


def test_an_empty_catalog_answers_nothing_and_says_so() -> None:
    for dense in (True, False):
        result = searcher({}, dense=dense).search(Query(text="create an event"))
        assert result.hits == ()
        assert result.confidence.level == "none"


def test_a_catalog_of_one_tool_answers_with_it() -> None:
    assert found(searcher({"a/create_event": "Create an event."}), "create an event") == ["a/create_event"]


def stuffed(*words: str) -> Tool:
    return tool("spam/best_tool_ever", " ".join(words))


def test_a_description_stuffed_with_every_word_wins_nothing() -> None:
    everything = sorted({word for text in (*WORKPLACE, *WORKPLACE.values()) for word in text.split()})
    spammed = searcher([*(tool(i, text) for i, text in WORKPLACE.items()), stuffed(*everything * 20)])
    words_alone = searcher(spammed.catalog, dense=False)
    for tool_id, text in WORKPLACE.items():
        for source in (spammed, words_alone):
            assert found(source, text)[0] != "spam/best_tool_ever", tool_id
    assert found(words_alone, "calendar")[0].startswith("calendar/")


def test_a_word_repeated_hundreds_of_times_does_not_beat_the_name() -> None:
    spammed = searcher([*(tool(i, text) for i, text in WORKPLACE.items()), stuffed(*["forecast"] * 500)], dense=False)
    for mode in ("hybrid", "lexical"):
        assert found(spammed, "forecast", mode=mode)[0] == "weather/get_forecast"


# Words


@pytest.mark.parametrize(
    ("text", "first"),
    [
        ("create a calendar event", "calendar/create_event"),
        ("open a PR", "github/create_pull_request"),
        ("merge the PR", "github/merge_pull_request"),
        ("k8s pods", "kubernetes/list_pods"),
        ("notify the channel", "slack/send_message"),
        ("what will the weather be in Oslo", "weather/get_forecast"),
        ("http response", "http/getHTTPResponseV2"),
        ("show me the commits on <branch-name>", "github/list_commits"),
        ("read /etc/nginx/sites/default.conf", "files/read_file"),
        ("email 7f3a9c12-1111-2222-3333-444455556666 to bob@example.com", "mail/send_email"),
        ("get https://example.com/calendar/delete/event with status, headers and body", "http/getHTTPResponseV2"),
    ],
)
def test_the_right_tool_comes_first(by_words: Searcher, text: str, first: str) -> None:
    assert found(by_words, text)[0] == first


def test_a_server_that_is_named_brings_its_tools(by_words: Searcher) -> None:
    assert set(found(by_words, "something in Slack about the deploy")) >= {"slack/send_message", "slack/list_channels"}


@pytest.mark.parametrize(
    ("text", "first"),
    [
        ("calender event create", "calendar/create_event"),
        ("wether forcast", "weather/get_forecast"),
        ("kubernets pods", "kubernetes/list_pods"),
        ("scale the deploymnet", "kubernetes/scale_deployment"),
    ],
)
def test_typos_are_forgiven(by_words: Searcher, text: str, first: str) -> None:
    assert found(by_words, text)[0] == first


def test_a_typo_is_answered_with_what_was_meant(by_words: Searcher) -> None:
    assert by_words.search(Query(text="calender event")).did_you_mean == {"calend": "calendar"}


@pytest.mark.parametrize(
    "spelling",
    ["create_pull_request", "createPullRequest", "create-pull-request", "CREATE_PULL_REQUEST", "CreatePullRequest"],
)
@pytest.mark.parametrize("mode", ["hybrid", "lexical", "exact", "prefix", "fuzzy"])
def test_a_name_in_any_spelling_finds_its_tool_first(workplace: Searcher, spelling: str, mode: SearchMode) -> None:
    assert found(workplace, spelling, mode=mode)[0] == "github/create_pull_request"


@pytest.mark.parametrize("spelling", ["getHTTPResponseV2", "get_http_response_v2", "GetHttpResponseV2"])
def test_acronyms_and_digits_are_spelled_any_way_too(workplace: Searcher, spelling: str) -> None:
    assert found(workplace, spelling)[0] == "http/getHTTPResponseV2"
    assert found(workplace, f"please call {spelling} now")[0] == "http/getHTTPResponseV2"


def test_a_name_in_a_sentence_wins_over_the_words_around_it(workplace: Searcher) -> None:
    assert found(workplace, "run search_files to read the file of the message")[0] == "files/search_files"


def test_a_verb_that_every_tool_has_decides_little() -> None:
    many = {f"s/create_{thing}": f"Create a {thing}." for thing in ("invoice", "quote", "order", "refund", "customer")}
    crowd = searcher({**many, "s/find_refund": "Look a refund up."}, dense=False)
    assert set(found(crowd, "create refund", limit=2)) == {"s/create_refund", "s/find_refund"}


def test_what_a_server_repeats_over_its_tools_weighs_little() -> None:
    notice = "Requires an access token with the calendar scope."
    tools = {
        f"office/{name}": f"{notice} {text}"
        for name, text in {
            "send_mail": "Send mail.",
            "list_chats": "List chats.",
            "add_contact": "Add a contact.",
            "get_note": "Get a note.",
        }.items()
    }
    office = searcher({**tools, "office/book_room": "Book a room in the calendar."}, dense=False)
    assert found(office, "calendar", mode="lexical")[0] == "office/book_room"


def test_a_servers_own_words_lead_to_its_tools() -> None:
    described = catalog(
        {"crm/list_records": "List records.", "files/list_folders": "List folders."},
        Server(name="crm", description="Customers, deals and pipelines of the sales team."),
    )
    assert found(searcher(described, dense=False), "sales deals")[0] == "crm/list_records"


def test_users_own_words_are_understood() -> None:
    mine = parse_expansions("standup => calendar event", "mine.txt")
    with_mine = searcher(WORKPLACE, dense=False, options=Options(expansions=mine))
    assert found(with_mine, "standup")[0].startswith("calendar/")


# Modes and pipelines


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
    options = Options(pipeline=name)
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
    options = Options(pipeline=name)
    changing = searcher(WORKPLACE, dense=False, options=options)
    found(changing, "forcast")
    newer = catalog({**dict(list(WORKPLACE.items())[:12]), "sport/get_forecourt": "Find the forecourt of a club."})
    changing.update(newer)
    for text in ("forcast", "send_message"):
        assert found(changing, text) == found(searcher(newer, dense=False, options=options), text)


def test_dense_mode_asks_the_vectors_whatever_the_pipeline_is() -> None:
    by_default_lexical = searcher(WORKPLACE, options=Options(pipeline="lexical"))
    assert found(by_default_lexical, "weather forecast city", mode="dense")[0] == "weather/get_forecast"


def test_an_unknown_pipeline_is_refused_with_those_there_are() -> None:
    with pytest.raises(InvalidInput, match="No pipeline 'fast': there are default"):
        searcher(WORKPLACE, options=Options(pipeline="fast")).search(Query(text="x"))


def test_a_pipeline_without_a_part_is_a_pipeline(workplace: Searcher) -> None:
    less = workplace.pipeline.without("dense", "families")
    assert less.parts == tuple(part for part in workplace.pipeline.parts if part not in ("dense", "families"))
    with pytest.raises(InvalidInput, match="has no part"):
        workplace.pipeline.without("magic")


# Confidence


def test_an_unknown_word_lowers_confidence_and_does_not_gate(workplace: Searcher) -> None:
    known = workplace.search(Query(text="create a calendar event"))
    unknown = workplace.search(Query(text="create a calendar event for zorbnaxian"))
    assert unknown.hits[0].tool.id == "calendar/create_event"
    assert unknown.confidence.match_probability < known.confidence.match_probability


@pytest.mark.parametrize("dense", [True, False])
def test_nothing_but_unknown_words_still_shows_the_closest_tools(dense: bool) -> None:
    many = {f"s/tool_{n:03}": f"Does thing number {n}." for n in range(150)}
    result = searcher(many, dense=dense).search(Query(text="zorbnax quux"))
    assert len(result.hits) == 5
    assert result.confidence.level in ("none", "low")


def test_a_filter_that_nothing_passes_is_answered_with_none(workplace: Searcher) -> None:
    result = workplace.search(Query(text="create event", filters=Filters(servers=frozenset({"nowhere"}))))
    assert result.hits == ()
    assert result.confidence.level == "none"


def test_a_name_spelled_out_is_a_reason(workplace: Searcher) -> None:
    assert "the query spells its name" in workplace.search(Query(text="send_email")).confidence.reasons


# Stages


TWINS = {
    **dict.fromkeys(
        ("github/create_issue", "gitlab/create_issue", "jira/create_issue"), "Create an issue with a title."
    ),
    "github/list_branches": "List the branches of a repository.",
    "mail/send_email": "Send an email.",
}


@pytest.fixture(scope="module")
def twins() -> Searcher:
    """Three tools that words cannot tell apart: only the stages can."""
    return searcher(TWINS, dense=False)


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


def test_tools_that_only_share_a_name_are_no_family() -> None:
    result = searcher(
        {"github/search": "Search code in repositories.", "spotify/search": "Find songs, albums and artists."}
    ).search(Query(text="search", collapse=True))
    assert all(hit.family == () for hit in result.hits)


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

    source = searcher(TWINS, dense=False, options=Options(together=together))
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
        Diversity(index)(Request(Query(text="x", limit=3, diverse=diverse), analyse("x")), ranking)
        for diverse in (True, False)
    )
    assert [index.ids[row] for row, _ in spread][:2] == ["s/create_issue_0", "s/notify_people"]
    assert sorted(spread.rows.tolist()) == sorted(ranking.rows.tolist()), "nothing is lost"
    assert plain is ranking


# Explanation


@pytest.mark.parametrize("text", ["create a calendar event", "k8s pods", "calender", "send_email", "🎉"])
def test_the_parts_of_an_explanation_add_up_to_the_fused_score(workplace: Searcher, text: str) -> None:
    for hit in workplace.search(Query(text=text)).hits:
        explanation = workplace.explain(Query(text=text), hit.tool.id)
        assert explanation.rank == hit.rank
        assert explanation.score == hit.score
        assert sum(explanation.parts.values()) == pytest.approx(hit.score, abs=1e-3)


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
    assert matched["brnch"].found == "branch"
    assert explanation.arms["lexical"].rank == 1
    assert explanation.text().startswith("github/create_pull_request: rank 1")


def test_an_explanation_shows_what_each_stage_moved(twins: Searcher) -> None:
    query = Query(text="create an issue", recent_servers=("jira",))
    assert twins.explain(query, "jira/create_issue").stages == {"context": (3, 1)}
    assert twins.explain(query, "github/create_issue").stages == {"context": (1, 2)}


def test_a_tool_that_was_not_found_is_explained_too(workplace: Searcher) -> None:
    explanation = workplace.explain(Query(text="weather forecast", limit=1), "mail/send_email")
    assert explanation.rank is None
    assert explanation.unmatched
    assert "not among the results" in explanation.text()


def test_explaining_an_unknown_tool_suggests_the_nearest(workplace: Searcher) -> None:
    with pytest.raises(ToolNotFound, match="mail/send_email"):
        workplace.explain(Query(text="x"), "mail/send_emial")


# Readiness


BROKEN = ModelError("The weights are damaged.")


def test_words_answer_until_the_vectors_are_there() -> None:
    source = Searcher(catalog(WORKPLACE), HashingEmbedder())
    early = source.search(Query(text="create a calendar event"))
    assert early.hits[0].tool.id == "calendar/create_event"
    assert "not ready yet" in early.notes[0]
    source.prepare()
    assert source.search(Query(text="create a calendar event")).notes == ()


def test_a_fallbacks_vectors_answer_meanwhile() -> None:
    fallback = HashingEmbedder()
    source = Searcher(catalog(WORKPLACE), HashingEmbedder("slow@1"), fallback=fallback)
    source.prepare_in_background().join()
    assert source.model_id == "slow@1"
    broken = Searcher(catalog(WORKPLACE), HashingEmbedder("broken@1", BROKEN), fallback=fallback)
    broken.prepare_in_background().join()
    assert broken.model_id == "hashing@1"


def test_a_model_that_cannot_be_loaded_is_told_and_words_answer() -> None:
    source = Searcher(catalog(WORKPLACE), HashingEmbedder("broken@1", BROKEN))
    source.prepare_in_background().join()
    result = source.search(Query(text="create a calendar event"))
    assert result.hits[0].tool.id == "calendar/create_event"
    assert "The weights are damaged." in result.notes


@pytest.mark.xfail(reason="without a vector a tool counts as far from every query")
def test_a_tool_that_just_came_is_found_by_its_words() -> None:
    source = searcher(WORKPLACE)
    source.update(catalog({**WORKPLACE, "coffee/brew": "Brew an espresso."}))
    result = source.search(Query(text="brew espresso"))
    assert result.hits[0].tool.id == "coffee/brew"
    assert "1 new tools wait for their vectors" in result.notes[0]


def test_a_removed_tool_is_found_no_more_in_any_mode() -> None:
    source = searcher(WORKPLACE)
    source.update(catalog({i: text for i, text in WORKPLACE.items() if i != "mail/send_email"}))
    for mode in (*MODES, "regex"):
        assert "mail/send_email" not in found(source, "send_email", mode=mode, limit=20)


def test_every_step_is_timed_and_counted(workplace: Searcher) -> None:
    result = workplace.search(Query(text="create a calendar event"))
    assert [step.name for step in result.steps] == [
        "read",
        *workplace.pipeline.retrievers,
        "fuse",
        *workplace.pipeline.stages,
    ]
    assert result.milliseconds == sum(step.milliseconds for step in result.steps)


def test_every_pipeline_goes_by_its_name() -> None:
    parts = Parts.of(Index.build(catalog(WORKPLACE)), fitted_for(None))
    assert all(PIPELINES[name](parts).name == name for name in PIPELINES)
