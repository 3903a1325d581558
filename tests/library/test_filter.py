"""The front door: what a program passes, what it gets, and everything it can get wrong."""

import logging
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import numpy as np
import pytest

from shortlist.catalog.readers import read_catalog
from shortlist.errors import InvalidCatalog, InvalidInput, InvalidQuery, ToolNotFound
from shortlist.index.saved import SAVED_FROM
from shortlist.library.filter import ToolFilter
from shortlist.library.options import FilterOptions
from shortlist.models import Confidence
from shortlist.search.chances import chances
from tests.fakes import WORKPLACE, HashingEmbedder, catalog
from tests.library.support import MERGE, workplace


def portkey_servers(*names: str) -> list[dict[str, Any]]:
    tool = {"name": "search", "description": "Search.", "inputSchema": {"type": "object"}}
    return [{"id": name, "name": name.title(), "description": f"{name} server", "tools": [tool]} for name in names]


def test_the_best_tool_comes_first_with_its_server_score_and_definition() -> None:
    first = workplace().filter(MERGE, limit=3).tools[0]
    assert (first.id, first.name, first.server) == (
        "github/merge_pull_request",
        "github__merge_pull_request",
        "github",
    )
    assert first.definition["description"] == WORKPLACE["github/merge_pull_request"]
    assert 0.5 < first.score <= 1


def test_scores_are_chances_that_fall_and_do_not_depend_on_the_limit() -> None:
    made = workplace()
    few, many = made.filter(MERGE, limit=3), made.filter(MERGE, limit=10)
    scores = [tool.score for tool in many.tools]
    assert scores == sorted(scores, reverse=True)
    assert all(0 <= score <= 1 for score in scores)
    assert [tool.score for tool in few.tools] == scores[:3]
    assert few.tools[0].score == few.confidence.probability


def test_min_score_leaves_out_what_is_less_likely() -> None:
    made = workplace()
    everything = made.filter(MERGE)
    least = everything.tools[1].score
    assert [t.id for t in made.filter(MERGE, min_score=least).tools] == [t.id for t in everything.tools[:2]]
    assert made.filter("quantum chromodynamics", min_score=0.9).tools == ()


def test_metrics_say_what_was_done() -> None:
    made = workplace()
    cold, cached = made.filter(MERGE).metrics, made.filter(MERGE).metrics
    assert (cold.cache_hit, cached.cache_hit) == (False, True)
    assert cold.tools_evaluated == len(WORKPLACE)
    assert cold.total_milliseconds >= cold.embedding_milliseconds + cold.search_milliseconds > 0
    assert cold.rerank_milliseconds is None


def test_the_async_way_gives_the_same() -> None:
    made = workplace()
    found = anyio.run(lambda: made.afilter(MERGE, limit=3))
    assert found.names() == made.filter(MERGE, limit=3).names()


def test_servers_categories_and_tags_narrow_before_the_ranking() -> None:
    tools = [
        {
            "id": "hub",
            "name": "Hub",
            "description": "",
            "categories": ["code"],
            "tools": [{"name": name, "description": "merge a pull request"} for name in ("merge_a", "merge_b")],
        },
        {
            "id": "desk",
            "name": "Desk",
            "tools": [
                {"name": "merge_c", "description": "merge a pull request", "category": "office", "tags": ["slow"]},
                {"name": "ticket", "description": "open a ticket", "category": "office"},
            ],
        },
    ]
    made = ToolFilter(tools, embedding=None)

    def ids(**narrow: Any) -> set[str]:
        return {tool.id for tool in made.filter(MERGE, **narrow).tools}

    assert ids(servers=["desk"]) == {"desk/merge_c", "desk/ticket"}
    assert ids(categories=["code"]) == {"hub/merge_a", "hub/merge_b"}
    assert ids(categories=["office"], tags=["slow"]) == {"desk/merge_c"}
    assert ids(tags="slow") == {"desk/merge_c"}
    assert made.filter(MERGE, servers=["desk"]).metrics.tools_evaluated == 2
    nothing = made.filter(MERGE, servers=["desks"])
    assert nothing.tools == ()
    assert any("did you mean 'desk'" in warning for warning in nothing.warnings)


def test_read_only_keeps_what_says_so() -> None:
    tools = [
        {"name": "read_mail", "description": "Read mail.", "annotations": {"readOnlyHint": True}},
        {"name": "send_mail", "description": "Send mail.", "annotations": {"readOnlyHint": False}},
        {"name": "mail", "description": "Mail."},
    ]
    found = ToolFilter(tools, embedding=None).filter("mail", read_only=True)
    assert [tool.name for tool in found.tools] == ["read_mail"]


