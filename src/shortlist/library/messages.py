"""A chat in the shape that a program has it, read for search.

OpenAI (Chat and Responses), Anthropic, Bedrock, Gemini and LangChain messages are read alike, as mappings or objects.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from shortlist.disclosure.budget import estimate_tokens
from shortlist.errors import InvalidQuery
from shortlist.text.asks import Ask, quoted, read_ask
from shortlist.text.conversation import SAID_CHARS, TAKEN_CHARS, Asked, ChatTurn, Role, asked_now
from shortlist.text.queries import query_of
from shortlist.text.tokens import typed_text

Messages: TypeAlias = Sequence[Any]

CHARS_PER_TOKEN = 8
"""More than any language spends: a megabyte is cut by characters before its tokens are counted."""
ELLIPSIS = " … "

_ROLES: Mapping[str, Role] = {
    "user": "user",
    "human": "user",
    "humanmessagechunk": "user",
    "assistant": "assistant",
    "ai": "assistant",
    "aimessagechunk": "assistant",
    "model": "assistant",
}
SILENT_ROLES = frozenset({"system", "developer", "tool", "function"})
"""Roles whose text is not searched by."""
_CALLS = frozenset({"tool_use", "function_call", "server_tool_use", "custom_tool_call", "mcp_call"})
_TEXTS = frozenset({"text", "input_text", "output_text"})
NO_ASK = Ask("")
_INNER = ("function", "functionCall", "function_call", "toolUse")
"""Where OpenAI, Gemini and Bedrock keep the name of a called tool."""
_PAIR = 2
"""LangChain also takes a message as a pair of role and text."""


@dataclass(frozen=True, slots=True)
class Context:
    """A chat made ready for search; `called` names tools called so far, the latest first."""

    text: str
    asked: Asked
    called: tuple[str, ...] = ()
    ask: Ask = NO_ASK
    """The last turn, as the request and what was pasted beside it."""
    message: str = ""
    """The request of the last turn, as it was written."""
    said: str = ""
    """The last answer before it."""
    request: str = ""
    """The request before it."""
    is_chat: bool = False

    @property
    def pasted(self) -> int:
        """Count the characters of pasted text in the last turn, besides the request."""
        return self.ask.characters


def read_context(source: str | Messages | Mapping[str, Any], *, messages: int, tokens: int) -> Context:
    """Read a text or a chat: what is asked now, with what the last `messages` turns settled."""
    if isinstance(source, str):
        ask = read_ask(typed_text(source))
        asked = Asked(_present(query_of(ask)))
        return Context(clip(asked.text, tokens), asked, ask=ask)
    given = [source] if isinstance(source, Mapping) else source
    turns = _by_speaker(read_turns(given))
    spoken = [position for position, turn in enumerate(turns) if turn.text]
    if not spoken:
        raise InvalidQuery(_nothing_said(given))
    asking = max((position for position in spoken if turns[position].role == "user"), default=spoken[-1])
    before = [position for position in spoken if position < asking][-(messages - 1) :] if messages > 1 else []
    calls = tuple(dict.fromkeys(name for turn in reversed(turns) for name in reversed(turn.calls)))
    earlier = [turns[position] for position in before]
    asked = asked_now(turns[asking].text, earlier, called=bool(calls))
    said_since = [turns[position].text for position in spoken if position > asking][-1:] if messages > 1 else []
    text = "\n".join((_present(asked.query), *(quoted(said[:TAKEN_CHARS]) for said in said_since)))
    ask = read_ask(turns[asking].text)
    said = next((turn.text for turn in reversed(earlier) if turn.role == "assistant"), "")
    request = next((read_ask(turn.text).text for turn in reversed(earlier) if turn.role == "user"), "")
    return Context(
        clip(text, tokens),
        asked,
        calls,
        ask=ask,
        message=clip(ask.text, tokens),
        said=clip(said[-SAID_CHARS:], tokens),
        request=clip(request, tokens),
        is_chat=True,
    )


def read_turns(messages: Iterable[Any]) -> list[ChatTurn]:
    """Read messages of any of the known shapes; what has neither words nor calls is an empty turn."""
    if not isinstance(messages, Iterable) or isinstance(messages, bytes):
        raise InvalidQuery(f"A query is a text or a list of messages; this is {type(messages).__name__}.")
    return [_turn(message, position) for position, message in enumerate(messages)]


def _nothing_said(messages: Iterable[Any]) -> str:
    """Say why nothing in a chat can be searched by, with the roles that are unknown."""
    roles = dict.fromkeys(_role(_unpaired(message)) for message in messages)
    unknown = [repr(role) for role in roles if role and role not in _ROLES and role not in SILENT_ROLES]
    if not unknown:
        return "None of the messages holds text to search by: pass one with words, or a text."
    found = f"the role {unknown[0]} is" if len(unknown) == 1 else f"the roles {', '.join(unknown)} are"
    return (
        f"None of the messages holds text to search by: {found} unknown. Use 'user' or 'human' for requests, and "
        "'assistant', 'ai' or 'model' for answers."
    )


def _by_speaker(turns: Iterable[ChatTurn]) -> list[ChatTurn]:
    """Make one turn of what an assistant says and calls in a row, with its last words: those that are answered.

    An agent says a line before each call. Counted one by one, these lines would push the request before them out of the
    turns that are read.
    """
    found: list[ChatTurn] = []
    for turn in turns:
        if found and turn.role == "assistant" == found[-1].role:
            found[-1] = ChatTurn("assistant", turn.text or found[-1].text, (*found[-1].calls, *turn.calls))
        elif turn.text or turn.calls:  # a result is no turn
            found.append(turn)
    return found


def clip(text: str, tokens: int) -> str:
    """Keep both ends of a text that exceeds the budget: the request is at the start or the end."""
    if len(text.encode("utf-8", "replace")) <= tokens:  # no text has more tokens than bytes
        return text
    short = _both_ends(text, tokens * CHARS_PER_TOKEN)
    while (cost := estimate_tokens(short)) > tokens and len(short) > 1:
        short = _both_ends(short, min(int(len(short) * tokens / cost), len(short) - 1))
    return short


def _present(text: str) -> str:
    if not text.strip():
        raise InvalidQuery("The query is empty. Say what the tool should do, in a few words.")
    return text


def _both_ends(text: str, characters: int) -> str:
    if len(text) <= characters:
        return text
    half = max((characters - len(ELLIPSIS)) // 2, 1)
    head, tail = text[:half].rpartition(" "), text[-half:].partition(" ")
    return f"{head[0] or head[2]}{ELLIPSIS}{tail[2] or tail[0]}"[:characters]


def _turn(message: Any, position: int) -> ChatTurn:
    if isinstance(message, str):
        return ChatTurn("user", typed_text(message))
    message = _unpaired(message)
    kind = _text(_get(message, "type"))
    role = _role(message) or kind.lower()
    if not role:
        raise InvalidQuery(f"messages[{position}] has no role; a message is {{'role': 'user', 'content': '…'}}.")
    if kind in _CALLS:
        return ChatTurn("assistant", "", tuple(_names([message])))
    parts = [*_parts(_get(message, "content")), *_parts(_get(message, "parts"))]
    calls = (*_names(_listed(_get(message, "tool_calls"))), *_names([message]), *_names(parts))
    return ChatTurn(_ROLES.get(role, "other"), _spoken(parts) if role in _ROLES else "", calls)


def _unpaired(message: Any) -> Any:
    is_pair = isinstance(message, tuple) and len(message) == _PAIR
    return {"role": message[0], "content": message[1]} if is_pair else message


def _role(message: Any) -> str:
    return _text(_get(message, "role")).lower()


def _parts(content: Any) -> list[Any]:
    return [content] if isinstance(content, (str, Mapping)) else _listed(content)


def _spoken(parts: Iterable[Any]) -> str:
    return typed_text("\n".join(text for part in parts if (text := _part_text(part)))).strip()


def _part_text(part: Any) -> str:
    if isinstance(part, str):
        return part
    kind = _get(part, "type")
    return _text(_get(part, "text")) if kind is None or kind in _TEXTS else ""


def _names(calls: Iterable[Any]) -> Iterator[str]:
    for call in calls:
        if isinstance(call, str) or _get(call, "type") in _TEXTS:
            continue
        inner = next(filter(None, (_get(call, key) for key in _INNER)), None)
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
