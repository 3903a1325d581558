import sqlite3
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from benchmarks.baselines import BASELINES, Baseline, Embed, NeedsEmbedder, Watched, attempt, memoised
from benchmarks.baselines.documents import sanitised, wire_names
from benchmarks.baselines.lexical import okapi
from benchmarks.speed_peers import measure, table
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

REBUILT = ["stackone", "mcpproxy", "hermes", "toolhive-fts5", "toolhive", "portkey", "plain-bm25", "dense", "rrf"]
LEXICAL = ["stackone", "mcpproxy", "toolhive-fts5", "plain-bm25"]
DENSE = ["toolhive", "portkey", "dense", "rrf", "langgraph-bigtool", "llama-index"]

TOOLS: list[dict[str, Any]] = [
    {
        "id": "gmail:send_email",
        "server": "gmail",
        "name": "send_email",
        "description": "Send an email to a recipient",
        "keywords": ["mail", "compose"],
        "input_schema": {"type": "object", "properties": {"to": {"type": "string", "description": "Address"}}},
    },
    {"id": "gmail:search", "server": "gmail", "name": "search", "description": "Search the emails of an inbox"},
    {"id": "drive:search", "server": "drive", "name": "search", "description": "Search the files of a drive"},
    {"id": "git:create_branch", "server": "git", "name": "create_branch", "description": "Create a branch"},
    {"id": "git:create_issue", "server": "git", "name": "create_issue", "description": "Create an issue"},
    {"id": "db:run", "server": "db", "name": "run", "description": None, "input_schema": None},
    {"id": "wx:forecast", "server": "wx", "name": "forecast", "description": "Weather forecast for a city"},
    {"id": "fs:read_file", "server": "fs", "name": "read_file", "description": "Read a file from disk"},
]
IDS = {tool["id"] for tool in TOOLS}


def letters(texts: Sequence[str]) -> NDArray[np.float32]:
    """An embedder that counts letter pairs: enough to prefer the text that says nearly the same."""
    vectors = np.zeros((len(texts), 26 * 26), dtype=np.float32)
    for row, text in enumerate(texts):
        codes = [ord(letter) - 97 for letter in text.lower() if "a" <= letter <= "z"]
        for first, second in pairwise(codes):
            vectors[row, first * 26 + second] += 1
    return vectors


def built(name: str, tools: Sequence[dict[str, Any]] = TOOLS, embed: Embed | None = letters) -> Watched:
    tried = attempt(name, tools, embed)
    if tried.status == "not installed":
        pytest.skip(tried.detail)
    assert tried.baseline is not None, tried.detail
    return tried.baseline


@pytest.mark.parametrize("name", BASELINES)
def test_a_baseline_ranks_only_tools_of_the_catalog_once_and_within_the_limit(name: str) -> None:
    baseline = built(name)
    for query in ("send an email", "search files", "nothing of the kind", "create_issue", "天気", 'C++ (x|y)* "q"'):
        for limit in (1, 3, 20):
            ranked = baseline.rank(query, limit)
            assert len(ranked) <= limit
            assert len(set(ranked)) == len(ranked)
            assert set(ranked) <= IDS
    assert baseline.failures == {}


@pytest.mark.parametrize("name", BASELINES)
def test_a_baseline_carries_the_name_it_is_registered_under(name: str) -> None:
    assert built(name).name == name


@pytest.mark.parametrize("name", [*LEXICAL, "ratel", "pydantic-ai", "haystack", "fastmcp-bm25", "stackone-ai"])
def test_a_lexical_baseline_puts_the_tool_that_shares_the_words_first(name: str) -> None:
    assert built(name).rank("weather forecast for a city", 3)[0] == "wx:forecast"


@pytest.mark.parametrize("name", DENSE)
def test_a_dense_baseline_puts_the_tool_whose_text_is_nearest_first(name: str) -> None:
    assert built(name).rank("Weather forecast for a city", 3)[0] == "wx:forecast"


