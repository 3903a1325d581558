"""What a message asks for, apart from what was pasted into it: logs, code, tables, mail, articles, quoted chats.

A message is read line by line. Lines that look like a log, code, a table, a mail or a quoted chat are pasted. Of the
rest, each sentence is scored for how much it reads like a request, and the best ones, with the short paragraph around
them, are the ask. All of it takes time in proportion to the length of the message.
"""

import re
from collections.abc import Iterator
from functools import lru_cache
from itertools import groupby
from typing import NamedTuple

from shortlist.text.languages.reading import glossed
from shortlist.text.pasted import Block, blocks_of, first_and_last
from shortlist.text.phrasing import (
    FIRST_WORD,
    LEAD,
    POINTS,
    request_score,
    score_in_any_language,
    starts_like_a_request,
)
from shortlist.text.tokens import ACTIONS, one_line, terms

SHORT = 400
"""A message of one paragraph up to this length is all request."""
MAX_ASK_CHARS = 4_000
MAX_PASTE_CHARS = 600
"""The length of pasted text that is kept, to complement a vague request."""
MAX_READ_CHARS = 50_000
"""Of a longer text only the two ends are read: a request stands at one of them, and reading takes time."""
ENOUGH, NEAR_BEST = 3.0, 1.5
"""The score that makes a sentence a request, and how close to the best score others must be."""
PARAGRAPH = 320
"""A paragraph up to this length is taken whole when one of its sentences asks."""
SAYS_ENOUGH = 2
"""A request with this many informative words is searched without the pasted text."""
QUOTED_PASTE = 240
QUOTE_CHARS = 180
"""The length of a quote that the reader of queries knows: quoted words weigh a third of those that ask."""
SHORT_ASK, BESIDE = 200, 160
"""A request of at most this length, next to text of at least this length, is about that text."""
LONG_TEXT = 350
"""A paragraph of one sentence that points at text of at least this length is the request, whatever that text says."""
MOSTLY = 0.4
"""A message with a smaller share of pasted text is a request at length, and is searched whole."""
NARRATIVE, NARRATIVE_RUN = 500, 250
"""This much prose that addresses no reader, in runs of at least this length, counts as pasted."""

_REQUESTS_MORE = re.compile(r"\b(?:please|i want|i need|i'd like|i would like|(?:can|could) you)\b", re.IGNORECASE)
_MORE_BELOW = re.compile(
    r"(?:[.!?\n]\s+|\s)((?:and then|and also|then|afterwards|finally|please)\s[^.!?\n]+[.!]?)$", re.IGNORECASE
)
"""A second request behind the text that the first one is about."""
_TEXT_ACTIONS = frozenset(
    {"translate", "summarise", "summarize", "rewrite", "proofread", "correct", "post", "send", "mail", "email"}
    | {"save", "write", "put", "forward", "share", "read"}
)
"""Verbs for operations on an accompanying text."""
_POINTS_AT_TEXT = re.compile(rf"{POINTS.pattern}|\b(?:her|him|his)\b", re.IGNORECASE)
_ADDRESSED = re.compile(r"\b(?:i|me|my|we|us|our|you|your|please)\b|\?", re.IGNORECASE)
_WRITER = re.compile(rf"{LEAD}(?:i|we)['’](?:m|re|ve|d|ll)\b", re.IGNORECASE)
_SENTENCE = re.compile(r"(?<=[.!?])\s+|\n+|(?<=:)\s+(?=[A-Z\"“])")

_TAKEN_BACK = re.compile(
    r"\b(?:no,? wait|wait,? no|scratch that|never ?mind(?: that)?|nvm|actually,? no|(?<!what )i meant(?: to)?)\b"
    r"[\s,:;.!-]+",
    re.IGNORECASE,
)
"""What takes back the request before it: "mute it, no wait, archive it"."""
TAKING_BACK = frozenset({"wait", "scratch", "mind", "nevermind", "nvm", "actually", "meant"})
"""Words of which each of these has one: most requests have none, and are not read for it."""
_VAGUE = frozenset(terms("assist assistance task multiple several various different following detail question matter"))
"""Words of requests that say only that something is to be done."""


class Ask(NamedTuple):
    """A message in two parts; `pasted` keeps the beginning of the paste, `characters` counts all of it."""

    text: str
    pasted: str = ""
    characters: int = 0
    is_clear: bool = True
    """False where nothing in a long message reads like a request."""
    asks: bool = True
    """False where a long message is searched whole and neither of its ends asks somebody: it may be pasted."""


class _Unit(NamedTuple):
    block: int
    text: str
    score: float


def read_ask(text: str) -> Ask:
    """Separate the request from pasted text; a plain request is returned whole."""
    stripped = text.strip()
    if len(stripped) <= SHORT and "\n" not in stripped:
        return Ask(stripped)
    return _read_long(_both_ends(stripped, MAX_READ_CHARS))


