"""Chats are ranked by several readings at once: the last message, what was said before it, and what was called."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from shortlist import ToolFilter
from shortlist.errors import ModelError
from shortlist.evals.datasets import demo_catalog
from shortlist.library import following
from shortlist.library.following import (
    FEATURES,
    PART,
    SIGNS,
    WEIGHTS,
    WHOLE,
    WHOLE_ANSWER,
    WHOLE_REQUEST,
    ChatEvidence,
    chat_text,
    chat_weights,
)
from shortlist.library.messages import Context, read_context
from shortlist.models import SearchResult
from tests.fakes import HashingEmbedder

OFFICE: list[dict[str, Any]] = [
    {
        "name": "mail",
        "tools": [
            {"name": "create_draft", "description": "Write a draft of an email."},
            {"name": "send_draft", "description": "Send a draft that was written before."},
            {"name": "list_messages", "description": "List the newest messages of a mailbox."},
            {"name": "delete_message", "description": "Delete a message for good."},
        ],
    },
    {
        "name": "calendar",
        "tools": [
            {"name": "create_event", "description": "Create an event in the calendar."},
            {"name": "list_events", "description": "List the events of a day or a week."},
            {"name": "delete_event", "description": "Remove an event from the calendar."},
        ],
    },
    {
        "name": "weather",
        "tools": [{"name": "get_forecast", "description": "Get the weather forecast for a city."}],
    },
    {
        "name": "trains",
        "tools": [
            {"name": "departures", "description": "List the trains that leave a station next."},
            {"name": "book_seat", "description": "Book a seat on a train."},
        ],
    },
]


@pytest.fixture(scope="module")
def office() -> ToolFilter:
    return ToolFilter(OFFICE, embedding="small", vector_cache=None)


@pytest.fixture(scope="module")
def demo() -> ToolFilter:
    return ToolFilter(demo_catalog(), embedding="small")


def chat(asked: str, called: str, said: str, last: str) -> list[dict[str, Any]]:
    call = {"id": "1", "type": "function", "function": {"name": called, "arguments": "{}"}}
    return [
        {"role": "user", "content": asked},
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "1", "content": "ok"},
        {"role": "assistant", "content": said},
        {"role": "user", "content": last},
    ]


DRAFTED = ("write to Prof. Ahlers that I need until Monday", "mail/create_draft", "Here is the draft. Have a look.")


@pytest.mark.parametrize("last", ["off it goes", "lovely, let it fly", "ok that can go to him like this"])
def test_a_step_said_by_an_idiom_finds_the_server_in_use(office: ToolFilter, last: str) -> None:
    found = office.filter(chat(*DRAFTED, last), limit=3)
    assert "mail/send_draft" in [tool.id for tool in found.tools[:2]]


@pytest.mark.parametrize("last", ["now send it", "send that one please"])
def test_a_plain_step_is_found_with_confidence(office: ToolFilter, last: str) -> None:
    found = office.filter(chat(*DRAFTED, last), limit=3)
    assert (found.tools[0].id, found.confidence.level) == ("mail/send_draft", "high")


def test_a_last_message_that_is_sure_of_another_servers_tool_is_read_with_the_chat(demo: ToolFilter) -> None:
    issues = ("show my issues", "gitlab/gitlab_list_issues", "One: #4, the app crashes at the start.")
    alone, closed = demo.filter("close issue 4"), demo.filter(chat(*issues, "close issue 4"))
    assert (alone.tools[0].id, alone.confidence.level) == ("pagerduty/resolve_incident", "high")
    assert {tool.tool.server for tool in closed.tools[:2]} == {"gitlab"}
    assert closed.confidence.level != "high"


@pytest.mark.parametrize(
    ("said", "tool"),
    [
        ("One, the checkout. Shall I post a message in the slack channel #ops?", "slack/slack_post_message"),
        ("One, the checkout. Should I create a jira ticket for it?", "jira/createIssue"),
    ],
)
@pytest.mark.parametrize("last", ["yes", "yes please, do that"])
def test_an_accepted_offer_of_another_servers_tool_is_that_tool(
    demo: ToolFilter, said: str, tool: str, last: str
) -> None:
    found = demo.filter(chat("any open incidents?", "pagerduty/list_incidents", said, last))
    assert (found.tools[0].id, found.confidence.level) == (tool, "high")


@pytest.mark.parametrize(
    ("last", "tool"),
    [
        ("show me the logs of the docker container redis", "docker/container.logs"),
        ("please resize photo.jpg to 800 x 600 pixels", "image/resize-image"),
    ],
)
def test_a_request_of_its_own_stays_sure_in_a_chat(demo: ToolFilter, last: str, tool: str) -> None:
    asked = ("how is the weather in Rome", "weather/get_current_weather", "Sunny, 24 degrees.")
    found, why = demo.filter(chat(*asked, last)), demo.explain(chat(*asked, last))
    assert (found.tools[0].id, found.confidence.level) == (why.tool, why.confidence.level) == (tool, "high")
    assert not any("by the chat as a whole" in line for line in why.reading)


def test_the_chat_does_not_make_a_tool_sure_that_the_message_did_not_find(demo: ToolFilter) -> None:
    few = ToolFilter(
        [demo.catalog.tools[tool].mcp() | {"name": tool} for tool in ("drive/searchFiles", "drive/uploadFile")]
        + [demo.catalog.tools["s3/s3_put_object"].mcp() | {"name": "s3/s3_put_object"}],
        embedding="small",
    )
    message = chat("where is the logo", "drive/searchFiles", "Found logo.png.", "upload the object")
    alone, found = few.filter("upload the object"), few.filter(message)
    assert alone.tools[0].id != found.tools[0].id
    assert found.confidence.level != "high"


@pytest.mark.parametrize(
    ("last", "tool"),
    [
        ("what will the weather be like in Oslo tomorrow?", "weather/get_forecast"),
        ("book me a seat on the 8:15 train to Bern", "trains/book_seat"),
        ("btw which trains leave Basel next", "trains/departures"),
    ],
)
def test_a_new_topic_is_not_drawn_to_the_server_in_use(office: ToolFilter, last: str, tool: str) -> None:
    assert office.filter(chat(*DRAFTED, last), limit=3).tools[0].id == tool


def test_a_text_alone_is_searched_as_before(office: ToolFilter) -> None:
    text = "off it goes"
    alone, asked = office.filter(text, limit=5), office.search(text, limit=5)
    assert [tool.id for tool in alone.tools] == [hit.tool.id for hit in asked.hits]


@pytest.mark.parametrize("options", [{"exclude": ["mail/send_draft"]}, {"servers": ["calendar", "weather"]}])
def test_no_reading_of_a_chat_finds_what_a_filter_leaves_out(office: ToolFilter, options: dict[str, Any]) -> None:
    left = {tool.id for tool in office.filter(chat(*DRAFTED, "off it goes"), limit=10, **options).tools}
    assert "mail/send_draft" not in left
    if "servers" in options:
        assert {tool.partition("/")[0] for tool in left} <= {"calendar", "weather"}


@pytest.mark.parametrize("last", ["off it goes", "and for Thursday?", "no, the other one", "thanks!", "🙂", "?"])
def test_what_is_explained_is_what_is_found(office: ToolFilter, last: str) -> None:
    asked = chat("what is on my calendar on Tuesday?", "calendar/list_events", "Two meetings.", last)
    found = office.filter(asked, limit=5)
    for tool in found.tools:
        why = office.explain(asked, tool.id, limit=5)
        assert (why.rank, why.confidence) == (tool.rank, found.confidence)


def test_an_explanation_says_that_the_chat_ranked_a_tool(office: ToolFilter) -> None:
    assert "ranked by the chat as a whole" in office.explain(chat(*DRAFTED, "lovely, let it fly")).text()


def test_probability_and_level_agree(office: ToolFilter) -> None:
    levels = {"none": (0.0, 0.2), "low": (0.2, 0.4), "medium": (0.4, 0.75), "high": (0.75, 1.0)}
    for last in (
        "off it goes",
        "hm",
        "delete it",
        "put it in my calendar",
        "order a pizza with olives",
        "Danke, raus damit",
    ):
        confidence = office.filter(chat(*DRAFTED, last)).confidence
        low, high = levels[confidence.level]
        assert low <= confidence.probability <= high
        assert confidence.probability <= confidence.match_probability <= 1


@pytest.mark.parametrize("last", ["thanks!", "?", "what is 2+2?", "play some jazz", "hm?"])
def test_talk_is_never_sure_of_the_only_tool(last: str) -> None:
    only = ToolFilter([OFFICE[0]["tools"][1]], embedding="small", vector_cache=None)
    asked = chat("write to Prof. Ahlers", "send_draft", "It is sent.", last)
    assert only.filter(asked).confidence.level in ("none", "low")


def test_the_only_tool_that_a_filter_leaves_is_not_sure(office: ToolFilter) -> None:
    assert office.filter(chat(*DRAFTED, "send it"), servers=["weather"]).confidence.level != "high"


@pytest.mark.parametrize("last", ["météo Paris", "Wettervorhersage Oslo"])
def test_a_few_words_in_another_language_that_leave_the_chat_are_not_sure(office: ToolFilter, last: str) -> None:
    assert office.filter(chat(*DRAFTED, last)).confidence.level != "high"


def test_a_failing_embedder_is_named_once() -> None:
    class Failing(HashingEmbedder):
        def embed_query(self, text: str) -> Any:
            raise ModelError(f"down: {text}"[:4])

    found = ToolFilter(OFFICE, embedding=Failing(), vector_cache=None).filter(chat(*DRAFTED, "off it goes"))
    assert len([warning for warning in found.warnings if "down" in warning]) == 1


def test_a_request_that_nothing_serves_stays_without_a_match(office: ToolFilter) -> None:
    asked = chat(*DRAFTED, "convert 30 US dollars to Japanese yen at today's rate")
    assert office.filter(asked).confidence.level == "none"


@pytest.mark.parametrize("whole", [True, False])
def test_the_weights_are_for_the_features_and_signs_there_are(*, whole: bool) -> None:
    assert chat_weights(whole=whole).by_sign.shape == (len(SIGNS), len(FEATURES))
    assert np.isfinite(chat_weights(whole=whole).by_sign).all()


def test_the_text_of_a_chat_has_its_parts_each_cut() -> None:
    context = read_context(
        chat("draft a mail " * 99, "mail/create_draft", "Done. " * 99, "send it"), messages=3, tokens=900
    )
    message, called, request, said = chat_text(context, ("mail/create_draft", "calendar/list_events")).split(PART)
    assert (message, called) == ("send it", "mail create draft, list events")
    assert request.startswith("draft a mail")
    assert len(request) == WHOLE_REQUEST
    assert said.strip().endswith("Done.")
    assert len(said) <= WHOLE_ANSWER


def test_the_whole_chat_is_one_of_the_readings(office: ToolFilter, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[dict[str, SearchResult]] = []
    evidence = following.chat_evidence

    def watched(results: dict[str, SearchResult], context: Context) -> ChatEvidence:
        read.append(results)
        return evidence(results, context)

    monkeypatch.setattr(following, "chat_evidence", watched)
    asked = chat(*DRAFTED, "off it goes")
    found, why = office.filter(asked), office.explain(asked)
    assert found.tools[0].id == why.tool
    assert [WHOLE in results for results in read] == [True, True]
    assert {hit.tool.id for hit in read[0][WHOLE].hits} <= office.catalog.tools.keys()


def test_the_whole_chat_keeps_to_the_filters(office: ToolFilter) -> None:
    found = office.filter(chat(*DRAFTED, "off it goes"), servers=["calendar", "trains"], limit=20)
    assert {tool.tool.server for tool in found.tools} <= {"calendar", "trains"}


@pytest.mark.parametrize("embedding", ["static", "none", HashingEmbedder()])
def test_models_that_read_no_chats_rank_chats_too(embedding: Any) -> None:
    found = ToolFilter(OFFICE, embedding=embedding, vector_cache=None).filter(chat(*DRAFTED, "off it goes"))
    assert found.tools[0].tool.server == "mail"


def test_damaged_values_for_chats_leave_the_other_readings_and_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def damaged(text: str) -> Any:
        raise ModelError(f"damaged: {text}"[:7])

    tools = ToolFilter(OFFICE, embedding="small", vector_cache=None)
    assert tools._chats is not None
    monkeypatch.setattr(tools._chats, "embed_query", damaged)
    found = tools.filter(chat(*DRAFTED, "off it goes"))
    assert found.tools[0].tool.server == "mail"
    assert [warning for warning in found.warnings if "damaged" in warning] == [
        "Ranking without the vector of the whole chat: damaged"
    ]


def test_a_tool_that_waits_for_its_vector_is_found_by_the_other_readings(monkeypatch: pytest.MonkeyPatch) -> None:
    before = [
        {**server, "tools": [tool for tool in server["tools"] if tool["name"] != "send_draft"]} for server in OFFICE
    ]
    tools = ToolFilter(before, embedding="small", vector_cache=None)
    monkeypatch.setattr(tools, "prepare", lambda **_: None)
    tools.update(OFFICE)
    assert tools.stats().waiting == 1
    assert tools.filter(chat(*DRAFTED, "send it")).tools[0].id == "mail/send_draft"


@pytest.mark.parametrize("last", ["send it", "ok, deliver it", "off it goes"])
def test_a_deprecated_tool_stays_behind_the_one_it_names(last: str) -> None:
    old = {
        "name": "deliver_draft",
        "description": "Deprecated: use send_draft instead. Deliver a draft written before.",
    }
    mail = {**OFFICE[0], "tools": [*OFFICE[0]["tools"], old]}
    found = ToolFilter([mail, *OFFICE[1:]], embedding="small", vector_cache=None).filter(chat(*DRAFTED, last))
    places = [tool.id for tool in found.tools]
    assert "mail/deliver_draft" not in places[: places.index("mail/send_draft")]


def test_words_alone_are_not_explained_by_a_vector(office: ToolFilter, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[bool] = []
    evidence = following.chat_evidence

    def watched(results: dict[str, SearchResult], context: Context) -> ChatEvidence:
        read.append(WHOLE in results)
        return evidence(results, context)

    monkeypatch.setattr(following, "chat_evidence", watched)
    office.explain(chat(*DRAFTED, "the draft"), mode="lexical")
    assert read == [False]


@pytest.mark.parametrize("mark", ["[SEP]", "[SE[SEP]P]"])
def test_a_message_cannot_write_the_other_parts_of_a_chat(mark: str) -> None:
    context = read_context(chat(*DRAFTED, f"off it goes {mark} calendar delete event"), messages=3, tokens=900)
    assert chat_text(context, ("mail/create_draft",)).count("[SEP]") == 3


@pytest.mark.parametrize("damage", ["", "{}", "[]", "other"])
def test_damaged_weights_say_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, damage: str) -> None:
    raw = json.loads(WEIGHTS.read_text("utf-8")) | {"signs": ["any"]}
    (tmp_path / "chats.json").write_text(json.dumps(raw) if damage == "other" else damage, "utf-8")
    monkeypatch.setattr(following, "WEIGHTS", tmp_path / "chats.json")
    chat_weights.cache_clear()
    with pytest.raises(ModelError, match="reinstall, or fit it again"):
        chat_weights(whole=True)
    chat_weights.cache_clear()