def test_always_include_takes_the_place_of_the_weakest() -> None:
    made = workplace()
    plain = made.filter(MERGE, limit=3)
    found = made.filter(MERGE, limit=3, always_include=["get_forecast", "github__merge_pull_request"])
    assert len(found.tools) == 3
    assert found.tools[0].id == plain.tools[0].id
    assert found.tools[-1].id == "weather/get_forecast"
    assert len(made.filter(MERGE, limit=1, always_include=["get_forecast", "send_email"]).tools) == 2


def test_exclude_takes_tools_out_before_the_ranking() -> None:
    found = workplace().filter(MERGE, limit=3, exclude=["merge_pull_request"])
    assert len(found.tools) == 3
    assert "github/merge_pull_request" not in {tool.id for tool in found.tools}


def test_unknown_names_are_warnings_with_a_suggestion() -> None:
    found = workplace().filter(MERGE, always_include=["get_forcast"], exclude=["zzz"])
    included, excluded = found.warnings
    assert included == "always_include: there is no 'get_forcast' here; did you mean 'weather__get_forecast'?"
    assert excluded == "exclude: there is no 'zzz' here."


def test_a_tool_both_included_and_excluded_is_left_out_with_a_warning() -> None:
    found = workplace().filter(MERGE, always_include=["send_email"], exclude=["send_email"])
    assert "mail/send_email" not in {tool.id for tool in found.tools}
    assert any("it is left out" in warning for warning in found.warnings)


def test_defaults_hold_until_a_call_says_otherwise() -> None:
    made = workplace(defaults={"limit": 2})
    assert len(made.filter(MERGE).tools) == 2
    assert len(made.filter(MERGE, limit=4).tools) == 4
    assert len(workplace(defaults=FilterOptions(limit=1)).filter(MERGE).tools) == 1


def test_tool_calls_in_the_history_lift_their_server() -> None:
    made = ToolFilter(portkey_servers("alpha", "beta"), embedding=None)
    for server in ("alpha", "beta"):
        call = {"id": "1", "type": "function", "function": {"name": f"{server}__search", "arguments": "{}"}}
        found = made.filter([{"role": "assistant", "tool_calls": [call]}, {"role": "user", "content": "search"}])
        assert found.tools[0].server == server
        assert found.query.recent_servers == (server,)


def test_debug_logs_the_five_steps_with_their_milliseconds(caplog: pytest.LogCaptureFixture) -> None:
    made = workplace()
    with caplog.at_level(logging.INFO, "shortlist.library.filter"):
        made.filter(MERGE)
        assert caplog.messages == []
        made.filter(MERGE, debug=True)
    steps = [message.partition(":")[0] for message in caplog.messages]
    assert steps == ["options", "context", "embedding", "search", "selection"]
    assert all(message.endswith(" ms)") for message in caplog.messages)


def test_search_and_explain_are_those_of_the_core() -> None:
    made = workplace()
    assert made.search(MERGE, limit=2).hits[0].tool.id == "github/merge_pull_request"
    assert made.search("merge_pull", mode="prefix").hits[0].tool.id == "github/merge_pull_request"
    assert made.explain(MERGE, "merge_pull_request").rank == 1
    with pytest.raises(ToolNotFound, match="merge_pull_request"):
        made.explain(MERGE, "merge_pull_requests")


def test_stats_say_how_it_stands() -> None:
    made = workplace()
    assert made.stats().cache_size == 0
    made.filter(MERGE)
    stats = made.stats()
    assert (stats.initialised, stats.tools, stats.servers, stats.waiting) == (True, 18, 9, 0)
    assert (stats.cache_size, stats.dimensions, stats.model) == (1, 32, "hashing@1")
    made.clear_cache()
    assert made.stats().cache_size == 0
    bare = workplace(embedding=None).stats()
    assert (bare.initialised, bare.dimensions, bare.model) == (True, None, None)


def test_an_update_adds_changes_and_removes() -> None:
    made = workplace()
    newer = {
        **WORKPLACE,
        "slack/send_message": "Merge a pull request by pigeon.",
        "crm/find_customer": "Find a customer.",
    }
    del newer["github/merge_pull_request"]
    change = made.update(catalog(newer))
    assert (change.added, change.changed, change.removed) == (1, 1, 1)
    assert made.filter("find a customer").tools[0].id == "crm/find_customer"
    found = [tool.id for tool in made.filter("merge a pull request by pigeon").tools]
    assert found[0] == "slack/send_message"
    assert "github/merge_pull_request" not in found
    assert made.stats().tools == 18


def test_initialising_again_forgets_what_was_there() -> None:
    made = workplace()
    made.update(portkey_servers("alpha"))
    assert {tool.id for tool in made.filter("search").tools} == {"alpha/search"}
    made.update([])
    assert made.filter("search").tools == ()
    made.update(catalog(WORKPLACE))
    assert made.filter(MERGE).tools[0].id == "github/merge_pull_request"


