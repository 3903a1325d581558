"""What a message asks for, apart from what was pasted into it: logs, code, tables, mail, articles, quoted chats.

A message is read line by line. Lines that look like a log, code, a table, a mail or a quoted chat are pasted. Of the
rest, each sentence is scored for how much it reads like a request, and the best ones, with the short paragraph around
them, are a first guess. In a long message a fitted model (`asking`) decides, with the guess as one of its signs; what
it takes for a request at length is searched whole, or left to the rules. All of it takes time in proportion to the
length of the message, of which at most the two ends are read.
"""

import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import groupby
from typing import TYPE_CHECKING, NamedTuple

from shortlist.errors import ModelError
from shortlist.models import OtherAsk
from shortlist.text.languages.reading import glossed
from shortlist.text.letters import is_closing
from shortlist.text.pasted import Block, blocks_of, first_and_last
from shortlist.text.phrasing import (
    FIRST_WORD,
    LEAD,
    POINTS,
    asks_nothing,
    request_score,
    score_in_any_language,
    starts_like_a_request,
)
from shortlist.text.tokens import ACTIONS, one_line, terms

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from shortlist.text.asking import Model, Piece

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
"""A short paragraph that asks beside text of at least this length is the request, whatever that text says."""
TYPED = 2.0
"""What a paragraph scores that begins in lower case and ends without a full stop, as typed ones do."""
MOST_SENTENCES = 3
"""The sentences of such a paragraph."""
TITLE, MANY_ITEMS = 80, 3
"""The length of a line that may be a heading, and the items of a list that make a text a document."""
MOSTLY = 0.4
"""A message with a smaller share of pasted text is a request at length, and is searched whole."""
MANY_RUNS = 3
"""Prose that asks in so many places is a request at length too."""
MANY_SENTENCES = 3
"""With so many sentences that all ask, a message is one; of fewer, the rules may cut one at a colon."""
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
_WRITES = re.compile(r"\b(?:i|me|my|we|us|our|please)\b", re.IGNORECASE)
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
_SENTENCE_END = frozenset(".!?:。！？؟")
_PARAGRAPHS = re.compile(r"\n\s*\n")
_ITEM = re.compile(r"\s*(?:[-*•] |\d{1,2}[.)] |\d{1,2}(?:\.\d{1,2})+ |§ ?\d|\[.\] |\d{1,2}:\d\d\b|#{1,4} )")
_LISTS_WISHES = re.compile(
    r"\b(?:(?:can|could|would|will) you(?: please)?|please|i(?:['’]d| would) (?:love|like)(?: is)?"
    r"|i(?:['’]m| am) wondering(?: is)?|i (?:need|want)(?: is| you to)?):[ \t]*+\n\s*+(?:[-*•–] |\d{1,2}[.)] )",
    re.IGNORECASE,
)
"""What introduces a list of wishes: "could you:", and below it one item for each."""
_LISTED = re.compile(r"\s*+(?:[-*•–] |\d{1,2}[.)] )")
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
    other: OtherAsk | None = None
    """What else may be asked, where that is in doubt."""


class _Unit(NamedTuple):
    block: int
    text: str
    score: float
    asks_alone: bool
    """Whether its paragraph is a short one of its own that asks, outside of a mail."""


def read_ask(text: str) -> Ask:
    """Separate the request from pasted text; a plain request is returned whole."""
    stripped = text.strip()
    if len(stripped) <= SHORT and "\n" not in stripped:
        return Ask(stripped)
    return _read_long(_both_ends(stripped, MAX_READ_CHARS))


@lru_cache(maxsize=64)
def _read_long(text: str) -> Ask:
    return read_long(text)


