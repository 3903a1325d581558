"""Reads what a server offers beside its tools (prompts, resources, templates), page by page and within bounds."""

import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeAlias

from shortlist.catalog.readable import readable
from shortlist.config.settings import EMPTY
from shortlist.errors import UpstreamError
from shortlist.models import Json
from shortlist.upstream.connection import Connection
from shortlist.upstream.events import NO_OPTIONS, Survey
from shortlist.upstream.framing import encode

logger = logging.getLogger(__name__)

LISTS = {"prompts/list": "prompts", "resources/list": "resources", "resources/templates/list": "resourceTemplates"}
"""What a server lists beside its tools: the method, and the key of its items."""
MOST_PAGES = 50
MOST_BYTES = 8 * 1024 * 1024
"""Of all pages of one list; the rest is ignored."""
LIST_SECONDS = 30.0

AskPage: TypeAlias = Callable[[Mapping[str, Json]], Awaitable[Mapping[str, Json]]]


async def offered_items(ask: AskPage, key: str) -> list[dict[str, Any]]:
    """Return the items of all pages; stop at a cursor that repeats, after too many pages and beyond too many bytes."""
    items: list[dict[str, Any]] = []
    params: Mapping[str, Json] = EMPTY
    room, seen = MOST_BYTES, set[str]()
    for _ in range(MOST_PAGES):
        page = await ask(params)
        for item in items_of(page, key):
            room -= len(encode(item))
            if room < 0:
                logger.debug("a list of %s is longer than %d bytes; the rest is ignored", key, MOST_BYTES)
                return items
            items.append(item)
        cursor = page.get("nextCursor")
        if not isinstance(cursor, str) or cursor in seen or (room := room - len(cursor)) < 0:
            break
        seen.add(cursor)
        params = {"cursor": cursor}
    return items


def items_of(page: Mapping[str, Json], key: str) -> list[dict[str, Any]]:
    """Return the items of one page that are objects, as clients can read them; anything else is ignored."""
    found = page.get(key)
    return [readable(item) for item in found if isinstance(item, dict)] if isinstance(found, list) else []


async def survey_of(connection: Connection) -> Survey:
    """List what a server offers beside its tools; a list that fails is left out, and asked for when it is needed."""
    lists: dict[str, tuple[Mapping[str, Json], ...]] = {}
    for method, key in LISTS.items():
        if method.partition("/")[0] in connection.peer.capabilities:

            async def ask(params: Mapping[str, Json], method: str = method) -> Mapping[str, Json]:
                return await connection.request(method, params, NO_OPTIONS, seconds=LIST_SECONDS)

            try:
                lists[method] = tuple(await offered_items(ask, key))
            except UpstreamError:
                continue
    return Survey(peer=connection.peer, lists=lists)