@lru_cache(maxsize=64)
def _read_long(text: str) -> Ask:
    blocks = blocks_of(text)
    is_prose = not any(block.is_pasted for block in blocks)
    if is_prose:
        blocks = _introduced(text) or _with_narrative(blocks)
    if sum(len(block.text) for block in blocks if block.is_pasted or block.in_letter) < MOSTLY * len(text):
        blocks = _set_apart(text)
        if not blocks:
            return Ask(_both_ends(text), asks=len(text) <= MAX_PASTE_CHARS or _asks_at_an_end(text))
    asking = _asking(blocks)
    if not asking:
        blocks = _set_apart(text)
        asking = _asking(blocks)
    if not asking:
        return Ask(_both_ends(text, MAX_PASTE_CHARS), "", len(text), is_clear=False)
    asked = "\n".join(unit.text for unit in asking)
    if is_prose and _says_nothing(asked):
        return Ask(_both_ends(text))
    pasted = "\n".join(block.text for block in blocks if block.is_pasted)
    clear = max(unit.score for unit in asking) >= ENOUGH
    return Ask(_both_ends(asked), pasted[:MAX_PASTE_CHARS], len(text) - len(asked), is_clear=clear)


def _says_nothing(ask: str) -> bool:
    """Return whether a request leaves all to the prose beside it, as in "I need help with several tasks"."""
    first = FIRST_WORD.match(ask)
    acts = bool(first and first[1].lower() in ACTIONS)
    return not acts and _VAGUE.issuperset(terms(ask))


def last_said(text: str) -> str:
    """Return a request without what it takes back itself: "mute it, no wait, archive it" asks to archive."""
    kept = text
    for found in _TAKEN_BACK.finditer(text):
        if starts_like_a_request(text[found.end() :]):
            kept = text[found.end() :]
    return kept


def _introduced(text: str) -> list[Block]:
    """Cut off a short request at either end that is about the long text beside it; nothing where there is none."""
    found = [
        (2 * bool(POINTS.search(ask)) + request_score(ask) + min(len(terms(ask)), 3), ask, rest, is_first)
        for ask, rest, is_first in _ends_apart(text)
        if len(ask) <= SHORT_ASK and len(rest) >= BESIDE and _is_about(ask, rest)
    ]
    if not found:
        return []
    _, ask, rest, is_first = max(found, key=lambda each: (len(terms(each[1])) >= SAYS_ENOUGH, each[0]))
    if not is_first:
        return [Block(rest, is_pasted=True), Block(ask, is_pasted=False)]
    more = _MORE_BELOW.search(rest, max(len(rest) - SHORT_ASK, 0))
    tail = [Block(more[1], is_pasted=False)] if more and starts_like_a_request(more[1]) else []
    return [Block(ask, is_pasted=False), Block(rest, is_pasted=True), *tail]


def _asks_at_an_end(text: str) -> bool:
    return any("?" in end or _REQUESTS_MORE.search(end) for end in (text[:SHORT], text[-SHORT:]))


def _set_apart(text: str) -> list[Block]:
    """Cut off a first or last paragraph, one sentence, that points at the rest: "make a pdf of this", beside a runbook.

    A request in another language than the rest, or beside a document with a heading, need not point at it. The rest may
    be written like a request, as minutes are. Lower case at the start and no full stop at the end suggest typing.
    """
    first, _, below = text.partition("\n\n")
    above, _, last = text.rpartition("\n\n")
    found = [
        (request_score(said) + 1.0 * ask[:1].islower() + 1.0 * (ask[-1:] != "."), ask, rest, is_first)
        for ask, rest, is_first in ((first.strip(), below.strip(), True), (last.strip(), above.strip(), False))
        if len(ask) <= SHORT_ASK and len(rest) >= LONG_TEXT and not _SENTENCE.search(ask)
        for said in [glossed(ask) or ask]
        for asks in [starts_like_a_request(said) or ask.endswith(("?", "？", "؟"))]
        if (asks and (_POINTS_AT_TEXT.search(said) or rest.startswith("#")))
        or (said is not ask and (asks or _may_ask(ask, rest)) and not glossed(rest[:LONG_TEXT]))
    ]
    if not found:
        return []
    _, ask, rest, is_first = max(found)
    blocks = [Block(ask, is_pasted=False), Block(rest, is_pasted=True)]
    return blocks if is_first else blocks[::-1]


def _may_ask(ask: str, rest: str) -> bool:
    """Return whether a foreign sentence has a verb or a question word, or says much beside a heading."""
    says_much = rest.startswith("#") and len(terms(glossed(ask))) > SAYS_ENOUGH
    return says_much or score_in_any_language(ask) >= ENOUGH / 2