def read_long(text: str, model: "Model | None" = None) -> Ask:
    """Separate the request from pasted text by the shipped model, or another one."""
    guess, is_short = by_rules(text), len(text) < LONG_TEXT
    if (is_short and not guess.characters) or _is_list_of_wishes(text, blocks_of(text)):
        return guess
    from shortlist.text.asking import other_ask, scores_of, sentences_of  # noqa: PLC0415 (numpy takes long to import)

    sentences = sentences_of(text)
    try:
        scores = scores_of(sentences, _said(guess), model)
    except ModelError:  # a search by words needs no weights; whatever model is used reports what is damaged
        return guess
    ask = guess if is_short else _by_scores(text, guess, sentences, scores)
    return ask._replace(other=other_ask(ask.text, sentences, scores)) if ask.characters else ask


def _by_scores(text: str, guess: Ask, sentences: Sequence["Piece"], scores: "NDArray[np.float32]") -> Ask:
    """Return the request of a long message by the scores of its sentences."""
    from shortlist.text.asking import asking  # noqa: PLC0415

    asked = asking(sentences, scores, _said(guess))
    is_asked = [each in asked for each in sentences]
    words, rest = (
        "\n".join(each.text for each, asks in zip(sentences, is_asked, strict=True) if asks is part)
        for part in (True, False)
    )
    pasted = sum(len(each.text) for each in sentences if each.kind or each.in_letter)
    runs = sum(asks for asks, _ in groupby(is_asked))
    is_own = pasted < MOSTLY * len(text)
    if is_own and not rest and len(sentences) >= MANY_SENTENCES and not _is_foreign_to(text, _said(guess)):
        return _whole(text)
    is_at_length = is_own and (runs >= MANY_RUNS or _says_nothing(words))
    if is_at_length or len(rest) < MOSTLY * len(text) or all(each.kind for each in asked):
        return guess
    return Ask(_both_ends(words), rest[:MAX_PASTE_CHARS], max(len(text) - len(words), len(rest)))


def guess_of(text: str) -> str:
    """Return what the rules take for the request beside pasted text; empty where they find none."""
    return _said(by_rules(text))


def _said(guess: Ask) -> str:
    return guess.text if guess.characters and guess.is_clear else ""


def _is_foreign_to(text: str, guess: str) -> bool:
    """Return whether what the rules take for the request is of another language than both ends of the rest."""
    if not glossed(guess):
        return False
    rest = text.replace(guess, " ").strip()
    return not (glossed(rest[:LONG_TEXT]) or glossed(rest[-LONG_TEXT:]))


def _whole(text: str) -> Ask:
    """Return a request at length, which is searched from end to end."""
    return Ask(_both_ends(text), asks=len(text) <= MAX_PASTE_CHARS or _asks_at_an_end(text))


def by_rules(text: str) -> Ask:
    """Guess the request of a long message by its lines and sentences."""
    blocks = blocks_of(text)
    if _is_list_of_wishes(text, blocks):
        return Ask(_both_ends(text))
    is_prose = not any(block.is_pasted for block in blocks)
    if is_prose:
        blocks = _set_apart(text) or _introduced(text) or _with_narrative(blocks)
    if sum(len(block.text) for block in blocks if block.is_pasted or block.in_letter) < MOSTLY * len(text):
        blocks = _set_apart(text)
        if not blocks:
            return _whole(text)
    units = _asking(blocks)
    if not units:
        blocks = _set_apart(text)
        units = _asking(blocks)
    if not units:
        return Ask(_both_ends(text, MAX_PASTE_CHARS), "", len(text), is_clear=False)
    asked = "\n".join(unit.text for unit in units)
    if is_prose and _says_nothing(asked):
        return Ask(_both_ends(text))
    pasted = "\n".join(block.text for block in blocks if block.is_pasted)
    clear = max(unit.score for unit in units) >= ENOUGH
    return Ask(_both_ends(asked), pasted[:MAX_PASTE_CHARS], len(text) - len(asked), is_clear=clear)


def _is_list_of_wishes(text: str, blocks: Sequence[Block]) -> bool:
    """Return whether a message tells what is wanted and lists it ("could you:"), and has nothing else pasted."""
    found = _LISTS_WISHES.search(text[:NARRATIVE])
    if found is None or any(block.in_letter or (block.is_pasted and not _is_list(block.text)) for block in blocks):
        return False
    opening, *between = _PARAGRAPHS.split(text[: found.start()].strip())
    return not between or bool(_WRITES.search(opening) and not POINTS.search(opening))


