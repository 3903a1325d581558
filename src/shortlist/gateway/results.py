"""Large results, kept and read in pages; every page of JSON is JSON."""

import json
import re
import secrets
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import anyio
import anyio.to_thread

from shortlist.config.settings import Limits
from shortlist.errors import InvalidInput
from shortlist.models import Json
from shortlist.storage.owned import ResultLimits, ResultStore
from shortlist.text.tokens import fold
from shortlist.workers import WorkerFailed, WorkOwner, run_apart

HANDLE_BYTES = 16
"""128 random bits."""
PASSAGE_CHARACTERS = 600
MAX_PASSAGES = 5
MAX_DEPTH = 100
MAX_TERMS = 32
"""Words of a query that passages are searched for."""
APART_CHARACTERS = 50_000
"""Larger texts are cut and searched in a worker process."""
CUT_SECONDS = 10.0
REMEMBERED_URIS = 4_096
_WORDS = re.compile(r"\w+")


class ResultExpired(InvalidInput):
    """A handle that is unknown, belongs to another caller, or whose result is no longer kept."""

    def __init__(self) -> None:
        super().__init__(
            "No result is kept under this handle: it has expired, or the handle is wrong. Call the tool again."
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ResultPage:
    """A part of a kept result; `next_offset` is None on the last one."""

    text: str
    offset: int
    total: int
    next_offset: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Passage:
    """A part of a kept result that matches a query."""

    offset: int
    text: str


class Results:
    """The large results of recent calls, cut into pages; the store keeps them and lets go of the oldest."""

    def __init__(self, store: ResultStore, *, characters: int) -> None:
        self.characters = characters
        """How long a result may be before it is cut. Pages that are kept keep the size they were cut in."""
        self.store = store

    async def cut(self, owner: str, text: str, server: str = "") -> tuple[str, ...]:
        """Cut a text into pages, a large one in a worker process; one that takes too long is cut as plain text."""
        if len(text) <= APART_CHARACTERS:
            return cut(text, self.characters)
        try:
            encoded = await anyio.to_thread.run_sync(partial(text.encode, errors="surrogatepass"))
            left = anyio.current_effective_deadline() - anyio.current_time()
            seconds, whose = min(CUT_SECONDS, left / 2), WorkOwner(server, owner)  # the rest is for plain pages
            return await run_apart(_cut_encoded, encoded, self.characters, seconds=seconds, owner=whose)
        except WorkerFailed:
            return await anyio.to_thread.run_sync(_cut_plainly, text, self.characters)

    async def keep(self, owner: str, pages: Sequence[str]) -> str:
        """Keep the pages of a text and return the handle that reads them."""
        handle = secrets.token_urlsafe(HANDLE_BYTES)
        await anyio.to_thread.run_sync(self.store.keep, owner, handle, pages)
        return handle

    async def page(self, owner: str, handle: str, offset: int = 0) -> ResultPage:
        """Return the page that holds an offset; JSON begins at its page, text exactly at the offset."""
        pages = await self._find(owner, handle)
        total = sum(map(len, pages))
        if not 0 <= offset < total:
            raise InvalidInput(f"offset {offset} is outside the result of {total:,} characters. Use 0 to start over.")
        start = 0
        for page in pages:
            if offset < start + len(page):
                break
            start += len(page)
        end = start + len(page)
        shift = 0 if _is_json(page) else offset - start
        return ResultPage(
            text=page[shift:], offset=start + shift, total=total, next_offset=end if end < total else None
        )

    async def passages(self, owner: str, handle: str, query: str) -> tuple[Passage, ...]:
        """Return the passages that hold most of a query's words, best first; large texts in a worker process."""
        text = "".join(await self._find(owner, handle))
        if len(text) <= APART_CHARACTERS:
            return find_passages(text, query)
        try:
            return await run_apart(find_passages, text, query, seconds=CUT_SECONDS, owner=WorkOwner(caller=owner))
        except WorkerFailed as error:
            raise InvalidInput(f"The result could not be searched: {error}. Read it with offset=0.") from None

    async def _find(self, owner: str, handle: str) -> Sequence[str]:
        pages = await anyio.to_thread.run_sync(self.store.find, owner, handle)
        if pages is None:
            raise ResultExpired
        return pages


def result_limits(limits: Limits) -> ResultLimits:
    return ResultLimits(
        seconds=limits.result_seconds,
        most=limits.results,
        most_bytes=limits.results_bytes,
        most_of_owner=limits.results_per_caller,
        bytes_of_owner=limits.results_bytes_per_caller,
    )


def cut(text: str, characters: int) -> tuple[str, ...]:
    return tuple(pages_of(text, characters))


def _cut_encoded(encoded: bytes, characters: int) -> tuple[str, ...]:
    return cut(encoded.decode(errors="surrogatepass"), characters)


def _cut_plainly(text: str, characters: int) -> tuple[str, ...]:
    return tuple(_text_pages(text, characters))


def pages_of(text: str, characters: int) -> Iterator[str]:
    """Cut a text into pages of at most so many characters: JSON between its values, text at line breaks."""
    value = _container(text)
    if value is None:
        yield from _text_pages(text, characters)
        return
    for part in _parts(value, characters, 0):
        yield _dumps(part)


def _container(text: str) -> Any | None:
    if text.lstrip()[:1] not in ("{", "["):
        return None
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, (dict, list)) and _depth(value) < MAX_DEPTH else None


