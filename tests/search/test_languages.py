"""Searching in other languages than the catalog's, and over tools described in them."""

import pytest

from shortlist.catalog.catalog import Catalog
from shortlist.models import Query, Tool
from shortlist.search.searcher import Searcher
from shortlist.text.documents import embedding_text

ENGLISH = (
    Tool(id="mail/send", server="mail", name="send_email", description="Send an email to a recipient."),
    Tool(id="files/delete", server="files", name="delete_file", description="Delete a file from a folder."),
    Tool(id="weather/get", server="weather", name="get_forecast", description="Get the weather forecast of a city."),
)
CHINESE = Tool(id="天气/查询", server="amap", name="query", description="查询指定城市的天气预报")


@pytest.mark.parametrize(
    ("text", "tool"),
    [
        ("lösch die Datei aus dem Ordner", "files/delete"),
        ("envía un correo electrónico al cliente", "mail/send"),
        ("明天的天气预报", "weather/get"),
        ("احذف الملف من المجلد", "files/delete"),
        ("सारी फाइलें मिटाओ", "files/delete"),
    ],
)
def test_a_request_in_another_language_finds_the_tool(text: str, tool: str) -> None:
    assert Searcher(Catalog.of(ENGLISH)).search(Query(text=text)).hits[0].tool.id == tool


def test_the_answer_says_which_language_it_read() -> None:
    found = Searcher(Catalog.of(ENGLISH)).search(Query(text="lösch die Datei aus dem Ordner"))
    assert any("German" in note and "file" in note for note in found.notes)


def test_several_senses_of_a_word_are_shown_as_alternatives() -> None:
    searcher = Searcher(Catalog.of(ENGLISH))
    query = Query(text="zmniejsz zdjęcie")
    assert "image/photo" in searcher.search(query).notes[0]
    assert "'zdjęcie' read as image/photo/picture" in searcher.explain(query, "mail/send").text()


def test_an_english_answer_has_no_such_note() -> None:
    assert Searcher(Catalog.of(ENGLISH)).search(Query(text="delete the file from the folder")).notes == ()


def test_a_language_without_a_lexicon_is_searched_as_it_stands_and_named() -> None:
    found = Searcher(Catalog.of(ENGLISH)).search(Query(text="Διάγραψε το αρχείο send_email"))
    assert found.hits[0].tool.id == "mail/send"
    assert any("Greek is not among the supported languages" in note for note in found.notes)


def test_every_gloss_shows_in_the_explanation() -> None:
    explained = Searcher(Catalog.of(ENGLISH)).explained(Query(text="supprime le fichier du dossier"))
    first = explained.explanations[0]
    assert {"supprime", "fichier", "dossier"} <= first.read_as.keys()
    assert "'fichier' read as file" in first.text()


def test_a_tool_described_in_another_language_is_found_in_english() -> None:
    searcher = Searcher(Catalog.of((*ENGLISH[:2], CHINESE)))
    assert searcher.search(Query(text="weather forecast for a city")).hits[0].tool.id == CHINESE.id
    assert "weather" in embedding_text(CHINESE)


def test_a_tool_described_in_another_language_is_found_in_its_own() -> None:
    searcher = Searcher(Catalog.of((*ENGLISH, CHINESE)))
    assert searcher.search(Query(text="查询城市的天气预报")).hits[0].tool.id == CHINESE.id
