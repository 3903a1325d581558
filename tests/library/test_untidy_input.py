"""Untidy input through the front door of the library: each kind gets a clear answer, and nothing is lost."""

import pytest

from shortlist import ToolFilter
from shortlist.errors import InvalidQuery
from shortlist.gateway.tools import shortened
from shortlist.text.asks import read_ask

TOOLS = [
    {"name": "send_email", "description": "Send an email to a recipient."},
    {"name": "delete_file", "description": "Delete a file from a folder."},
    {"name": "get_forecast", "description": "Get the weather forecast of a city."},
]


MESSAGES = [
    {"name": "post_message", "description": "Post a message to a team or a channel."},
    {"name": "list_members", "description": "List the members."},
]


@pytest.fixture(scope="module")
def tools() -> ToolFilter:
    return ToolFilter(TOOLS, embedding="none")


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("احذف الملف report.txt من المجلد", "delete_file"),
        ("🗑️ delete the file 🎉👍🏽", "delete_file"),
        ("por favor send an email al cliente", "send_email"),
    ],
    ids=["right to left", "emoji", "mixed languages"],
)
def test_the_tool_is_found(tools: ToolFilter, text: str, name: str) -> None:
    assert tools.filter(text).tools[0].name == name


def test_a_chat_given_to_search_is_an_error_that_names_filter(tools: ToolFilter) -> None:
    with pytest.raises(InvalidQuery, match=r"not list\. Pass a chat to filter\(messages\)"):
        tools.search([{"role": "user", "content": "send an email"}])  # type: ignore[arg-type]


def test_each_clause_in_its_own_language_is_served(tools: ToolFilter) -> None:
    found = tools.filter("lösch die Datei aus dem Ordner. What is the weather forecast?", limit=2)
    assert {tool.name for tool in found.tools} == {"delete_file", "get_forecast"}


def test_a_megabyte_of_paste_leaves_the_request_in_charge(tools: ToolFilter) -> None:
    line = "2026-03-01 10:00:00 ERROR the forecast of the city was not sent by email\n"
    found = tools.filter(f"{line * 14_000}\ndelete the file")
    assert found.tools[0].name == "delete_file"
    assert found.asked.text == "delete the file"


MARKS = [
    "“",
    "„",
    "«",
    "「",
    "『",
    "'a",
    "{",
    "{a",
    "[",
    "?",
    "=?",
    "a-",
    "-",
    "_",
    "a.",
    "`",
    "\n",
    "한",
    "ا",
    "Ab ",
    "and ",
]


