"""Chats over the demo catalog whose last turn says little."""

from typing import Any

import pytest

from shortlist import ToolFilter
from shortlist.demo import CATALOG
from shortlist.library.results import FilterResult


@pytest.fixture(scope="module")
def demo() -> ToolFilter:
    return ToolFilter(CATALOG, embedding="small")


def chat(*turns: str, called: str = "") -> list[dict[str, Any]]:
    """Return the messages of a user and an assistant in turn, whose last answer follows a call."""
    said = [{"role": "assistant" if n % 2 else "user", "content": turn} for n, turn in enumerate(turns)]
    call = {"role": "assistant", "content": "", "tool_calls": [{"type": "function", "function": {"name": called}}]}
    return [*said[:-2], *([call] if called else ()), *said[-2:]]


def answered(demo: ToolFilter, *turns: str, called: str = "") -> FilterResult:
    return demo.filter(chat(*turns, called=called), limit=5)


@pytest.mark.parametrize(
    ("asked", "said", "called", "ask"),
    [
        ("what does ticket OPS-3 say?", "It is about the gate.", "jira/getIssue", "give it to Mara"),
        ("where is the plan for the move?", "Found plan.xlsx.", "drive/searchFiles", "let Nadia see it"),
        (
            "tapas near the cathedral",
            "Three places are open.",
            "maps/maps_search_places",
            "only the coordinates please",
        ),
        ("how many people came last week?", "There were 4,000.", "analytics/runReport", "where did they come from"),
    ],
)
def test_a_request_that_goes_on_with_a_server_is_not_without_an_answer(
    demo: ToolFilter, asked: str, said: str, called: str, ask: str
) -> None:
    found = answered(demo, asked, said, ask, called=called)
    assert found.tools[0].server == called.partition("/")[0]
    assert found.confidence.level != "none"


@pytest.mark.parametrize("ask", ["now order a pizza", "book me a flight to Rome", "feed the cat", "fax my dentist"])
def test_a_new_topic_that_no_tool_serves_stays_without_an_answer(demo: ToolFilter, ask: str) -> None:
    found = answered(demo, "is the flag dark-mode on?", "It is off.", ask, called="flags/get-flag")
    assert found.confidence.level == "none"


@pytest.mark.parametrize("ask", ["no, gitlab please", "wrong, gitlab", "sorry, I meant gitlab"])
def test_a_correction_that_names_a_server_asks_for_the_same_there(demo: ToolFilter, ask: str) -> None:
    found = answered(demo, 'file an issue "Slow start page" in shop/front', "I will open it on GitHub.", ask)
    assert found.tools[0].id == "gitlab/gitlab_create_issue"


def test_a_bare_pair_of_values_fills_the_open_request(demo: ToolFilter) -> None:
    said = "In which zone, and with which value?"
    found = answered(demo, "create a TXT record for the domain", said, "example.net, v=spf1-include:_mx.example.net")
    assert found.asked.relation == "fills"
    assert found.tools[0].id == "dns/records.create"
