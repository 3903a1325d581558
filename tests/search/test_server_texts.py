"""What a server says about itself is searched, but does not decide what a misspelled word was meant to be."""

from collections.abc import Sequence
from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest

from shortlist.catalog.catalog import Catalog
from shortlist.index.index import Index
from shortlist.models import Query, Server, Tool
from shortlist.search.own_words import OwnWords
from shortlist.search.searcher import Searcher
from shortlist.search.spelling import Speller

HONEST = (
    Tool(id="mail/send", server="mail", name="send_email", description="Send an email to one or more people."),
    Tool(id="mail/list", server="mail", name="list_emails", description="List the emails of a folder."),
    Tool(id="git/open", server="git", name="create_pull_request", description="Open a pull request on a repository."),
    Tool(id="cal/add", server="calendar", name="create_event", description="Put a new event on the calendar."),
)
OTHER = ("moon_phase", "Return the phase of the moon."), ("tide_table", "Return high tide."), ("sunrise", "Sun rises.")
CORRECTIONS = {
    "sned emial to the suppliers": "send email to the suppliers",
    "opne the pull requst": "open the pull request",
    "put lunch on the calender": "put lunch on the calendar",
    "crate an evetn": "crate an event",
}
SAID: dict[str, dict[str, Any]] = {
    field.name: {field.name: ". ".join(CORRECTIONS) if isinstance(field.default, str) else tuple(CORRECTIONS)}
    for field in fields(Server)
    if field.name != "name"  # the user's word
}
SAID["everything"] = {name: text for said in SAID.values() for name, text in said.items()}
WIKI = (
    Tool(id="wiki/new", server="wiki", name="create_page", description="Create a page in a space."),
    Tool(id="wiki/get", server="wiki", name="get_page", description="Return a page."),
)


def beside(said: dict[str, Any], offered: Sequence[tuple[str, str]] = OTHER) -> Catalog:
    theirs = [Tool(id=f"aaa/{name}", server="aaa", name=name, description=text) for name, text in offered]
    return Catalog.of((*theirs, *HONEST), [Server(name="aaa", **said)])


def saying(name: str, field: str, text: str) -> Server:
    said: dict[str, Any] = {field: text}
    return Server(name=name, **said)


def speller_of(catalog: Catalog) -> Speller:
    return Speller(Index.build(catalog))


def hits(searcher: Searcher, request: str) -> list[tuple[str, float]]:
    return [(hit.tool.id, hit.score) for hit in searcher.search(Query(text=request, limit=4)).hits]


@pytest.mark.parametrize("said", SAID.values(), ids=SAID)
def test_words_are_corrected_whatever_a_server_says(said: dict[str, Any]) -> None:
    silent, telling = speller_of(beside({})), speller_of(beside(said))

    for request, corrected in CORRECTIONS.items():
        assert telling(request).text == corrected
        assert telling.readings(request) == silent.readings(request)


def test_words_are_corrected_whatever_sentences_a_server_repeats() -> None:
    repeated = [(name, f"{text} {'. '.join(CORRECTIONS)}.") for name, text in OTHER]
    speller = speller_of(beside({}, repeated))

    assert {request: speller(request).text for request in CORRECTIONS} == CORRECTIONS


@pytest.mark.parametrize("field", ["title", "description"])
@pytest.mark.parametrize(
    ("word", "request_text", "honest"),
    [
        ("zorbix", "send the zrobix", [("send_zorbix", "Send a zorbix to people.")]),
        ("databse", "query the databse", [(f"query_{n}", f"Query database {n}.") for n in range(25)]),
    ],
)
def test_a_word_is_corrected_alike_however_many_tools_have_a_server_that_says_it(
    word: str, request_text: str, honest: Sequence[tuple[str, str]], field: str
) -> None:
    """Its server says the right word before the tool that has it, or an error that one of its tools has, too."""
    theirs = [("moon", "Return the moon. databse"), *((f"tide_{n}", f"Return tide {n}.") for n in range(20))]
    tools = [
        Tool(id=f"{server}/{name}", server=server, name=name, description=description)
        for server, offered in (("aaa", theirs), ("ours", honest))
        for name, description in offered
    ]
    silent, telling = (Catalog.of(tools, [saying("aaa", field, said)]) for said in ("", word))

    assert speller_of(telling)(request_text) == speller_of(silent)(request_text)
    assert hits(Searcher(telling), request_text)[0][0].startswith("ours/")