@pytest.mark.parametrize("mark", MARKS)
def test_a_long_text_of_one_mark_is_read_once_and_not_from_each_of_them(tools: ToolFilter, mark: str) -> None:
    text = mark * (200_000 // len(mark))
    offer = {"role": "assistant", "content": "Shall I delete the file?"}
    assert tools.filter(f"{text}\n\ndelete the file").tools[0].name == "delete_file"
    for chat in (
        [{"role": "user", "content": text}, offer, {"role": "user", "content": "yes"}],
        [offer, {"role": "user", "content": f"yes {text}"}],
        [{"role": "assistant", "content": text}, {"role": "user", "content": "delete the file"}],
    ):
        assert tools.filter(chat).tools


def test_a_chat_of_five_hundred_turns_is_answered_by_its_last_request(tools: ToolFilter) -> None:
    turns = [
        {"role": "user" if n % 2 == 0 else "assistant", "content": f"Will it rain in city {n}? The forecast is fine."}
        for n in range(500)
    ]
    found = tools.filter([*turns, {"role": "user", "content": "delete the file report.txt from the folder"}])
    assert found.tools[0].name == "delete_file"


def test_a_language_without_a_lexicon_is_searched_unchanged_and_named(tools: ToolFilter) -> None:
    found = tools.filter("Διάγραψε το αρχείο delete_file")
    assert found.tools[0].name == "delete_file"
    assert any("Greek is not among the supported languages" in warning for warning in found.warnings)


def test_an_openapi_document_with_cycles_and_an_unreachable_server_is_read() -> None:
    document = {
        "openapi": "3.0.0",
        "info": {"title": "Trees", "version": "1"},
        "servers": [{"url": "http://127.0.0.1:1/nowhere"}],
        "paths": {
            "/trees": {
                "post": {
                    "operationId": "plantTree",
                    "summary": "Plant a tree.",
                    "requestBody": {"content": {"application/json": {"schema": {"$ref": "#/components/schemas/Node"}}}},
                }
            }
        },
        "components": {
            "schemas": {
                "Node": {"type": "object", "properties": {"child": {"$ref": "#/components/schemas/Node"}}},
            }
        },
    }
    found = ToolFilter(document, embedding="none").filter("plant a tree")
    assert [tool.name for tool in found.tools] == ["trees__plantTree"]


@pytest.mark.parametrize("correction", ["lol no, discord", "we use discord for that, not slack"])
def test_a_correction_that_names_another_server_is_answered_by_it(correction: str) -> None:
    named = [{**tool, "server": server} for server in ("slack", "discord", "github") for tool in MESSAGES]
    chat = [
        {"role": "user", "content": "post 'lunch is here' to the team"},
        {"role": "assistant", "content": "", "tool_calls": [{"function": {"name": "slack/post_message"}}]},
        {"role": "user", "content": correction},
    ]
    assert ToolFilter(named, embedding="none").filter(chat).tools[0].id == "discord/post_message"


def test_a_word_that_only_begins_the_name_of_a_server_does_not_name_it() -> None:
    named = [{**tool, "server": server} for server in ("slack", "filesystem") for tool in MESSAGES]
    chat = [
        {"role": "user", "content": "list the members of the team"},
        {"role": "assistant", "content": "", "tool_calls": [{"function": {"name": "slack/list_members"}}]},
        {"role": "user", "content": "wait, post a message with the files"},
    ]
    assert ToolFilter(named, embedding="none").filter(chat).tools[0].id == "slack/post_message"


@pytest.mark.parametrize(
    ("word", "server"), [("brave", "brave-search"), ("google", "google-calendar"), ("zulip", "zulip-mcp-server")]
)
def test_the_first_word_of_the_name_of_a_server_names_it(word: str, server: str) -> None:
    named = [{**tool, "server": each} for each in ("slack", "discord", server) for tool in MESSAGES]
    chat = [
        {"role": "user", "content": "list the members of the team"},
        {"role": "assistant", "content": "", "tool_calls": [{"function": {"name": "slack/list_members"}}]},
        {"role": "user", "content": f"wait, post a message with {word}"},
    ]
    assert ToolFilter(named, embedding="none").filter(chat).tools[0].id == f"{server}/post_message"


MAIL = (
    "From: Petra <petra@acme.example>\nTo: sales@acme.example\nSubject: Closing\n\nHi all,\n\n"
    + "the warehouse closes on Thursday, and pallets stay at the dock. " * 12
    + "Could you send an email to a recipient?\n\nBest regards,\nPetra"
)


@pytest.mark.parametrize("query", [MAIL, [{"role": "user", "content": MAIL}]], ids=["text", "chat"])
def test_a_mail_that_asks_somebody_else_is_low_and_says_so(
    tools: ToolFilter, query: str | list[dict[str, str]]
) -> None:
    confidence = tools.filter(query).confidence
    assert confidence.level in ("low", "none")
    assert confidence.reasons[-1] == f"nothing in {read_ask(MAIL).characters:,} characters reads like a request"


def test_a_long_query_that_asks_for_nothing_is_not_reduced_to_a_request() -> None:
    long = MAIL.replace("Could you", "The carrier calls back. " * 300 + "Could you")
    assert not read_ask(shortened(long)).is_clear
