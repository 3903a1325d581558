"""What is asked beside a paste is worded loosely: the model reads it as it reads chats, and all else as ever."""

import pytest

from shortlist import ToolFilter
from shortlist.index.embedders import Embedder, OnnxEmbedder, Vectors, shipped
from shortlist.index.vectors import QueryVectors
from shortlist.models import Query
from shortlist.search.searcher import Searcher
from tests.fakes import HashingEmbedder, catalog

LOG = "\n".join(f"2026-03-01 10:00:{n:02} ERROR merge of page {n} failed: no channel" for n in range(20))
ASK = "post a message to our channel"
TOOLS = catalog(
    {
        "chat/post_message": "Post a message to a channel.",
        "pdf/merge_pdfs": "Join several PDF files into one.",
        "weather/get_forecast": "Get the weather forecast for a city.",
    }
)


def prepared(embedder: Embedder | None) -> Searcher:
    assert embedder is not None
    ready = Searcher(TOOLS, QueryVectors(embedder))
    ready.prepare()
    return ready


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[tuple[bool, str]]:
    """Note which texts are read as requests and which as chats."""
    texts: list[tuple[bool, str]] = []
    embed = OnnxEmbedder.embed_query

    def noted(self: OnnxEmbedder, text: str) -> Vectors:
        texts.append((self._for_chats, text))
        return embed(self, text)

    monkeypatch.setattr(OnnxEmbedder, "embed_query", noted)
    return texts


@pytest.fixture
def small() -> Searcher:
    return prepared(shipped("small"))


def test_a_request_beside_a_paste_is_read_as_chats_are(small: Searcher, read: list[tuple[bool, str]]) -> None:
    found = small.search(Query(text=f"{LOG}\n\n{ASK}"))
    assert found.hits[0].tool.id == "chat/post_message"
    assert found.query.beside_paste
    assert read == [(True, ASK)]


def test_a_request_alone_is_never_read_as_chats_are(small: Searcher, read: list[tuple[bool, str]]) -> None:
    assert not small.search(Query(text=ASK)).query.beside_paste
    assert read == [(False, ASK)]


def test_wishes_beside_a_paste_are_all_read_as_chats_are(small: Searcher, read: list[tuple[bool, str]]) -> None:
    small.search(Query(text=f"{LOG}\n\npost a message to #dev and merge the PDF files"))
    assert len(read) > 1
    assert all(for_chats for for_chats, _ in read)


def test_a_filter_and_its_explanation_read_the_request_alike(read: list[tuple[bool, str]]) -> None:
    tools = ToolFilter([each.mcp() for each in TOOLS.tools.values()], embedding="small", vector_cache=None)
    message = f"{LOG}\n\n{ASK}"
    found, why = tools.filter(message), tools.explain(message)
    assert found.tools[0].id == why.tool
    assert {for_chats for for_chats, text in read if ASK in text} == {True}


def test_models_without_values_for_chats_read_a_request_beside_a_paste_as_any_other() -> None:
    by_hashes = prepared(HashingEmbedder())
    beside, alone = (by_hashes.search(Query(text=text)) for text in (f"{LOG}\n\n{ASK}", ASK))
    assert [hit.score for hit in beside.hits] == [hit.score for hit in alone.hits]


def test_all_who_ask_share_one_reader_of_chats() -> None:
    embedder = shipped("small")
    assert embedder is not None
    vectors = QueryVectors(embedder)
    vectors.share()
    reader = vectors.for_chats()
    assert reader is not None
    assert reader is vectors.for_chats() is vectors.reading(Query(text=ASK, beside_paste=True))
    assert isinstance(reader.embedder, OnnxEmbedder)
    assert reader.embedder.is_shared
    assert vectors.reading(Query(text=ASK)) is vectors
