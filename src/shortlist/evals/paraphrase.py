"""Rewords a tool's description as a user might ask for it, by fixed rules."""

import re

from shortlist.models import Tool
from shortlist.text.tokens import STOPWORDS, split_identifier, stem

FEWEST_WORDS = 3
"""With fewer words that are not verbs, the words of the name are kept."""
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
_ENDINGS = ("", "s", "es", "ed", "ing", "d")


def _forms(verb: str) -> list[str]:
    """Return a verb as descriptions use it; nouns made of it, such as `deployment`, are other words."""
    bare = verb.removesuffix("e")
    return [root + ending for root in (verb, bare, verb + verb[-1]) for ending in _ENDINGS]


_BY_FORM = {form: plain for verb, plain in _EVERYDAY.items() for form in _forms(verb)} | _EVERYDAY


def paraphrase(tool: Tool) -> str:
    """Reword the first sentence: stop-words and the name's words out, verbs in everyday words.

    Empty when the description says too little to be asked for.
    """
    found = _content_words(_first_sentence(tool.description))[:MOST_WORDS]
    name = {stem(part) for part in split_identifier(tool.name)}
    fresh = [word for word in found if word in _BY_FORM or stem(word) not in name]
    kept = fresh if _things(fresh) >= FEWEST_WORDS else found
    return " ".join(_BY_FORM.get(word, word) for word in kept)


def _things(words: list[str]) -> int:
    return sum(word not in _BY_FORM for word in words)


def _first_sentence(text: str) -> str:
    return next((part for part in _SENTENCE_END.split(text) if _content_words(part)), "")


def _content_words(text: str) -> list[str]:
    return [word for word in _WORD.findall(text.casefold()) if word not in STOPWORDS]