def _is_list(text: str) -> bool:
    return all(_LISTED.match(line) for line in text.splitlines() if line.strip())


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
    """Cut off a short paragraph that asks, beside a document: "make a pdf of this", above a runbook.

    The document may be written like a request, as minutes are. Then only a paragraph that points at it is set apart.
    A paragraph at an end is preferred, and lower case at the start and no full stop at the end suggest typing.
    """
    paragraphs = _paragraphs(text)
    last = len(paragraphs) - 1
    found = [
        (score, -at, at)
        for at, ask in enumerate(paragraphs)
        if last and len(ask) <= SHORT_ASK and len(text) - len(ask) >= LONG_TEXT
        for score in [_score_beside(ask, paragraphs[1] if at == 0 else paragraphs[0], text, is_end=at in (0, last))]
        if score
    ]
    if not found:
        return []
    at = max(found)[2]
    parts = ["\n\n".join(paragraphs[:at]), paragraphs[at], "\n\n".join(paragraphs[at + 1 :])]
    return [Block(part, is_pasted=part is not paragraphs[at]) for part in parts if part]


def _paragraphs(text: str) -> list[str]:
    """Return the paragraphs of a text; a first or last line that no sentence runs across is one of its own."""
    found = [part.strip() for part in first_and_last(_PARAGRAPHS.split(text)) if part.strip()]
    if not found:
        return []
    first, _, below = found[0].partition("\n")
    if below and (first[-1:] in _SENTENCE_END or not below[:1].islower()):
        found[:1] = [first, below]
    above, _, last = found[-1].rpartition("\n")
    before = above.rpartition("\n")[2].rstrip()
    if above and (before[-1:] in _SENTENCE_END or len(before) <= TITLE or _ITEM.match(before)):
        found[-1:] = [above, last]
    return found


def _score_beside(ask: str, head: str, text: str, *, is_end: bool) -> float:
    """Score a paragraph as a request beside the rest of a text; 0 for one that is part of it."""
    said = glossed(ask) or ask
    sentences = _SENTENCE.split(ask)
    is_typed = 1.0 * (ask[:1].isalpha() and not ask[:1].isupper()) + 1.0 * (ask[-1:] != ".")
    if len(sentences) > MOST_SENTENCES or "\n" in ask or _ITEM.match(ask) or asks_nothing(ask):
        return 0.0
    signal = max(map(score_in_any_language, sentences))
    is_foreign = said is not ask and not glossed(text[:LONG_TEXT] if not text.startswith(ask) else text[-LONG_TEXT:])
    fragment = len(terms(said)) > SAYS_ENOUGH and (is_foreign or (is_typed == TYPED and is_end and head[:1].isupper()))
    asks = signal >= ENOUGH / 2 or (fragment and _is_structured(head, text))
    points = starts_like_a_request(said) and bool(_POINTS_AT_TEXT.search(said))
    is_beside = asks and (is_foreign or _is_structured(head, text) or _is_told_to_nobody(head, text))
    is_one = is_beside and (is_end or is_typed == TYPED)
    return (signal + is_typed + 1.0 * is_foreign + 1.0 * is_end) * (is_one or (is_end and points))


@lru_cache(maxsize=8)  # asked for every paragraph of a text
def _is_structured(head: str, text: str) -> bool:
    """Return whether a text that begins with `head` has a heading or lists."""
    title = head.partition("\n")[0]
    is_titled = len(title) <= TITLE and title[-1:] not in ".!?,:;" and not starts_like_a_request(title)
    items = sum(1 for line in text[:MAX_ASK_CHARS].split("\n") if _ITEM.match(line))
    return (is_titled or head.startswith("#") or items >= MANY_ITEMS) and not _begins_with_the_writer(head)