def test_server_descriptions_are_searched_unless_they_are_left_out() -> None:
    tools = [
        {"id": "alpha", "name": "Alpha", "description": "Everything about beekeeping.", "tools": [{"name": "run"}]},
        {"id": "beta", "name": "Beta", "description": "Everything about sailing.", "tools": [{"name": "start"}]},
    ]
    described, bare = (
        ToolFilter(tools, embedding=None, include_server_description=included) for included in (True, False)
    )
    assert described.filter("beekeeping").tools[0].id == "alpha/run"
    assert described.explain("beekeeping", "run").matches
    assert not bare.explain("beekeeping", "run").matches


def test_words_of_ones_own_are_understood(tmp_path: Path) -> None:
    mine = tmp_path / "words.txt"
    mine.write_text("shipit => merge pull request\n", "utf-8")
    made = ToolFilter(catalog(WORKPLACE), embedding=None, expansions=[mine])
    assert made.filter("shipit").tools[0].id == "github/merge_pull_request"


def test_a_large_index_is_read_back_at_the_next_start() -> None:
    tools = catalog({f"server{n % 7}/tool_{n}": f"Does thing number {n}." for n in range(SAVED_FROM)})
    first_model, second_model = HashingEmbedder(), HashingEmbedder()
    first = ToolFilter(tools, embedding=first_model, vector_cache=None)
    second = ToolFilter(tools, embedding=second_model, vector_cache=None)
    assert len(first_model.embedded) == SAVED_FROM
    assert second_model.embedded == []
    assert second.filter("thing number 77").names() == first.filter("thing number 77").names()
    changed = ToolFilter(
        [*list(tools.tools.values())[1:], replace(tools.tools["server0/tool_0"], id="server0/new", name="new")],
        embedding=HashingEmbedder(),
        vector_cache=None,
    )
    assert "server0/new" in changed.catalog.tools


# Bad input


def test_no_tools_is_an_answer_without_tools_and_a_warning() -> None:
    found = ToolFilter([], embedding=None).filter(MERGE)
    assert found.tools == ()
    assert found.confidence.level == "none"
    assert found.warnings == ("The catalog is empty.",)


def test_where_no_tool_passes_nothing_is_embedded() -> None:
    filter_ = workplace()
    found = filter_.filter(MERGE, servers=["nowhere"])
    assert (found.tools, filter_.stats().cache_size) == ((), 0)
    assert found.warnings == ("servers: there is no 'nowhere' here.", "No tool passes the filters.")


def test_one_name_twice_on_a_server_is_an_error_that_names_both() -> None:
    tools = [
        {"name": "read", "description": "Reads a file."},
        {"name": "write"},
        {"name": "read", "description": "Reads a mail."},
    ]
    with pytest.raises(InvalidCatalog) as error:
        ToolFilter({"server": {"name": "files"}, "tools": tools}, embedding=None)
    assert "Two tools of server 'files' are called 'files/read'" in str(error.value)
    assert "'Reads a file.'" in str(error.value)
    assert "files.tools[2]" in str(error.value)
    with pytest.raises(InvalidCatalog, match="Two tools of the list are called 'read'"):
        ToolFilter(tools, embedding=None)
    doubled = [*catalog(WORKPLACE).tools.values(), catalog(WORKPLACE).tools["mail/send_email"]]
    with pytest.raises(InvalidCatalog, match="mail/send_email"):
        ToolFilter(doubled, embedding=None)


def test_one_name_on_two_servers_is_kept_apart() -> None:
    found = ToolFilter(portkey_servers("alpha", "beta"), embedding=None).filter("search")
    assert sorted(found.names()) == ["alpha__search", "beta__search"]


def test_a_tool_without_a_description_is_found_by_its_name() -> None:
    found = ToolFilter([{"name": "merge_pull_request"}, {"name": "send_email"}], embedding=None).filter(MERGE)
    assert found.tools[0].name == "merge_pull_request"
    assert found.to("anthropic")[0]["description"] == "merge_pull_request"


def test_a_schema_of_200_kilobytes_is_searched_and_passed_on_whole() -> None:
    properties = {f"field_{n}": {"type": "string", "description": "x" * 60} for n in range(2_000)}
    big = {
        "name": "import_orders",
        "description": "Imports orders.",
        "inputSchema": {"type": "object", "properties": properties},
    }
    found = ToolFilter([big, {"name": "send_email"}], embedding=None).filter("import orders")
    assert found.tools[0].definition == big
    assert len(found.to("openai")[0]["function"]["parameters"]["properties"]) == 2_000


@pytest.mark.parametrize("query", ["", "   ", "\n", "\u200b\u200b"])
def test_an_empty_query_is_refused(query: str) -> None:
    with pytest.raises(InvalidQuery, match="empty"):
        workplace().filter(query)