@pytest.mark.parametrize(
    ("field", "said", "request_text", "level", "probability"),
    [
        ("title", "Atlassian Confluence and Jira", "confluence", "medium", 0.695),
        ("title", "Atlassian Confluence and Jira", "create page in confluence", "high", 0.976),
        ("title", "Atlassian Confluence and Jira", "create page in conflunce", "high", 0.976),
        ("title", "Zorbix Suite", "zorbix", "medium", 0.699),
        ("title", "Zorbix Suite", "create a page in zorbix", "high", 0.977),
        ("title", "Evernt", "create page in evernt", "high", 0.977),
        ("title", "AWS wiki", "list aws pages", "high", 0.817),
        ("description", "Atlassian Confluence and Jira", "confluence", "medium", 0.605),
        ("description", "Atlassian Confluence and Jira", "create page in confluence", "high", 0.973),
        ("description", "Zorbix Suite", "zorbix", "medium", 0.612),
    ],
)
def test_a_product_that_only_its_server_names_is_found_as_surely_as_ever(
    field: str, said: str, request_text: str, level: str, probability: float
) -> None:
    catalog = Catalog.of((*WIKI, *HONEST), [saying("wiki", field, said)])
    result = Searcher(catalog).search(Query(text=request_text))

    assert result.hits[0].tool.server == "wiki"
    assert result.confidence.level == level
    assert result.confidence.probability == pytest.approx(probability, abs=0.001)


@pytest.mark.parametrize("word", ["x", "yz", "aws", "mailserver", "emailjs", "personio"])
def test_a_word_that_only_its_server_says_is_kept_if_it_is_hardly_a_slip_in_one_of_a_tool(word: str) -> None:
    """Short words, joined words, longer forms and words that differ by more than a slip are names more often."""
    personal = [("personal_data", "Return personal data.")]

    assert speller_of(beside({"title": word.title()}, personal)).knows(word)


def test_words_of_tools_and_names_of_servers_count_and_what_servers_say_does_not() -> None:
    index = Index.build(beside({"title": "Moon letters", "description": "Writes email in a tide."}))
    own = OwnWords(index)

    assert [own.tools(term) for term in ("moon", "tide", "email", "calendar", "letter", "write", "unheard")] == [
        1,
        1,
        2,
        1,
        0,
        0,
        0,
    ]
    assert [term for term in ("moon", "letter", "write", "unheard") if own.only_said(term)] == ["letter", "write"]
    assert own.is_name("calendar")
    assert not own.is_name("letter")


def test_copies_do_not_count_but_for_the_names_of_their_servers() -> None:
    index = Index.build(beside({}))
    mail = np.array([index.rows["mail/send"], index.rows["mail/list"]])
    own = OwnWords(replace(index, lexical=index.lexical.uncounted(mail)))

    assert [own.tools(term) for term in ("email", "mail", "event")] == [0, 2, 1]


def test_the_titles_of_copies_make_no_word_frequent_that_other_tools_have() -> None:
    """A word in the titles of many copies was more frequent than there are tools, and counted against those with it."""
    copies = [Tool(id=f"x{n}/send", server=f"x{n}", name="send_email", description="Send an email.") for n in range(20)]
    said = [Server(name=f"x{n}", title="Send email, open pull requests, zorbix") for n in range(20)]
    index = Index.build(Catalog.of((*HONEST, *copies), said))
    seen = index.lexical.uncounted(np.array([index.rows[copy.id] for copy in copies]))

    assert [seen.frequency(term) for term in ("email", "pull", "event")] == [2, 1, 1]
    assert 0 < seen.idf("zorbix") < seen.idf("email") < seen.idf("pull")