def _is_about(ask: str, rest: str) -> bool:
    points = bool(POINTS.search(ask)) or ask.endswith(":")
    first = FIRST_WORD.match(ask)
    if points and first and first[1].lower() in _TEXT_ACTIONS:
        return True
    requests = starts_like_a_request(ask) or ask.endswith("?")
    return requests and not _requests_more(rest) and (points or not _is_addressed(rest))


def _requests_more(text: str) -> bool:
    """Return whether a text goes on requesting after its first sentence, as a task in several steps does."""
    if _REQUESTS_MORE.search(text):
        return True
    return any(starts_like_a_request(part) for part in first_and_last(_SENTENCE.split(text))[1:])


def _ends_apart(text: str) -> Iterator[tuple[str, str, bool]]:
    """Yield the first line, its part before a colon, and the last line, each with the rest."""
    first, _, below = text.partition("\n")
    yield first.strip(), below.strip(), True
    before, colon, after = text[: SHORT_ASK + 1].partition(": ")
    if colon and "\n" not in before:
        yield f"{before}:", f"{after}{text[SHORT_ASK + 1 :]}".strip(), True
    above, _, last = text.rpartition("\n")
    yield last.strip(), above.strip(), False


def _is_addressed(text: str) -> bool:
    """Return whether most sentences of a text address a reader, as in a long request."""
    sentences = [part for part in first_and_last(_SENTENCE.split(text)) if part.strip()]
    return sum(bool(_ADDRESSED.search(part)) for part in sentences) >= len(sentences) / 2


def _with_narrative(blocks: list[Block]) -> list[Block]:
    """Classify long runs of prose that address no reader as pasted text."""
    sentences = [
        (part, is_own or bool(_ADDRESSED.search(part)) or starts_like_a_request(part))
        for block in blocks
        for is_own in [_begins_with_the_writer(block.text)]
        for part in first_and_last(_SENTENCE.split(block.text))
        if part.strip()
    ]
    runs = [
        (not is_own, [part for part, _ in run]) for is_own, run in groupby(sentences, key=lambda sentence: sentence[1])
    ]
    found = [Block("\n".join(run), is_told and len("\n".join(run)) >= NARRATIVE_RUN) for is_told, run in runs]
    narrative = sum(len(each.text) for each in found if each.is_pasted)
    return found if narrative >= NARRATIVE else blocks


def _begins_with_the_writer(paragraph: str) -> bool:
    """Return whether a paragraph begins with what its writer is doing: the facts that follow belong to the request."""
    return bool(_WRITER.match(paragraph)) and not starts_like_a_request(paragraph)


def _asking(blocks: list[Block]) -> list[_Unit]:
    units = [unit for number, block in enumerate(blocks) if not block.is_pasted for unit in _units(blocks, number)]
    if not units:
        return []
    best = max(unit.score for unit in units)
    least = max(best - NEAR_BEST, min(ENOUGH, best))
    whole = {unit.block for unit in units if unit.score >= least and len(blocks[unit.block].text) <= PARAGRAPH}
    return [unit for unit in units if unit.score >= least or unit.block in whole or _is_told(unit, blocks[unit.block])]


def _is_told(unit: _Unit, block: Block) -> bool:
    """Keep what the writer says around a request in sentences of their own, as in a long description of a task."""
    return not block.in_letter and len(block.text) > PARAGRAPH and bool(_ADDRESSED.search(unit.text))


def _units(blocks: list[Block], number: int) -> list[_Unit]:
    """Score the sentences of a paragraph."""
    text, in_letter = blocks[number].text, blocks[number].in_letter
    sentences = first_and_last([part.strip() for part in _SENTENCE.split(text) if part.strip()])
    outer = number in (0, len(blocks) - 1)
    alone = len(text) <= (120 if in_letter else 200) and len(sentences) <= 1 + (not in_letter)
    around = 1.0 * alone + 1.0 * outer - (0.5 if alone else 3.0) * in_letter
    score = score_in_any_language if alone else request_score  # what is pasted is rarely that short
    return [_Unit(number, sentence, around + score(sentence)) for sentence in sentences]


def _both_ends(text: str, most: int = MAX_ASK_CHARS) -> str:
    if len(text) <= most:
        return text
    half = most // 2
    return f"{text[:half]} {text[-half:]}"


def quoted(text: str) -> str:
    """Quote a text line by line."""
    words = one_line(text.replace('"', " ")).split()
    lines, line = [], ""
    for word in (word[:QUOTE_CHARS] for word in words):
        if line and len(line) + len(word) >= QUOTE_CHARS:
            lines.append(line)
            line = ""
        line = f"{line} {word}".strip()
    return " ".join(f'"{part}"' for part in (*lines, line) if part)