@pytest.mark.parametrize("name", DENSE)
def test_a_dense_baseline_without_an_embedder_says_so(name: str) -> None:
    assert attempt(name, TOOLS, None).status in {"needs an embedder", "not installed"}
    with pytest.raises(NeedsEmbedder, match="pass an embedder"):
        BASELINES[name](TOOLS, None)


def test_plain_bm25_does_not_split_names() -> None:
    tools = [{"id": "a", "name": "archive_mailbox", "description": "Moves it away"}]
    assert built("plain-bm25", tools).rank("mailbox", 3) == []
    assert built("plain-bm25", tools).rank("archive_mailbox", 3) == ["a"]


def test_the_weights_of_bm25_are_the_published_formula() -> None:
    scores = okapi([["a", "a", "b"], ["b"]]).scores(["a"])
    idf, relative_length = np.log(1 + 1.5 / 1.5), 3 / 2
    assert scores == pytest.approx([idf * 2 * 2.5 / (2 + 1.5 * (0.25 + 0.75 * relative_length)), 0])


def test_stackone_counts_the_name_above_the_description() -> None:
    tools = [
        {"id": "described", "name": "misc_tool", "description": "invoice archive helper"},
        {"id": "named", "name": "invoice_archive", "description": "some other helper"},
    ]
    assert built("stackone", tools).rank("invoice archive", 2) == ["named", "described"]


def test_mcpproxy_finds_a_name_by_its_prefix_but_not_by_its_last_word() -> None:
    baseline = built("mcpproxy", [{"id": "a", "name": "create_branch", "server": "git", "description": "Forks"}])
    assert baseline.rank("create_br", 3) == ["a"]
    assert baseline.rank("branch", 3) == []


def test_hermes_answers_nothing_when_no_tool_has_the_rarest_word() -> None:
    baseline = built("hermes")
    assert baseline.rank("send email", 3) == ["gmail:send_email"]
    assert baseline.rank("send email tomorrow", 3) == []


def test_hermes_puts_an_exact_name_first_past_its_gates() -> None:
    assert built("hermes").rank("READ_FILE", 3)[0] == "fs:read_file"


def test_toolhive_lists_the_semantic_half_before_the_words_and_never_refills() -> None:
    semantic = built("dense").rank("search emails", 2)
    ranked = built("toolhive").rank("search emails", 4)
    assert len(ranked) < 4  # both halves found the same tools
    assert set(ranked[:2]) == set(semantic)


def test_toolhive_drops_the_words_that_schemas_are_full_of() -> None:
    assert built("toolhive-fts5").rank("name description type", 3) == []


def test_portkey_never_sees_the_name() -> None:
    tools: list[dict[str, Any]] = [
        {"id": "named", "name": "zebra_quilt", "description": "Other words"},
        {"id": "described", "name": "other", "description": "Zebra quilt", "keywords": ["zebra"]},
    ]
    assert built("portkey", tools).rank("zebra quilt", 2) == ["described", "named"]
    renamed = [{**tool, "name": "x"} for tool in tools]
    assert built("portkey", renamed).rank("words", 2) == built("portkey", tools).rank("words", 2)


def test_equal_rrf_prefers_what_both_arms_rank_high() -> None:
    assert built("rrf").rank("Create an issue", 1) == ["git:create_issue"]


def test_names_that_collide_get_their_server_in_front_and_others_stay() -> None:
    names = wire_names([*TOOLS, {"id": "x", "server": "gmail", "name": "search"}])
    assert names[:3] == ["send_email", "gmail_search", "drive_search"]
    assert names[-1] == "gmail_search_2"


@given(st.lists(st.tuples(st.sampled_from(["a", "b", "a_b"]), st.sampled_from(["", "a", "b/c"]))))
def test_wire_names_are_always_unique(pairs: list[tuple[str, str]]) -> None:
    tools = [{"id": str(i), "name": name, "server": server} for i, (name, server) in enumerate(pairs)]
    assert len(set(wire_names(tools))) == len(tools)


@settings(max_examples=40)
@given(query=st.text(max_size=60), name=st.sampled_from(REBUILT))
def test_no_query_breaks_a_rebuilt_baseline(query: str, name: str) -> None:
    assert set(REBUILT_OVER_TOOLS[name].rank(query, 5)) <= IDS


