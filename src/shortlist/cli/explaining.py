"""Explain in the terminal why a tool ranks where it does, for a query or a chat."""

import argparse
import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

from shortlist.catalog.naming import names_of
from shortlist.cli.catalogs import find_catalog
from shortlist.cli.finding import searcher_of
from shortlist.cli.shown import shown_json
from shortlist.errors import InvalidInput, ToolNotFound
from shortlist.index.vectors import QueryVectors
from shortlist.library.choosing import query_of
from shortlist.library.explaining import explain_turn
from shortlist.library.following import whole_reading
from shortlist.library.messages import read_context
from shortlist.library.options import FilterOptions
from shortlist.library.reading import SourceReading
from shortlist.library.view import View
from shortlist.models import Query, ToolId
from shortlist.search.explain import Explanation, first_hit
from shortlist.search.searcher import Searcher


def explain(options: argparse.Namespace) -> int:
    """Explain the rank of a tool, or of the first hit, for a query or a chat."""
    if options.chat is not None and options.tool is not None:
        raise InvalidInput(f"With --chat, pass the tool alone, not also {options.query!r}.")
    if options.chat is None and options.query is None:
        raise InvalidInput("Say what the tool should do, in quotes, or pass a chat: --chat FILE.")
    chat = None if options.chat is None else _read_chat(options.chat)
    tool = options.tool if chat is None else options.query
    searcher = searcher_of(options, *find_catalog(options))
    if tool is not None:
        tool = names_of(searcher.catalog.members).by_name.get(tool, tool)
        if tool not in searcher.catalog.tools:
            raise ToolNotFound(tool, suggestions=searcher.similar_names(tool))
    why = _explanation(searcher, options.query, tool) if chat is None else _chat_explanation(searcher, chat, tool)
    if why is None:
        print("null" if options.json else "Nothing was found, so there is nothing to explain.")
        return 1
    print(shown_json(asdict(why), indent=2) if options.json else why.text())
    return 0


def _explanation(searcher: Searcher, text: str, tool: ToolId | None) -> Explanation | None:
    found = searcher.explained(Query(text=text, limit=20), first_hit if tool is None else lambda _: (tool,))
    return next(iter(found.explanations), None)


def _chat_explanation(searcher: Searcher, chat: list[Any], tool: ToolId | None) -> Explanation | None:
    """Explain a chat as `ToolFilter.filter` reads it."""
    options, view = FilterOptions(), View(SourceReading(searcher.catalog))
    context = read_context(chat, messages=options.context_messages, tokens=options.max_context_tokens)
    asked = query_of(context, view, options, view.narrow(options))
    reader = searcher.embedder.for_chats() if isinstance(searcher.embedder, QueryVectors) else None
    whole = reader.embed_query(whole_reading(asked, context).text) if reader is not None else None
    return explain_turn(searcher, context, asked, tool, whole)


def _read_chat(path: str) -> list[Any]:
    """Read the messages of a chat from a JSON file, or from stdin; a request to a model has them in `messages`."""
    place = "on stdin" if path == "-" else f"in {path}"
    try:
        raw = json.loads(sys.stdin.read() if path == "-" else Path(path).read_text("utf-8-sig"))
    except OSError as error:
        raise InvalidInput(f"The chat {place} cannot be read: {error.strerror}.") from None
    except (ValueError, RecursionError) as error:
        raise InvalidInput(f"The chat {place} is not valid JSON: {error}.") from None
    found = raw.get("messages") if isinstance(raw, dict) else raw
    if not isinstance(found, list):
        message = '{"role": "user", "content": "…"}'
        raise InvalidInput(f"The chat {place} must be a list of messages: [{message}, …].")
    return found
