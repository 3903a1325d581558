"""A tool's description as a stranger might ask for it: by rule, so the same tool gives the same query."""

import re

from shortlist.models import Tool
from shortlist.text.tokens import STOPWORDS, split_identifier, stem

FEWEST_WORDS = 3
"""With fewer, nothing is left to find a tool by: the name's words stay in."""
MOST_WORDS = 12
"""People ask in a line, not in a paragraph."""

_SENTENCE_END = re.compile(r"(?<=[.!?])\s|\n")
_WORD = re.compile(r"[^\W_]+")
_EVERYDAY = {
    "add": "put",
    "analyze": "examine",
    "append": "attach",
    "archive": "store away",
    "calculate": "work out",
    "cancel": "call off",
    "check": "verify",
    "clone": "copy",
    "compute": "work out",
    "convert": "turn into",
    "copy": "duplicate",
    "create": "make",
    "delete": "remove",
    "deploy": "roll out",
    "describe": "explain",
    "disable": "turn off",
    "download": "save",
    "edit": "change",
    "enable": "turn on",
    "execute": "run",
    "extract": "pull out",
    "fetch": "load",
    "filter": "narrow",
    "find": "look for",
    "generate": "produce",
    "get": "show",
    "insert": "put",
    "invoke": "run",
    "list": "show all",
    "merge": "combine",
    "modify": "change",
    "move": "shift",
    "notify": "tell",
    "obtain": "show",
    "parse": "read",
    "publish": "post",
    "query": "ask",
    "read": "see",
    "remove": "take away",
    "rename": "call differently",
    "replace": "swap",
    "retrieve": "show",
    "return": "show",
    "run": "start",
    "search": "look for",
    "send": "deliver",
    "set": "change",
    "start": "begin",
    "stop": "end",
    "submit": "send in",
    "summarize": "sum up",
    "transform": "turn into",
    "translate": "put into another language",
    "trigger": "start",
    "update": "change",
    "upload": "put up",
    "validate": "make sure",
    "verify": "check",
    "view": "see",
    "write": "put down",
}
_BY_STEM = {stem(verb): plain for verb, plain in _EVERYDAY.items()}


def paraphrase(tool: Tool) -> str:
    """Reword the first sentence: stop-words and the name's words out, verbs in everyday words.

    Empty when the description says too little to be asked for.
    """
    found = _content_words(_first_sentence(tool.description))
    name = {stem(part) for part in split_identifier(tool.name)} - _BY_STEM.keys()
    fresh = [word for word in found if stem(word) not in name]
    kept = fresh if len(fresh) >= FEWEST_WORDS else found
    return " ".join(_BY_STEM.get(stem(word), word) for word in kept[:MOST_WORDS])


def _first_sentence(text: str) -> str:
    return next((part for part in _SENTENCE_END.split(text) if _content_words(part)), "")


def _content_words(text: str) -> list[str]:
    return [word for word in _WORD.findall(text.casefold()) if word not in STOPWORDS]
