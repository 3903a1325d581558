"""A list of tools that is read again, and lists that are longer than anybody needs."""

import hashlib
import threading
from collections.abc import Iterable, Mapping
from dataclasses import replace
from itertools import count, repeat
from typing import Any

import pytest

from shortlist.catalog.catalog import Catalog
from shortlist.catalog.readers import tool_from_mcp
from shortlist.config.settings import ServerSettings, StdioTransport, ToolOverride
from shortlist.gateway.router import PROMPTS, listed_items
from shortlist.models import Query, Server
from shortlist.search.searcher import Searcher
from shortlist.text.documents import document, embedding_text
from shortlist.upstream import connection, normalise, offers
from shortlist.upstream.normalise import Listing
from shortlist.upstream.offers import items_of

SETTINGS = ServerSettings(name="s", transport=StdioTransport(command="true"), tags=("mail",))


def raw(name: str, description: str = "") -> dict[str, object]:
    return {"name": name, "description": description, "inputSchema": {"type": "object"}}


def test_tools_that_are_listed_again_unchanged_stay_the_same_objects() -> None:
    first = Listing(SETTINGS, "modern")
    first.extend([raw("send"), raw("read", "Read a mail.")])
    again = Listing(SETTINGS, "modern", first.tools)
    again.extend([raw("send"), raw("read", "Read mails.")])

    assert again.tools["send"] is first.tools["send"]
    assert again.tools["read"].description == "Read mails."


def test_a_tool_ranks_by_the_labels_of_the_configuration_and_is_filtered_by_those_of_its_server_too() -> None:
    named = {**raw("send", "Send a mail."), "tags": ["invoice"], "keywords": ["invoice"], "category": "invoice"}
    listing = Listing(replace(SETTINGS, tools={"send": ToolOverride(keywords=("letter",))}), "modern")
    listing.extend([named])
    (tool,) = listing.tools.values()

    assert (tool.tags, tool.category, tool.keywords) == (("invoice", "mail"), "invoice", ("letter", "mail"))
    assert document(tool, Server(name="s"))["labels"] == ["letter", "mail"]
    assert embedding_text(tool) == "s send: Send a mail. letter mail"


@pytest.mark.parametrize("tags", [(), ("mail",)], ids=["without configured tags", "with configured tags"])
def test_labels_do_not_rank_in_an_index_from_when_they_did(tags: tuple[str, ...]) -> None:
    named = {**raw("send", "Send a mail."), "tags": ["invoice"], "category": "billing"}
    listing = Listing(replace(SETTINGS, tags=tags), "modern")
    listing.extend([named])
    (tool,) = listing.tools.values()
    before = tool_from_mcp(named, "s")
    if tags:
        label = "\0".join((before.content_hash, *tags, ""))
        digest = hashlib.blake2b(label.encode(), digest_size=12).hexdigest()
        before = replace(before, tags=("invoice", *tags), content_hash=digest)
    saved = Catalog.of([before])
    searcher = Searcher(saved)
    assert searcher.search(Query(text="invoice billing")).hits[0].signals["lexical"].score > 0

    searcher.update(saved.with_server(Server(name="s"), [tool]))

    assert searcher.search(Query(text="invoice billing")).hits[0].signals["lexical"].score == 0


def test_tools_beyond_the_size_of_a_list_are_left_out_and_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(normalise, "MAX_LISTED_CHARACTERS", 1_000)
    listing = Listing(SETTINGS, "modern")
    listing.extend([raw(f"tool_{number}", "x" * 300) for number in range(5)])
    assert list(listing.tools) == ["tool_0", "tool_1"]
    assert "longer than 1,000 characters in all" in listing.problems[0]


@pytest.mark.anyio
async def test_other_work_runs_while_a_long_list_is_read() -> None:
    parts: list[tuple[threading.Thread, int]] = []

    class Noting(Listing):
        def extend(self, page: Any) -> None:
            parts.append((threading.current_thread(), len(page)))
            super().extend(page)

    listing = Noting(SETTINGS, "modern")
    await connection._extend(listing, [raw(f"tool_{number}") for number in range(1_001)])
    assert list(listing.tools) == [f"tool_{number}" for number in range(1_001)]
    assert max(size for _, size in parts) <= connection.READ_AT_ONCE
    assert threading.main_thread() not in {thread for thread, _ in parts}


class _Endless:
    """A server whose list of prompts never ends."""

    def __init__(self, cursors: Iterable[str]) -> None:
        self.pages, self._cursors = 0, iter(cursors)

    async def ask(self, _: str, __: Mapping[str, Any]) -> dict[str, Any]:
        self.pages += 1
        return {"prompts": [{"name": "x" * 1_000}, "no object", {}], "nextCursor": next(self._cursors)}


@pytest.mark.anyio
async def test_a_list_of_prompts_that_is_asked_for_ends_at_its_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(offers, "MOST_BYTES", 5_000)
    endless = _Endless(map(str, count()))
    assert len(await listed_items(endless.ask, PROMPTS)) == 4
    assert endless.pages == 5


@pytest.mark.anyio
async def test_a_list_of_prompts_ends_at_a_cursor_that_repeats() -> None:
    endless = _Endless(repeat("again"))
    assert len(await listed_items(endless.ask, PROMPTS)) == 2


@pytest.mark.parametrize("listed", [7, "text", {"name": "x"}, None, [1, ["x"], None]])
def test_a_page_without_a_list_of_objects_has_no_items(listed: Any) -> None:
    assert items_of({"prompts": listed}, "prompts") == []
