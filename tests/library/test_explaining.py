"""Explanations take what `filter` takes, and say what was taken from the chat."""

from typing import Any

import pytest

from shortlist.errors import InvalidQuery
from tests.library.support import MERGE, workplace

CALL = {"type": "function", "function": {"name": "github__create_issue", "arguments": "{}"}}


def chat(last: str) -> list[dict[str, Any]]:
    return [
        {"role": "user", "content": "show me the pull request 91 in acme/site"},
        {"role": "assistant", "content": "It is approved.", "tool_calls": [CALL]},
        {"role": "user", "content": last},
    ]


@pytest.mark.parametrize("last", ["now merge it", "not the pull request, the branch", "send an email to Karin today"])
@pytest.mark.parametrize("asked", [chat, lambda last: last, lambda last: chat(last)[-1]])
def test_the_first_hit_of_a_filter_is_what_is_explained(asked: Any, last: str) -> None:
    made = workplace()
    found, why = made.filter(asked(last)), made.explain(asked(last))
    first = next(tool for tool in found.tools if tool.rank == 1)
    assert (why.tool, why.rank) == (first.id, 1)
    assert (why.confidence, why.relation, why.taken) == (found.confidence, found.query.relation, found.asked.taken)


def test_an_explanation_shows_what_was_taken_from_the_chat() -> None:
    text = workplace().explain(chat("now merge it"), "merge_pull_request").text()
    assert "asked: 'now merge it'" in text
    assert "the request continues the chat, after the call of github/create_issue" in text
    assert "taken from the chat: 'the pull request 91 in acme/site'" in text


def test_a_confidence_that_was_lowered_for_the_chat_is_named() -> None:
    made = workplace()
    lowered, direct = made.explain(chat("merge it and create an issue about it")), made.explain(MERGE)
    assert (lowered.confidence.level, direct.confidence.level) == ("medium", "high")
    assert "high confidence was lowered" in lowered.text()
    assert "lowered" not in direct.text()


def test_a_new_request_takes_nothing_from_the_chat() -> None:
    text = workplace().explain(chat("something else: send an email to Karin that lunch is at twelve")).text()
    assert "the request is new" in text
    assert "taken from the chat: nothing" in text


def test_the_paste_in_a_message_is_counted() -> None:
    log = "\n".join(f"2026-03-01 10:00:{n:02} ERROR timeout" for n in range(40))
    text = workplace().explain(chat(f"{log}\n\nmerge it")).text()
    assert "asked: 'merge it'; " in text
    assert "characters are pasted" in text


def test_an_explanation_takes_the_options_of_a_filter_and_the_fields_of_a_query() -> None:
    made = workplace()
    assert made.explain(MERGE, servers=["slack"]).tool.startswith("slack/")
    assert made.explain(MERGE, "merge_pull_request", servers=["slack"]).rank is None
    assert set(made.explain(MERGE, mode="lexical").arms) == {"lexical"}
    with pytest.raises(InvalidQuery, match="nothing to explain"):
        made.explain(MERGE, servers=["slack"], exclude=[tool for tool in made.catalog.tools if "slack" in tool])


@pytest.mark.parametrize(
    ("given", "problem"), [([], "None of the messages"), ([{}], "has no role"), (7, "this is int"), (" ", "is empty")]
)
def test_what_cannot_be_read_is_refused_as_by_a_filter(given: Any, problem: str) -> None:
    for read in (workplace().explain, workplace().filter):
        with pytest.raises(InvalidQuery, match=problem):
            read(given)
