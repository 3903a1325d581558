"""The head of a request: what is to be done with what, without the names and the message that become arguments.

"Send an email to Karin that the keys are under the mat" asks to send an email. No tool mentions Karin or a mat, and
none needs to.
"""

import re
from collections.abc import Callable, Sequence
from functools import cache, lru_cache
from itertools import pairwise
from typing import NamedTuple

from shortlist.text.kinds import FIRST_WORD
from shortlist.text.languages.glossing import Gloss
from shortlist.text.languages.lexicon import english_words
from shortlist.text.queries import apart, shipped_expansions
from shortlist.text.tokens import MAX_REMEMBERED_TEXTS, fold, named_action, read_words, stem, terms

PLAIN_ACTIONS = read_words("plain_actions.txt")
PRODUCTS = read_words("products.txt")
_NAMED = {
    "reads": "get list search find show read fetch look view check count describe see browse query lookup retrieve "
    "display inspect examine track monitor analyze watch whois preview validate verify compare",
    "makes": "create add insert generate build register make",
    "changes": "update edit modify change rename patch replace",
    "begins": "start launch run resume enable activate unlock unarchive subscribe",
    "ends": "stop cancel abort kill close terminate pause disable mute archive revoke lock unsubscribe deactivate",
    "removes": "delete remove drop purge erase wipe destroy trash",
}
"""What the verbs in names of tools do."""
_ASKED = {
    "makes": "create add",
    "changes": "update edit modify rename replace move change",
    "begins": "start launch resume enable activate unlock",
    "ends": "stop cancel close pause disable mute archive revoke lock terminate",
    "removes": "delete remove erase purge",
    "acts": "resolve approve merge publish reply upload trigger refund submit restore",
}
_OPPOSED = {
    "makes": ("reads", "removes", "ends"),
    "changes": ("reads", "removes", "ends"),
    "begins": ("reads", "removes", "ends"),
    "ends": ("reads", "makes", "begins"),
    "removes": ("reads", "makes", "begins"),
    "acts": ("reads",),
}
"""What is not done by a tool that is named for something else: nobody creates a channel with a tool that lists them."""
_CHANGING = frozenset(map(stem, " ".join((*_ASKED.values(), "send set post write")).split()))
_OTHER_SENSE = re.compile(r"\b(?:add (?:up|\d)|resolve\b.{0,200}\bto\b|move\b.{0,200}\b(?:trash|bin)\b)", re.IGNORECASE)
"""Verbs that mean something else here: "add up the bills", "resolve a name to an address", "move it to the trash"."""

_ABOUT = re.compile(r"\b(?:in|on|via|through|from|to|with|using|our|my|at|by) ([A-Za-z0-9]+)")
_CONTENT = re.compile(
    r"(?<=\w)(?:(?<!\b(?:of|in|on|to|by|at))\s+that\b|\s+(?:saying|says|called|named|titled|entitled|about|because)\b|:\s"
    r"|\s+with the (?:text|message|title|name|subject|words?)\b|\s+to (?:tell|say|let)\b).*",
    re.IGNORECASE | re.DOTALL,
)
"""Where a message, a name or a topic begins; it goes on to the end."""
_TOLD = re.compile(r"\s(?:that|saying)\b", re.IGNORECASE)
_TELLING = frozenset(("send", "mail", "email", "message", "text", "tell", "post", "write", "reply", "notify", "ping"))
_WORD = re.compile(r"[^\W_][\w'’.&-]*|[,;!?]")
_ENDING = re.compile(r"['’]s?$|\.$")
_BEFORE_NAMES = frozenset(("to", "by", "from", "like", "for", "with", "near", "of", "at", "as", "and"))
_BEFORE_PLACES = _BEFORE_NAMES | {"in", "into", "around", "across", "within", "outside", "between", "or"}
"""… and before a word that is certainly a name: other words behind "in" are products more often."""
_SAYS_NOTHING = _BEFORE_NAMES.difference(("near",)) | {"in", "into"}
"""What a request without its names does not end with; "a pharmacy near" says more than "a pharmacy"."""
_AFTER_NAMES = frozenset(
    (
        "a",
        "an",
        "the",
        "that",
        "my",
        "to",
        "on",
        "in",
        "at",
        "by",
        "with",
        "for",
        "and",
        "or",
        "from",
        "as",
        "if",
        "via",
    )
).union(("when", "today", "tomorrow", "tonight", "now", "right", "this", "next", "please", "until", "before", "after"))


@cache
def names() -> frozenset[str]:
    """Return first names, places and languages; with a capital where the word in small letters is another."""
    return read_words("names.txt")


def is_name(word: str) -> bool:
    """Return whether a word is certainly a name, of nothing that tools are for; with or without its accents."""
    small = fold(word)
    return small in names() or (word[:1].isupper() and small.capitalize() in names())


@lru_cache(maxsize=MAX_REMEMBERED_TEXTS)
def products_named(text: str) -> tuple[str, ...]:
    """Return the products that a request says it is about: "in PagerDuty", "our Terraform stack"."""
    return tuple([name for found in _ABOUT.findall(text) if (name := found.lower()) in PRODUCTS])


CHANGES = frozenset(verb for verbs in _ASKED.values() for verb in verbs.split())
"""Verbs that ask for a change."""


def plain_action(text: str) -> str | None:
    """Return the verb that a request begins with, if tools that do this say so in the same words, or nearly."""
    first = FIRST_WORD.match(text)
    return word if first and (word := first[1].lower()) in PLAIN_ACTIONS else None


