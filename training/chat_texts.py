"""The chats that `training.chat_encoder` learns from, as the encoder reads them, with the tools that are right."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from shortlist import ToolFilter
from shortlist.library.following import chat_text
from shortlist.library.messages import read_context
from shortlist.library.options import FilterOptions
from training.bench import read_lines
from training.chat_vectors import chat_key
from training.fit_chats import DATA, NO_TOOL, Chat, catalogs, conversations, written

EARLIER_TURN = "earlier turn"


@dataclass(frozen=True, slots=True)
class ChatText:
    """A chat as the encoder reads it."""

    chat: Chat
    text: str
    right: tuple[int, ...]
    """The rows of the right tools among the vectors of its catalog."""
    request: str
    """The last turn as a self-contained request, or "" where nobody wrote one."""

    @property
    def key(self) -> str:
        return chat_key(self.chat.catalog, self.chat.messages)


def all_chats(data: Path) -> list[Chat]:
    """Return the chats that `training.fit_chats` fits on."""
    requests = [case["query"] for case in read_lines(data / "train" / "authored" / "queries.jsonl.gz")]
    return [*conversations(), *written(requests)]


def earlier_turns(chats: Sequence[Chat]) -> Iterator[Chat]:
    """Yield chats up to an earlier request that follows an answer; the tool that was called next is right for it."""
    for chat in chats:
        if chat.catalog == "real" or _is_made(chat):
            continue
        for place, (message, following) in enumerate(zip(chat.messages, chat.messages[1:], strict=False)):
            if place >= 2 and message["role"] == "user" and "tool_calls" in following:
                called = following["tool_calls"][0]["function"]["name"]
                yield Chat(chat.catalog, chat.group, EARLIER_TURN, chat.messages[: place + 1], frozenset({called}))


def _is_made(chat: Chat) -> bool:
    """Return whether the last turn of a chat comes from elsewhere."""
    return chat.kind == NO_TOOL or chat.kind.startswith("another")


def self_contained(chats: Sequence[Chat]) -> dict[str, str]:
    """Return the last turns that somebody wrote as a request without a chat, by the key of the chat."""
    cases = map(json.loads, (DATA / "chats.jsonl").read_text("utf-8").splitlines())
    as_written = (chat for chat in chats if chat.catalog != "real" and not _is_made(chat))
    return {
        chat_key(chat.catalog, chat.messages): case["plain"]
        for case, chat in zip(cases, as_written, strict=True)
        if "plain" in case
    }


def read_chats(data: Path, chats: Sequence[Chat], requests: Mapping[str, str]) -> list[ChatText]:
    """Read chats as a filter does."""
    options, sources, found = FilterOptions(), catalogs(str(data)), []
    rows = {name: {tool: row for row, tool in enumerate(_ids(source))} for name, source in sources.items()}
    for chat in chats:
        context = read_context(chat.messages, messages=options.context_messages, tokens=options.max_context_tokens)
        called = [tool for name in context.called for tool in sorted(sources[chat.catalog].resolve(name))]
        right = tuple(sorted(rows[chat.catalog][tool] for tool in chat.gold if tool in rows[chat.catalog]))
        request = requests.get(chat_key(chat.catalog, chat.messages), "")
        found.append(ChatText(chat, chat_text(context, called), right, request))
    return found


def _ids(source: ToolFilter) -> Sequence[str]:
    return source._searcher.index.ids


def tool_vectors(data: Path) -> dict[str, NDArray[np.float32]]:
    """Return the vectors that the index of each catalog has."""
    found = {}
    for name, source in catalogs(str(data)).items():
        dense = source._searcher.index.dense
        assert dense is not None
        found[name] = dense.vectors(list(range(len(_ids(source)))))
    return found