def test_a_query_of_a_megabyte_is_answered_from_its_ends() -> None:
    found = workplace(embedding=None).filter(
        "Summarise: " + "lorem ipsum " * 90_000 + " and then merge the pull request"
    )
    assert found.tools[0].id == "github/merge_pull_request"


def called(name: str) -> dict[str, Any]:
    return {"type": "function_call", "name": name}


def test_tools_called_in_the_chat_stay_within_reach() -> None:
    chat = [{"role": "user", "content": "weather in Oslo?"}, called("get_forecast"), {"role": "user", "content": MERGE}]
    found = workplace().filter(chat, limit=3)
    assert "weather/get_forecast" in [tool.id for tool in found.tools]
    assert found.tools[0].id == "github/merge_pull_request"


def test_a_follow_up_that_all_readings_agree_on_is_answered_with_high_confidence() -> None:
    before = [
        {"role": "user", "content": "show the pull request 12 of acme"},
        {"role": "assistant", "content": "Done."},
    ]
    found = workplace().filter([*before, {"role": "user", "content": "merge it"}])
    assert found.asked.relation == "continues"
    assert (found.tools[0].id, found.confidence.level) == ("github/merge_pull_request", "high")


def test_a_tool_called_before_is_out_of_reach_once_it_is_excluded() -> None:
    chat = [{"role": "user", "content": "weather in Oslo?"}, called("get_forecast"), {"role": "user", "content": MERGE}]
    excluded = workplace().filter(chat, limit=3, exclude=["get_forecast"])
    narrowed = workplace().filter(chat, limit=3, servers=["github"])
    assert "weather/get_forecast" not in [tool.id for tool in (*excluded.tools, *narrowed.tools)]


def test_image_parts_are_ignored() -> None:
    parts = [{"type": "image_url", "image_url": {"url": "data:" + "A" * 100_000}}, {"type": "text", "text": MERGE}]
    found = workplace().filter([{"role": "user", "content": parts}])
    assert found.query.text == MERGE


@pytest.mark.parametrize("limit", [0, -1, 1_001, 2.5, True, "3", None])
def test_an_impossible_limit_is_refused(limit: Any) -> None:
    with pytest.raises(InvalidQuery, match="limit is"):
        workplace().filter(MERGE, limit=limit)


@pytest.mark.parametrize(
    "choices", [{"min_score": 7}, {"min_score": -0.1}, {"context_messages": 0}, {"max_context_tokens": 0}]
)
def test_other_impossible_numbers_are_refused(choices: dict[str, Any]) -> None:
    with pytest.raises(InvalidQuery):
        workplace().filter(MERGE, **choices)


def test_names_must_be_texts_and_options_must_exist() -> None:
    with pytest.raises(InvalidInput, match="list of names"):
        workplace().filter(MERGE, exclude=7)  # type: ignore[arg-type]
    with pytest.raises(InvalidInput, match="list of names"):
        workplace().filter(MERGE, exclude=[7])  # type: ignore[list-item]
    with pytest.raises(TypeError, match="top_k"):
        workplace().filter(MERGE, top_k=7)  # type: ignore[call-arg]


def test_what_is_no_embedder_is_refused() -> None:
    with pytest.raises(InvalidInput, match="not an embedder"):
        ToolFilter([], embedding=7)  # type: ignore[arg-type]
    with pytest.raises(InvalidInput, match="No embedder 'huge'"):
        ToolFilter([], embedding="huge")
    with pytest.raises(InvalidInput, match="No embedder 'none:128'"):
        ToolFilter([], embedding="none:128")


def test_fewer_of_a_models_dimensions_can_be_asked_for() -> None:
    narrow = ToolFilter([{"name": "open_door"}, {"name": "close_window"}], embedding="small:128")
    narrow.wait()
    assert narrow.stats().dimensions == 128


def test_what_was_skipped_is_said() -> None:
    made = ToolFilter([{"name": "ok"}, {"description": "nameless"}], embedding=None)
    assert len(made.problems) == 1
    assert "needs a name" in made.problems[0]


def test_chances_share_what_the_first_leaves() -> None:
    sure = Confidence(level="high", probability=0.7, match_probability=0.9)
    found = chances([3.0, 2.0, 1.0], sure)
    assert found[0] == 0.7
    assert np.isclose(sum(found), 0.9)
    assert chances([], sure) == []
    assert chances([1.0], sure) == [0.7]
    unsure = Confidence(level="low", probability=0.1, match_probability=0.9)
    assert max(chances([3.0, 2.9], unsure)) == 0.1


def test_a_reading_keeps_the_catalog_as_it_is() -> None:
    reading = read_catalog(portkey_servers("alpha"))
    assert ToolFilter(reading.catalog, embedding=None).catalog is reading.catalog