@cache
def opposed_verbs(action: str) -> frozenset[str]:
    """Return the stems of verbs in names of tools that do not do what an action asks for."""
    kind = next((kind for kind, verbs in _ASKED.items() if action in verbs.split()), None)
    others = [verb for other in _OPPOSED.get(kind or "", ()) for verb in _NAMED[other].split()]
    return frozenset(map(stem, others)) - alike_actions(stem(action))


def opposed_action(text: str, name: str) -> str | None:
    """Return the verb that a request begins with, if a tool is named for something that it cannot mean."""
    first = FIRST_WORD.match(text)
    if first is None or (action := first[1].lower()) not in CHANGES or _OTHER_SENSE.search(text):
        return None
    verb, *rest = named_action(name) or ("",)
    if verb not in opposed_verbs(action) or verb in terms(text):  # "delete the branch, no, create one"
        return None
    return None if any(map(_may_do(action), rest)) else action


def _may_do(action: str) -> Callable[[str], bool]:
    """Return what tells whether a word of a name, besides its verb, says what an action asks for, or another change."""
    alike, opposed, begin = alike_actions(stem(action)), opposed_verbs(action), stem(action)

    def says(word: str) -> bool:
        return word in alike or begin in word or (word in _CHANGING and word not in opposed)

    return says


def tells(text: str) -> bool:
    """Return whether a request has a message for somebody: "email Karin that the keys are under the mat"."""
    first = FIRST_WORD.match(text)
    return first is not None and first[1].lower() in _TELLING and bool(_TOLD.search(text))


@cache
def alike_actions(action: str) -> frozenset[str]:
    """Return the stems of an action and of those that mean nearly the same: what one of them may stand for."""
    phrases = shipped_expansions().phrases
    meant = {word: {word, *(phrase[0] for phrase in each if len(phrase) == 1)} for word, each in phrases.items()}
    mine = meant.get(action, {action})
    return frozenset(mine.union(word for word, others in meant.items() if mine & others))


class RequestHead(NamedTuple):
    """A request without its content."""

    text: str
    is_whole: bool = False
    """Whether it asks for the same as the request: what was left out are first names, places and languages."""


def head_of(text: str, is_known: Callable[[str], bool]) -> RequestHead | None:
    """Return a request without its content, None where it has none; `is_known`: whether the catalog has a word."""
    words, may_be = _possible_names(text)
    return _head_without(text, tuple([at for at in may_be if not is_known(words[at])]))


@lru_cache(maxsize=MAX_REMEMBERED_TEXTS)
def _possible_names(text: str) -> tuple[Sequence[str], Sequence[int]]:
    """Return the words of a request before its content, and which of them may be names, whatever the catalog."""
    words = _WORD.findall(_CONTENT.sub("", apart(text)[0]))
    return words, [at for at, word in enumerate(words) if at > 0 and _may_be_name(word)]


@lru_cache(maxsize=MAX_REMEMBERED_TEXTS)
def _head_without(text: str, names: tuple[int, ...]) -> RequestHead | None:
    words, _ = _possible_names(text)
    may_be = [at in names for at in range(len(words))]
    slots = [may_be[at] and _is_slot(words, may_be, at) for at in range(len(words))]
    kept = [word for at, word in enumerate(words) if not slots[at]]
    while kept and kept[-1].lower() in _SAYS_NOTHING:
        kept.pop()
    head = " ".join(kept)
    if not terms(head) or terms(head) == terms(text):
        return None
    are_names = all(is_name(_ENDING.sub("", words[at])) for at, is_slot in enumerate(slots) if is_slot)
    return RequestHead(head, is_whole=are_names and _CONTENT.sub("", text) == text == apart(text)[0])


def head_of_gloss(text: str, units: Sequence[Gloss]) -> RequestHead | None:
    """Return a request of another language without the names behind its prepositions, None where it has none."""
    named = [unit.text for before, unit in pairwise(units) if _stands_before_names(before) and _is_name(unit)]
    return RequestHead(re.sub(rf"\b(?:{'|'.join(map(re.escape, named))})\b", " ", text)) if named else None


def _stands_before_names(unit: Gloss) -> bool:
    return unit.function and any(
        sense.english in _BEFORE_NAMES or sense.english in ("in", "on") for sense in unit.senses
    )


def _is_name(unit: Gloss) -> bool:
    return not unit.senses and not unit.function and unit.text.istitle()


def _may_be_name(word: str) -> bool:
    """Return whether a word is nothing that tools have to do with: no ordinary word, product or abbreviation."""
    plain = _ENDING.sub("", word)
    is_abbreviation = plain.isupper() and plain.isalpha()
    if is_abbreviation or plain.lower() in PRODUCTS:
        return False
    return plain.lower() not in english_words() or is_name(plain)


def _is_slot(words: Sequence[str], may_be: Sequence[bool], at: int) -> bool:
    """Return whether a name stands where arguments do: after a preposition or as the object, not before a noun."""
    first, last = at, at
    while may_be[first - 1]:
        first -= 1
    while last + 1 < len(words) and may_be[last + 1]:
        last += 1
    if words[last].endswith(("'s", "’s")):
        return True
    before = words[first - 2 if words[first - 1].lower() == "the" else first - 1].lower()
    is_object = first == 1 and words[at][0].isupper()
    leads = _BEFORE_PLACES if is_name(_ENDING.sub("", words[first])) else _BEFORE_NAMES
    ends = last + 1 == len(words) or not words[last + 1].isalnum() or words[last + 1].lower() in _AFTER_NAMES
    return ends and (is_object or before in leads)
