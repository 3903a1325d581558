"""The fitted reading of long messages: which of their sentences ask."""

import pytest

from shortlist.text.asking import MOST_SENTENCES, asking, scores_of, sentences_of
from shortlist.text.asks import read_ask

FARM = (
    "Hi Tomek,\n\nthe hens have moved into the new stable. Please send me the invoice for the fence before Friday,"
    " and tell your brother that the gate still squeaks. Could you also bring the long ladder?\n\nWe counted 61 eggs on"
    " Monday and 58 on Tuesday. Feed costs went up again.\n\nBest,\nMarek"
)
BUILD = "\n".join(f"[{n:02}] step {n} of 40: linking object {n * 7 % 40} into libcore.a" for n in range(40))


@pytest.mark.parametrize(
    ("above", "ask", "below"),
    [
        (FARM, "Put the egg counts into our sheet, one row per day", ""),
        ("", "Could you schedule a reminder about the invoice for Thursday?", FARM),
        (BUILD, "→ ticket in jira for the slow linker pls", ""),
        (f"{FARM}\n\n-----", "which of these dates clash with my calendar?", f"-----\n\n{FARM}"),
    ],
)
def test_a_request_beside_a_letter_or_a_log_is_found(above: str, ask: str, below: str) -> None:
    found = read_ask(f"{above}\n\n{ask}\n\n{below}")
    assert ask.removeprefix("→ ") in found.text
    assert len(found.text) < 2 * len(ask)
    assert found.is_clear


def test_what_the_letter_asks_of_its_reader_is_not_the_request() -> None:
    found = read_ask(f"file this under Farm in the drive\n\n{FARM}").text
    assert "invoice" not in found
    assert "ladder" not in found


def test_prose_is_cut_into_sentences_and_all_else_into_lines() -> None:
    found = sentences_of(
        "See this. Then file it!\n\n2026-03-01 10:00:00 ERROR down. Retry. Retry.\n2026-03-01 10:00:01 up"
    )
    assert [each.text for each in found][:2] == ["See this.", "Then file it!"]
    assert [each.kind for each in found] == ["", "", "log", "log"]
    assert [(each.paragraph, each.from_start, each.from_end) for each in found] == [
        (0, 0, 1),
        (0, 1, 0),
        (1, 0, 1),
        (1, 1, 0),
    ]


@pytest.mark.parametrize(
    "text",
    ["a. " * 60_000, "\n".join("x y z" for _ in range(60_000)), "\n\n" * 1_000, "?" * 5_000, "a" + " " * 60_000 + "b"],
)
def test_any_text_is_read_within_a_bound(text: str) -> None:
    sentences = sentences_of(text)
    assert len(sentences) <= 2 * MOST_SENTENCES
    assert set(asking(sentences, scores_of(sentences, ""), "")) <= set(sentences)
