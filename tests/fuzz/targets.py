"""The parsers under test; each takes one input and must neither raise anything unexpected nor hang."""

import asyncio
import json
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st

from shortlist.catalog.readers import BadTool, tool_from_mcp
from shortlist.config.load import settings_of
from shortlist.config.settings import ServerSettings, StdioTransport
from shortlist.errors import InvalidConfig
from shortlist.gateway.calling import shown_uris, text_of_result
from shortlist.gateway.results import ResultPage, SeenUris, cut, find_passages, paged_result
from shortlist.models import Json, Tool
from shortlist.upstream.framing import EventSplitter, EventTooLarge, LineSplitter, Oversized, read_line, refusal
from shortlist.upstream.normalise import Listing
from shortlist.upstream.wire import Wire
from shortlist.validation import check_arguments
from tests.fuzz.shapes import CONFIGURATIONS, JSON, MESSAGES, RESULTS, SCHEMAS, TOOLS

LIMIT = 2_000


@dataclass(frozen=True, slots=True)
class Target:
    """A parser, what it is fed, and a function that checks one input."""

    inputs: st.SearchStrategy[Any]
    check: Callable[[Any], None]


def as_line(message: Any) -> bytes:
    return json.dumps(message, default=str).encode("utf-8", "surrogatepass")


class _Silence:
    async def asked(self, _: str, __: Mapping[str, Json]) -> dict[str, Json]:
        return {}

    def notified(self, method: str, params: Mapping[str, Json]) -> None:
        assert isinstance(method, str)
        assert isinstance(params, dict)

    async def run(self, _: Any) -> None:
        return None

    async def send(self, _: Any, __: Any, ___: Any = None) -> None:
        return None

    def post(self, _: Any, __: Any) -> None:
        return None


_loop = asyncio.new_event_loop()


def upstream_frame(given: tuple[Any, bytes]) -> None:
    """A line of a server, whole and damaged, through framing and wire, while requests wait."""
    message, noise = given
    silence = _Silence()
    line = as_line(message)

    async def take() -> None:
        wire = Wire(silence, silence, {})
        waiting = [asyncio.ensure_future(wire.send("tools/call", {"name": "x"})) for _ in range(2)]
        await asyncio.sleep(0)
        splitter = LineSplitter(LIMIT)
        for chunk in (line[: len(line) // 2], line[len(line) // 2 :] + b"\n", noise + b"\n"):
            for found in splitter.feed(chunk):
                received = read_line(found)
                if isinstance(found, Oversized):
                    refusal(found)
                if received is not None:
                    wire._take(received)
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)

    _loop.run_until_complete(take())


def event_stream(given: tuple[bytes, int]) -> None:
    """Server-sent events are the same however the stream was cut."""
    data, size = given

    def events(chunks: list[bytes]) -> list[tuple[str, bytes, str | None]]:
        splitter = EventSplitter(LIMIT)
        try:
            return [(e.event, e.data, e.id) for chunk in chunks for e in splitter.feed(chunk)]
        except EventTooLarge:
            return []

    pieces = [data[start : start + size] for start in range(0, len(data), size)]
    assert events(pieces) == events([data]) or len(data) > LIMIT


def configuration(document: Any) -> None:
    """Any document is a configuration or is refused with a reason."""
    if not isinstance(document, dict):
        return
    try:
        settings_of(document, source="fuzz")
    except InvalidConfig:
        return


def catalog(tools: list[Any]) -> None:
    """Any list of tools becomes a catalog; bad ones are named."""
    settings = ServerSettings(name="s", transport=StdioTransport(command="x"))
    for era in ("legacy", "modern"):
        listing = Listing(settings, era)
        listing.extend(tools)
        assert len(listing.tools) + len(listing.problems) <= max(len(tools), len(listing.problems))
    for tool in tools:
        try:
            tool_from_mcp(tool if isinstance(tool, dict) else {}, "s")
        except BadTool:
            continue


def schema(given: tuple[Any, Any]) -> None:
    """Any schema is evaluated or called unevaluable."""
    definition = json.dumps({"inputSchema": given[0]}, default=str)
    arguments = given[1] if isinstance(given[1], dict) else {"value": given[1]}
    check_arguments(Tool(id="s/t", name="t", definition=definition), arguments)


def result(given: tuple[Any, str]) -> None:
    """Any result has a text, and its pages hold nothing but it."""
    raw, query = given
    whole = raw if isinstance(raw, dict) else {"content": raw}
    SeenUris().note("me", "s", shown_uris(whole))
    text = text_of_result(whole)
    pages = cut(text, 100)
    paged_result(whole, ResultPage(text="", offset=0, total=1, next_offset=None), "handle")
    assert text == "" or "".join(pages)
    find_passages(text, query)


logging.getLogger("shortlist.front.stdio").setLevel(logging.ERROR)  # each dropped message is a line


def client_frame(given: tuple[Any, bytes]) -> None:
    """A line of a client is a message, an error, or dropped."""
    from shortlist.front.stdio import _Inbox

    message, noise = given

    class Outbox:
        async def send(self, item: Any) -> None:
            assert item is not None

        async def room(self) -> None:
            return None

    async def take() -> None:
        inbox = _Inbox(0, Outbox(), LIMIT)  # type: ignore[arg-type]
        splitter = LineSplitter(LIMIT)
        for line in splitter.feed(as_line(message) + b"\n" + noise + b"\n"):
            if line:
                await inbox._item(line)

    _loop.run_until_complete(take())


TARGETS: Mapping[str, Target] = {
    "upstream frames": Target(st.tuples(MESSAGES, st.binary(max_size=60)), upstream_frame),
    "event streams": Target(
        st.tuples(
            st.lists(
                st.sampled_from(
                    [b"data: ", b"id: ", b"event: ", b"retry: ", b"\n", b"\r\n", b"\r", b":", b"\n\n", b"{}", b"1"]
                )
                | st.binary(max_size=6),
                max_size=30,
            ).map(b"".join),
            st.integers(1, 9),
        ),
        event_stream,
    ),
    "client frames": Target(st.tuples(MESSAGES, st.binary(max_size=60)), client_frame),
    "configurations": Target(CONFIGURATIONS, configuration),
    "catalogs": Target(st.lists(TOOLS, max_size=4), catalog),
    "schemas": Target(st.tuples(SCHEMAS, JSON), schema),
    "results": Target(st.tuples(RESULTS, st.text(max_size=20)), result),
}