@lru_cache(maxsize=8)  # asked for every paragraph of a text
def _is_told_to_nobody(head: str, text: str) -> bool:
    return not (_begins_with_the_writer(head) or _begins_with_the_writer(text) or _is_addressed(text[:MAX_ASK_CHARS]))


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


def _is_addressed(text: str, words: re.Pattern[str] = _ADDRESSED) -> bool:
    """Return whether most sentences of a text address a reader, as in a long request."""
    sentences = [part for part in first_and_last(_SENTENCE.split(text)) if part.strip()]
    return sum(bool(words.search(part)) for part in sentences) >= len(sentences) / 2


def _with_narrative(blocks: list[Block]) -> list[Block]:
    """Classify long runs of prose that address no reader as pasted text."""
    sentences = [
        (part, (is_own or bool(_ADDRESSED.search(part)) or starts_like_a_request(part)) and number)
        for number, block in enumerate(blocks, 1)
        for is_own in [_begins_with_the_writer(block.text)]
        for part in first_and_last(_SENTENCE.split(block.text))
        if part.strip()
    ]
    runs = [
        (not owner, [part for part, _ in run]) for owner, run in groupby(sentences, key=lambda sentence: sentence[1])
    ]
    found = [Block("\n".join(run), is_told and len("\n".join(run)) >= NARRATIVE_RUN) for is_told, run in runs]
    narrative = sum(len(each.text) for each in found if each.is_pasted)
    return found if narrative >= NARRATIVE else blocks


def _begins_with_the_writer(paragraph: str) -> bool:
    """Return whether a paragraph begins with what its writer is doing: the facts that follow belong to the request."""
    return bool(_WRITER.match(paragraph)) and not starts_like_a_request(paragraph)


def _asking(blocks: list[Block]) -> list[_Unit]:
    units = [unit for number, block in enumerate(blocks) if not block.is_pasted for unit in _units(blocks, number)]
    if any(unit.asks_alone for unit in units):
        units = [unit for unit in units if unit.asks_alone or _may_be_told(blocks[unit.block])]
    if not units:
        return []
    best = max(unit.score for unit in units)
    least = max(best - NEAR_BEST, min(ENOUGH, best))
    whole = {unit.block for unit in units if unit.score >= least and len(blocks[unit.block].text) <= PARAGRAPH}
    chosen = [u for u in units if u.score >= least or u.block in whole or _is_told(u, blocks[u.block])]
    return [unit for unit in chosen if not is_closing(unit.text)] or chosen


def _may_be_told(block: Block) -> bool:
    """Return whether a paragraph may be the writer's own, beside another one that asks by itself."""
    return not block.in_letter and _is_addressed(block.text, _WRITES)


def _is_told(unit: _Unit, block: Block) -> bool:
    """Keep what the writer says around a request in sentences of their own, as in a long description of a task."""
    return not block.in_letter and len(block.text) > PARAGRAPH and bool(_ADDRESSED.search(unit.text))


def _units(blocks: list[Block], number: int) -> list[_Unit]:
    """Score the sentences of a paragraph."""
    text, in_letter = blocks[number].text, blocks[number].in_letter
    sentences = first_and_last([part.strip() for part in _SENTENCE.split(text) if part.strip()])
    outer = number in (0, len(blocks) - 1)
    alone = len(text) <= (120 if in_letter else 200) and len(sentences) <= 1 + (not in_letter or text[:1].islower())
    around = 1.0 * alone + 1.0 * outer - (0.5 if alone else 3.0) * in_letter
    score = score_in_any_language if alone else request_score  # what is pasted is rarely that short
    scores = [0.0 if asks_nothing(sentence) else score(sentence) for sentence in sentences]
    asks_alone = alone and not in_letter and max(scores) >= (1.0 if outer else ENOUGH / 2)
    return [
        _Unit(number, sentence, around + each, asks_alone) for sentence, each in zip(sentences, scores, strict=True)
    ]


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