def _depth(value: Json) -> int:
    level, depth = [value], 0
    while level and depth < MAX_DEPTH:
        depth += 1
        level = [inner for outer in level for inner in _values(outer)]
    return depth


def _values(value: Json) -> Sequence[Json]:
    if isinstance(value, dict):
        return list(value.values())
    return value if isinstance(value, list) else []


def _parts(value: Json, characters: int, wrapping: int) -> Iterator[Json]:
    """Split a value into values of the same shape that are small enough; `wrapping` is what goes around them."""
    room = max(characters - wrapping, 16)
    if len(_dumps(value)) <= room:
        yield value
    elif isinstance(value, str):
        # An escaped character takes up to six; a sixth of the room always fits.
        step = max(room // 6, 1) if not value.isascii() or '"' in value or "\\" in value else room
        yield from (value[i : i + step] for i in range(0, len(value), step))
    elif isinstance(value, dict):
        yield from _grouped(value.items(), characters, wrapping, dict)
    elif isinstance(value, list):
        yield from _grouped(((None, item) for item in value), characters, wrapping, lambda pairs: [v for _, v in pairs])
    else:
        yield value


def _grouped(
    items: Any, characters: int, wrapping: int, build: Callable[[list[tuple[Any, Json]]], Json]
) -> Iterator[Json]:
    group: list[tuple[Any, Json]] = []
    size = 0
    room = max(characters - wrapping - 2, 16)
    for key, value in items:
        around = 0 if key is None else len(_dumps(key)) + 2
        cost = len(_dumps(value)) + around + 2
        if group and size + cost > room:
            yield build(group)
            group, size = [], 0
        if cost > room:
            yield from (build([(key, part)]) for part in _parts(value, characters, wrapping + around + 2))
        else:
            group.append((key, value))
            size += cost
    if group:
        yield build(group)


_dumps = json.JSONEncoder(ensure_ascii=False).encode  # `json.dumps` makes an encoder for every value of a list


def _is_json(page: str) -> bool:
    return _container(page) is not None


def _text_pages(text: str, characters: int) -> Iterator[str]:
    start = 0
    while start < len(text):
        end = min(start + characters, len(text))
        if end < len(text):
            line = text.rfind("\n", start + characters * 4 // 5, end)
            end = line + 1 if line > 0 else end
        yield text[start:end]
        start = end


def find_passages(text: str, query: str) -> tuple[Passage, ...]:
    """Return the passages that hold most of a query's words, in time linear in the text."""
    wanted = tuple(dict.fromkeys(_WORDS.findall(fold(query))))[:MAX_TERMS]
    windows: dict[int, set[str]] = {}
    matching: dict[str, tuple[str, ...]] = {}  # words repeat: each different one is compared once
    for match in _WORDS.finditer(text):
        word = match.group()
        terms = matching.get(word)
        if terms is None:
            folded = fold(word)
            terms = tuple(t for t in wanted if folded == t or (len(t) > 3 and t in folded))
            matching[word] = terms
        if terms:
            windows.setdefault(match.start() // PASSAGE_CHARACTERS, set()).update(terms)
    best = sorted(windows.items(), key=lambda item: (-len(item[1]), item[0]))[:MAX_PASSAGES]
    starts = (max(window * PASSAGE_CHARACTERS - PASSAGE_CHARACTERS // 4, 0) for window, _ in best)
    return tuple(Passage(offset=start, text=text[start : start + PASSAGE_CHARACTERS * 3 // 2]) for start in starts)


def blocks_of(result: Mapping[str, Json]) -> list[Json]:
    """Return the content blocks of a result; none where the server sent something else than a list."""
    blocks = result.get("content")
    return blocks if isinstance(blocks, list) else []


def shortened_result(result: Mapping[str, Json], text: str, total: int) -> dict[str, Json]:
    """Return the beginning of a result that cannot be kept, and say that it is not the whole."""
    others = [b for b in blocks_of(result) if not (isinstance(b, dict) and b.get("type") == "text")]
    notice = (
        f"[characters 0-{len(text):,} of {total:,}. The rest cannot be kept at the moment: ask for less, or try again.]"
    )
    shown = {key: value for key, value in result.items() if key != "structuredContent"}
    return {**shown, "content": [{"type": "text", "text": text}, *others, {"type": "text", "text": notice}]}


def paged_result(result: Mapping[str, Json], page: ResultPage, handle: str) -> dict[str, Json]:
    """Put page one in the place of a result's text and structured content; images and the rest stay."""
    others = [b for b in blocks_of(result) if not (isinstance(b, dict) and b.get("type") == "text")]
    notice = page_notice(page, handle)
    shown: dict[str, Json] = {
        **result,
        "content": [{"type": "text", "text": page.text}, *others, {"type": "text", "text": notice}],
    }
    if result.get("structuredContent") is not None:
        shown["structuredContent"] = {
            "handle": handle,
            "next_offset": page.next_offset,
            "total_characters": page.total,
            "note": "The structured content is too large and is kept under this handle; use read_result.",
        }
    return shown


def page_notice(page: ResultPage, handle: str) -> str:
    """Return the note that says which part this is and how to read on."""
    end = page.offset + len(page.text)
    place = f"characters {page.offset:,}-{end:,} of {page.total:,}"
    if page.next_offset is None:
        return f"[{place}: the end]"
    return (
        f"[{place}. Read on: read_result(handle={handle!r}, offset={page.next_offset}); "
        f"find a passage: read_result(handle={handle!r}, query=...)]"
    )


class SeenUris:
    """Which servers showed a URI in a result, by caller. Results are relayed unchanged: these URIs are the server's."""

    def __init__(self) -> None:
        self._servers: OrderedDict[tuple[str, str], tuple[str, ...]] = OrderedDict()

    def note(self, owner: str, server: str, uris: Iterable[str]) -> None:
        """Remember the URIs of a result for the caller that got it, the latest few thousand."""
        for uri in uris:
            shown = self._servers.get((owner, uri), ())
            self._servers[owner, uri] = shown if server in shown else (*shown, server)
            self._servers.move_to_end((owner, uri))
        while len(self._servers) > REMEMBERED_URIS:
            self._servers.popitem(last=False)

    def servers(self, owner: str, uri: str) -> tuple[str, ...]:
        """Return the servers that showed a URI to a caller."""
        return self._servers.get((owner, uri), ())