REBUILT_OVER_TOOLS = {name: BASELINES[name](TOOLS, letters) for name in REBUILT}


def test_a_tool_that_breaks_a_peer_is_reported_and_the_sanitised_catalog_is_flagged() -> None:
    odd = {
        "id": "odd",
        "server": "x",
        "name": "odd",
        "description": "Odd tool",
        "input_schema": {"type": "object", "properties": {"p": {"description": ["one", "two"]}, "q": "string"}},
    }
    tried = attempt("fastmcp-bm25", [*TOOLS, odd])
    if tried.status == "not installed":
        pytest.skip(tried.detail)
    assert tried.status == "runs sanitised"
    assert "TypeError" in tried.detail
    assert attempt("fastmcp-bm25", [*TOOLS, odd], sanitise=False).status == "fails"


def test_whatever_a_peer_raises_is_a_result(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any) -> Baseline:
        raise ValueError("no such thing")

    monkeypatch.setitem(BASELINES, "broken", broken)
    tried = attempt("broken", TOOLS)
    assert (tried.status, tried.baseline) == ("fails", None)
    assert "no such thing" in tried.detail


def test_a_catalog_with_a_name_that_pydantic_ai_reserves_runs_renamed() -> None:
    reserved = {"id": "r", "server": "hub", "name": "search_tools", "description": "Look for zebras"}
    tried = attempt("pydantic-ai", [*TOOLS, reserved])
    if tried.status == "not installed":
        pytest.skip(tried.detail)
    assert tried.baseline is not None
    assert (tried.status, tried.baseline.rank("zebras", 1)) == ("runs sanitised", ["r"])


def test_a_query_that_breaks_a_peer_is_an_empty_answer_and_kept() -> None:
    class Fragile:
        name = "fragile"

        def rank(self, query: str, limit: int) -> list[str]:
            return [query][: limit // len(query)]

    watched = Watched(Fragile())
    assert watched.rank("a", 1) == ["a"]
    assert watched.rank("", 1) == []
    assert "ZeroDivisionError" in watched.failures[""]


def test_sanitising_makes_every_description_text() -> None:
    odd = {"id": "a", "name": "a", "description": ["x", "y"], "input_schema": {"properties": {"p": {"description": 3}}}}
    (clean,) = sanitised([odd])
    assert clean["description"] == "x y"
    assert clean["input_schema"]["properties"] == {"p": {"description": "3"}}


def test_a_memoised_embedder_embeds_each_text_once() -> None:
    asked: list[str] = []

    def counting(texts: Sequence[str]) -> NDArray[np.float32]:
        asked.extend(texts)
        return letters(texts)

    embed = memoised(counting)
    first = embed(["ab", "ab", "cd"])
    assert embed(["cd", "ab"]).tolist() == [first[2].tolist(), first[0].tolist()]
    assert asked == ["ab", "cd"]


def test_the_pattern_for_the_regex_transform_escapes_what_a_query_says() -> None:
    baseline = built("fastmcp-regex-words")
    assert baseline.rank("the (", 3) == []
    assert baseline.rank("send (", 3)[0] == "gmail:send_email"


def test_measuring_asks_each_query_once_more_than_it_repeats() -> None:
    asked: list[str] = []

    class Counting:
        name = "counting"

        def rank(self, query: str, limit: int) -> list[str]:
            asked.append(query)
            return [query][:limit]

    assert measure(Counting(), ["a", "b"], repeats=2) >= 0
    assert asked.count("a") == asked.count("b") == 3


def test_the_speed_table_has_a_row_for_what_runs_and_for_what_does_not() -> None:
    rows = table([attempt("plain-bm25", TOOLS), attempt("dense", TOOLS)], ["send email"]).splitlines()
    assert rows[2].startswith("| plain-bm25 | runs | ")
    assert rows[3].startswith("| dense | needs an embedder")


def test_sqlite_here_has_the_full_text_search_that_toolhive_needs() -> None:
    sqlite3.connect(":memory:").execute("CREATE VIRTUAL TABLE t USING fts5(x)")
