"""A chat as a query: what the user asks for now, with what was said around it counting less.

OpenAI (Chat and Responses), Anthropic, Gemini and LangChain messages are read alike, as mappings or as objects.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from shortlist.disclosure.budget import estimate_tokens
from shortlist.errors import InvalidQuery
from shortlist.text.asks import quoted, read_ask
from shortlist.text.clean import clean_text

Messages: TypeAlias = Sequence[Any]
Role: TypeAlias = Literal["user", "assistant", "other"]

NEIGHBOUR_SHARE = 0.25
"""What the turn nearest to the question may take of the token budget; each further one half of that."""
CHARS_PER_TOKEN = 8
"""More than any language spends: a megabyte is cut by characters before its tokens are counted."""
ELLIPSIS = " … "

_ROLES: Mapping[str, Role] = {
    "user": "user",
    "human": "user",
    "HumanMessageChunk": "user",
    "assistant": "assistant",
    "ai": "assistant",
    "AIMessageChunk": "assistant",
    "model": "assistant",
}
_CALLS = frozenset({"tool_use", "function_call", "server_tool_use", "custom_tool_call", "mcp_call"})
_TEXTS = frozenset({"text", "input_text", "output_text"})


@dataclass(frozen=True, slots=True)
class Turn:
    """One message: who spoke, the words, and the tools that were called in it."""

    role: Role
    text: str
    calls: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Context:
    """A chat made ready for search; `called` names tools called so far, the latest first."""

    text: str
    called: tuple[str, ...] = ()


def read_context(source: str | Messages | Mapping[str, Any], *, messages: int, tokens: int) -> Context:
    """Read a text or a chat; the latest user turn is always in it, the others as far as the budget goes."""
    if isinstance(source, str):
        return Context(_asked(source, tokens))
    turns = read_turns([source] if isinstance(source, Mapping) else source)
    spoken = [(position, turn) for position, turn in enumerate(turns) if turn.text]
    if not spoken:
        raise InvalidQuery("None of the messages holds text to search by: pass one with words, or a text.")
    asking = max((position for position, turn in spoken if turn.role == "user"), default=spoken[-1][0])
    others = [turn.text for position, turn in spoken[-messages:] if position != asking]
    called = dict.fromkeys(name for turn in reversed(turns) for name in reversed(turn.calls))
    return Context(_joined(turns[asking].text, others[::-1][: messages - 1], tokens), tuple(called))


def read_turns(messages: Iterable[Any]) -> list[Turn]:
    """Read messages of any of the known shapes; what has neither words nor calls is an empty turn."""
    if not isinstance(messages, Iterable) or isinstance(messages, bytes):
        raise InvalidQuery(f"A query is a text or a list of messages; this is {type(messages).__name__}.")
    return [_turn(message, position) for position, message in enumerate(messages)]


def clip(text: str, tokens: int) -> str:
    """Keep both ends of a text that is over the budget: what asks stands first or last."""
    if len(text.encode("utf-8", "replace")) <= tokens:  # no text has more tokens than bytes
        return text
    short = _both_ends(text, tokens * CHARS_PER_TOKEN)
    while (cost := estimate_tokens(short)) > tokens and len(short) > 1:
        short = _both_ends(short, min(int(len(short) * tokens / cost), len(short) - 1))
    return short


def _asked(text: str, tokens: int) -> str:
    clipped = clip(read_ask(clean_text(text)).query, tokens)
    if not clipped.strip():
        raise InvalidQuery("The query is empty. Say what the tool should do, in a few words.")
    return clipped


def _joined(asked: str, others: Sequence[str], tokens: int) -> str:
    parts = [_asked(asked, tokens)]
    left, share = tokens - estimate_tokens(parts[0]), tokens * NEIGHBOUR_SHARE
    for text in others:
        in_quotes = quoted(clip(text, max(min(left, int(share)), 1)))
        cost = estimate_tokens(in_quotes)
        if cost > left:
            break
        parts.append(in_quotes)
        left, share = left - cost, share / 2
    return "\n".join(parts)


def _both_ends(text: str, characters: int) -> str:
    if len(text) <= characters:
        return text
    half = max((characters - len(ELLIPSIS)) // 2, 1)
    head, tail = text[:half].rpartition(" "), text[-half:].partition(" ")
    return f"{head[0] or head[2]}{ELLIPSIS}{tail[2] or tail[0]}"[:characters]


def _turn(message: Any, position: int) -> Turn:
    if isinstance(message, str):
        return Turn("user", clean_text(message))
    kind = _text(_get(message, "type"))
    role = _text(_get(message, "role")) or kind
    if not role:
        raise InvalidQuery(f"messages[{position}] has no role; a message is {{'role': 'user', 'content': '…'}}.")
    if kind in _CALLS:
        return Turn("assistant", "", tuple(_names([message])))
    parts = [*_parts(_get(message, "content")), *_parts(_get(message, "parts"))]
    calls = (*_names(_listed(_get(message, "tool_calls"))), *_names(parts))
    return Turn(_ROLES.get(role, "other"), _spoken(parts) if role in _ROLES else "", calls)


def _parts(content: Any) -> list[Any]:
    return [content] if isinstance(content, str) else _listed(content)


def _spoken(parts: Iterable[Any]) -> str:
    return clean_text("\n".join(text for part in parts if (text := _part_text(part)))).strip()


def _part_text(part: Any) -> str:
    if isinstance(part, str):
        return part
    kind = _get(part, "type")
    return _text(_get(part, "text")) if kind is None or kind in _TEXTS else ""


def _names(calls: Iterable[Any]) -> Iterator[str]:
    for call in calls:
        if isinstance(call, str) or _get(call, "type") in _TEXTS:
            continue
        inner = _get(call, "function") or _get(call, "functionCall") or _get(call, "function_call")
        if inner is None and _get(call, "type") not in (*_CALLS, "function", "tool_call"):
            continue
        name = _get(inner if inner is not None else call, "name")
        if isinstance(name, str) and name:
            yield name


def _listed(value: Any) -> list[Any]:
    return list(value) if isinstance(value, (list, tuple)) else []


def _get(value: Any, key: str) -> Any:
    return value.get(key) if isinstance(value, Mapping) else getattr(value, key, None)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""
