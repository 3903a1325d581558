"""A query as weighted terms: the request has full weight, pasted text very little.

Abbreviations and synonyms come from files that users extend. A request for several things is taken apart:
"merge it and tell #dev" asks for two tools.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from importlib import resources
from itertools import chain, islice
from pathlib import Path
from typing import NamedTuple, TypeAlias

from shortlist.errors import InvalidInput
from shortlist.models import SearchMode
from shortlist.text.asks import QUOTED_PASTE, SAYS_ENOUGH, SHORT, TAKING_BACK, Ask, last_said, quoted, read_ask
from shortlist.text.joints import FOREIGN_JOINTS, Part, foreign_parts, split_outside_quotes, without_quotes
from shortlist.text.kinds import CHANNEL, FILLER, FIRST_WORD, with_kinds
from shortlist.text.languages.glossing import Gloss
from shortlist.text.languages.lexicon import strange_words
from shortlist.text.languages.reading import GlossedText, glossed, read_query
from shortlist.text.tokens import (
    ACTIONS,
    MAX_REMEMBERED_TEXTS,
    clean_text,
    compact,
    distinct_words,
    gathered,
    split_identifier,
    stem,
    terms,
    typed_text,
)

CORRECTED: tuple[SearchMode, ...] = ("hybrid", "lexical", "dense")
"""Modes that search for words or meaning; the others take the text as it is."""
Phrases: TypeAlias = tuple[tuple[str, ...], ...]

_PLAIN_WORD = re.compile(r"(?<![\w./:=@#<{-])[A-Za-z]\w*(?![\w/:=@>}-]|\.\w)")
"""A word that stands alone: no part of a path, an address, a tag or a name that is spelled out."""
_RUN = re.compile(r"\w+")
MAX_QUERY_TERMS = 160

PASTED_WEIGHT = 0.35
"""Words inside placeholders, paths, links and quotes: arguments more often than the thing asked for."""
EXPANSION_WEIGHT = 0.45
"""The weight of a synonym relative to the word itself."""
READING_WEIGHTS = (1.0, 1.0)
"""What the two glosses of a query count in its vector."""
SENSE_WEIGHT = 0.85
"""What another English word for the same foreign one counts, by how likely it is meant."""
UNREAD_WEIGHT = 0.3
"""A word of another script that no lexicon has: in an English catalog it stands for nothing."""

MAX_REMEMBERED_WORDS = 4_096
MAX_CLAUSES = 8
PART_CHARS = 240
"""Neighbouring clauses of a long request are read together up to this length, so that few parts hold all of it."""
MIN_CLAUSE_WORDS = 3

_PASTED = {
    "<": r"<[^<>\s][^<>]{0,80}>",  # <resource-group>
    "{": r"\{\{?[^{}]{1,80}\}\}?",  # {id}, {{name}}
    "://": r"\b[a-z][a-z0-9+.-]{0,30}://\S+",  # links
    "www.": r"\bwww\.\S+",
    "@": r"(?<![\w.+-])[\w.+-]{1,64}@[\w-]+\.[\w.]+",  # addresses
    "/": r"(?<![\w/])(?:~|\.{1,2})?(?:/[\w.@%+-]+){2,}/?",  # paths
    ":\\": r"\b[A-Za-z]:\\[^\s]+",
    "0": r"\b(?=[a-z0-9_-]{16})(?=\w*\d)(?=\w*[a-z])[a-z0-9_-]{16,}\b",  # my-storage-account-01
    '"': r"\"[^\"\n]{1,200}\"",
    "'": r"'(?<!\w')[^'\n]{1,200}'(?!\w)",
    "`": r"`[^`\n]{1,200}`",
}
"""What is pasted into queries, by a sign without which there is none of it; `0` stands for every digit.

Most queries have few of the signs, and looking for all of it at each letter would take longer than the search."""
_PLAINER = "".join("0" if chr(c).isdigit() else chr(c).lower() for c in range(128))
_OPAQUE = re.compile(
    r"\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f-]{14,}\b"  # UUIDs
    r"|\b(?=[a-z0-9_-]{16})(?=\w*[a-z])(?=\w*\d)(?=(?:[a-z_-]{0,40}\d){3})[a-z0-9_-]{16,}\b"
    # keys, hashes; names have fewer digits
    r"|\b\d[\d.,:/-]*\b",  # numbers, dates, times, versions
    re.IGNORECASE,
)
_IDENTIFIER = re.compile(
    r"\b[A-Za-z][A-Za-z0-9]*+(?:[_.:-][A-Za-z0-9]++)+\b"  # snake_case, kebab-case, dotted.names
    r"|\b[a-z]++(?:[A-Z][a-z0-9]*+)+\b"  # camelCase
)
_INSIDE_A_NAME = re.compile(r"[_.:-][A-Za-z0-9]|[a-z][A-Z]")
"""What every identifier has and few requests have."""
# Every way a clause ends begins with white space or a comma, which the engine can skip to.
_CLAUSE_END = re.compile(
    r"[\s,](?:(?<=[.!?;]\s)\s*|(?<=\n)\n*"
    r"|(?<![^\S\n]\s)(?:(?<=\s)\s{0,60}+|\s{1,60}+)(?:and then|then|and also|also|after that|finally|next)\s+"
    r"|(?<=,)\s+and\s+)",
    re.IGNORECASE,
)
_QUOTED = re.compile(r"(?:\"[^\"]*\"\s*)+")
_CLAUSE_WORDS = frozenset(("then", "also", "after", "finally", "next"))
_JOINT_WORDS = frozenset(("and", "then", "after", "afterwards", "plus", "well")) | FOREIGN_JOINTS
_BREAKS = (". ", ", ", "! ", "? ", "; ", " & ")
_LIST_SIGNS = (". ", ") ", "- ", "* ", "• ")
"""A plain line has no second clause, no joint, and is no list, without one of these: most requests end there."""
MAX_WISHES = 6
MOST_CHARS = 600
"""A longer request describes one task, whose sentences are not wishes; its clauses still inform the search."""
MIN_WORDS = 2
"""Words that an action needs to be a wish of its own, unless it says "it": "search and replace" is one wish."""

_JOINT = re.compile(
    r"((?:(?<=[.!?;])\s+|\n+)"
    r"(?i:(?:(?:and )?then|after that|afterwards|lastly|(?:next|second(?:ly)?|third(?:ly)?),),?\s+)?"
    r"|(?:,|(?<![^\S\n]))\s{1,60}+(?:and then|then|and also|and afterwards|afterwards|after that|and finally|as well as"
    r"|plus|and|&|und dann|und|y luego|et ensuite)\s+|,\s+)"
)
_FIRST = re.compile(
    r"^\W*first(?:ly| of all)?\b,?\s+(?=.*\b(?:then|second(?:ly)?|next|after|afterwards|finally|lastly)\b)",
    re.IGNORECASE | re.DOTALL,
)
"""Says that a wish is the first of several: "first merge it, then tell #dev", and not "first name, email and phone"."""
_SENTENCE = re.compile(r"(?<=[.!?;])\s+")
_NUMBER = re.compile(r"(?:^|\s)(?:\(?\d{1,2}[.)]|[-*•])\s+")
"""Numbers and bullets of a list; each begins a line of its own."""
_ASKS = re.compile(
    rf"^\W*{FILLER}(?:who|what|what's|which|where|when|how|is there|are there|i need|i want|let me know|tell me)\b",
    re.IGNORECASE,
)
_NEED = re.compile(
    r"(?:^|[.!?;\n])[^\w.!?;\n]*+(?:i|we)(?:'d| would)? (?:want|need|like|wish|have to|plan|hope)\b", re.IGNORECASE
)
_QUESTION = re.compile(r"^\W*(?:please,? )?(?:can|could|would|will|do|should) (?:you|we|i)\b", re.IGNORECASE)
_MORE = re.compile(r"\b(?:also|too|as well|and|then|plus)\b", re.IGNORECASE)
_ONE = re.compile(r"\bones?\b", re.IGNORECASE)
_POINTS = re.compile(r"\b(?:it|its|them|they|that|this|those|these|him|her|there|one|result|both)\b", re.IGNORECASE)


@dataclass(frozen=True, slots=True, eq=False)
class Expansions:
    """Terms that may stand for others, and the abbreviations that are short for one thing alone."""

    phrases: Mapping[str, Phrases]
    long_forms: Mapping[str, str]

    def spelled_out(self, text: str) -> str:
        """Write abbreviations out, as a model knows them; `Mr` and `Li` are names, `MR` and `mr` are not."""
        if self.long_forms.keys().isdisjoint(distinct_words(text) if text.isascii() else _RUN.findall(text.lower())):
            return text  # as most are, and looking at every word takes its time
        return _PLAIN_WORD.sub(self._long_form, text)

    def _long_form(self, found: re.Match[str]) -> str:
        word = found[0]
        return word if word.istitle() else self.long_forms.get(word.lower(), word)

    def added_to(self, others: "Expansions") -> "Expansions":
        """Return these expansions merged with others; these take precedence."""
        phrases = dict(others.phrases)
        for word, mine in self.phrases.items():
            phrases[word] = tuple(dict.fromkeys((*mine, *phrases.get(word, ()))))
        kept = {word: meant for word, meant in others.long_forms.items() if word not in self.phrases}
        return Expansions(phrases, {**kept, **self.long_forms})


@cache
def shipped_expansions() -> Expansions:
    text = resources.files("shortlist.text").joinpath("data", "expansions.txt").read_text("utf-8")
    return parse_expansions(text, "expansions.txt")


def read_expansions(*files: Path) -> Expansions:
    """Add the user's own entries to those that are shipped."""
    table = shipped_expansions()
    for file in files:
        table = parse_expansions(_read(file), file.name).added_to(table)
    return table


def _read(file: Path) -> str:
    try:
        return file.read_text("utf-8")
    except OSError as error:
        raise InvalidInput(f"The expansions in {file} cannot be read: {error.strerror}.") from None
    except UnicodeDecodeError as error:
        raise InvalidInput(f"The expansions in {file} cannot be read: {error}.") from None


def parse_expansions(text: str, name: str) -> Expansions:
    """Read lines of `word => phrase, phrase`; `<=>` goes both ways."""
    phrases: dict[str, list[tuple[str, ...]]] = {}
    said: dict[str, set[str]] = {}
    for number, raw in enumerate(text.splitlines(), 1):
        line = raw.partition("#")[0].strip()
        for source, target in _entries(line, f"{name} line {number}"):
            phrases.setdefault(source, []).append(target)
        left, _, right = (part.strip(" <=>").lower() for part in line.partition("=>"))
        said.setdefault(left, set()).add(right)
    alone = {word: each.pop() for word, each in said.items() if len(each) == 1}
    return Expansions(
        {word: tuple(dict.fromkeys(each)) for word, each in phrases.items()},
        {word: phrase for word, phrase in alone.items() if _is_short_for(word, phrase)},
    )


def _entries(line: str, place: str) -> Iterator[tuple[str, tuple[str, ...]]]:
    if not line:
        return
    left, arrow, right = line.partition("<=>") if "<=>" in line else line.partition("=>")
    word = [stem(part) for part in split_identifier(left)]
    phrases = [tuple(terms(part)) for part in right.split(",")]
    if not arrow or not word or not all(phrases):
        raise InvalidInput(f"{place}: expected `word => phrase, phrase`, found {line!r}.")
    if len(word) == 1:
        yield from ((word[0], phrase) for phrase in phrases)
    if arrow == "<=>":
        yield from ((phrase[0], tuple(word)) for phrase in phrases if len(phrase) == 1)


def _is_short_for(word: str, phrase: str) -> bool:
    """Return whether a word abbreviates a phrase: the phrase has its letters in order, as `kubernetes` has `k8s`."""
    letters, rest = [c for c in word if c.isalpha()], iter(phrase)
    short = word.isalnum() and 3 * len(word) <= 2 * len(phrase) + 1 and "," not in phrase
    return short and phrase.startswith(word[0]) and all(letter in rest for letter in letters)


class QueryTerm(NamedTuple):
    """One thing asked for: the term, its weight, and terms that may stand for it at less."""

    term: str
    weight: float
    instead: tuple[tuple[str, float], ...] = ()


class AnalysedQuery(NamedTuple):
    """A query read: the text for an embedder, the terms for an index, the identifiers for exact matches."""

    text: str
    terms: tuple[QueryTerm, ...]
    identifiers: tuple[str, ...]
    words: int
    reading: GlossedText | None = None
    """What the query says in English; None where it is English."""

    @property
    def is_glossed(self) -> bool:
        """Return whether the terms are those of a gloss."""
        return self.reading is not None and bool(self.reading.languages)


def analyse(text: str, expansions: Expansions | None = None) -> AnalysedQuery:
    """Read a query; nothing in it can make this fail."""
    return analyse_ask(asked_text(text), expansions)


@lru_cache(maxsize=MAX_REMEMBERED_TEXTS)
def analyse_ask(short: str, expansions: Expansions | None = None) -> AnalysedQuery:
    """Read what `asked_text` returns; the same request comes again to be explained, or when a page is turned."""
    reading = read_query(short)
    if reading is not None and reading.languages:
        return _analysed_reading(short, reading, expansions or shipped_expansions())
    asked, pasted = apart(short)
    weights = dict.fromkeys(terms(asked), 1.0)
    if pasted:
        weights |= {term: PASTED_WEIGHT for term in terms(pasted) if term not in weights}
    if not weights:
        weights = dict.fromkeys(terms(short), 1.0)
    given = expansions or shipped_expansions()
    found = [_asked(term, weight, given) for term, weight in islice(weights.items(), MAX_QUERY_TERMS)]
    words = short.split()
    return AnalysedQuery(short, tuple(found), _identifiers(short, words), len(words), reading)


def _analysed_reading(short: str, reading: GlossedText, expansions: Expansions) -> AnalysedQuery:
    """Analyse a query of another language by its English words."""
    asked, pasted = apart(short)
    of_asked = (read_query(asked) if pasted else None) or reading
    found: dict[str, QueryTerm] = {}
    for unit in of_asked.units:
        for term in _unit_terms(unit, expansions):
            found.setdefault(term.term, term)
    for word in terms(pasted):
        found.setdefault(word, QueryTerm(word, PASTED_WEIGHT))
    said = sum(not unit.function for unit in of_asked.units)
    every = tuple(islice(found.values(), MAX_QUERY_TERMS))
    return AnalysedQuery(short, every, _identifiers(short, short.split()), said, reading)


def _unit_terms(unit: Gloss, expansions: Expansions) -> list[QueryTerm]:
    """Return the first sense, with the others and the word itself beside it, for catalogs of its language."""
    if unit.function:
        return []
    native = terms(unit.text)
    if not unit.senses:
        return [QueryTerm(term, 1.0 if term.isascii() else UNREAD_WEIGHT) for term in native]
    first, *others = unit.senses
    first_terms = terms(first.english)
    if not first_terms:
        return []
    beside = [(term, SENSE_WEIGHT * sense.weight) for sense in others for term in terms(sense.english)]
    beside += [(term, 1.0) for term in native if not term.isascii()]
    head, *rest = [_asked(term, 1.0, expansions) for term in first_terms]
    kept = tuple(each for each in beside if each[0] not in first_terms)
    return [head._replace(instead=(*kept, *head.instead)), *rest]


def apart(text: str) -> tuple[str, str]:
    """Separate the request from pasted text, and drop text without readable words."""
    plainer = text.translate(_PLAINER)
    if not text.isascii():
        plainer += "0"  # other scripts have digits of their own
    signs = tuple([sign for sign in _PASTED if sign in plainer])
    pasted: list[str] = []

    def take(found: re.Match[str]) -> str:
        pasted.append(found[0].strip("<>{}\"'`"))
        return " "

    asked = _pasted_by(signs).sub(take, text) if signs else text
    if "0" not in signs:
        return asked, " ".join(pasted)
    return _OPAQUE.sub(" ", asked), _OPAQUE.sub(" ", " ".join(pasted))


@lru_cache(maxsize=256)
def _pasted_by(signs: tuple[str, ...]) -> re.Pattern[str]:
    return re.compile("|".join(_PASTED[sign] for sign in signs), re.IGNORECASE)


def ask_of(text: str) -> Ask:
    """Separate the request from pasted text; a short line is all request."""
    stripped = text.strip()
    if len(stripped) > SHORT or "\n" in stripped:
        return read_ask(stripped)
    is_last_said = stripped.isascii() and TAKING_BACK.isdisjoint(distinct_words(stripped))
    return Ask(stripped if is_last_said else last_said(stripped))


def may_err(mode: SearchMode, text: str) -> bool:
    """Return whether a text is read for typing errors: most begin with an action and have ordinary words alone."""
    is_plain = text.isascii() and text.partition(" ")[0].lower() in ACTIONS and not strange_words(text)
    return mode in CORRECTED and not is_plain


def query_of(ask: Ask) -> str:
    """Return the text to search by: the request, and the quoted paste if the request is vague."""
    if not ask.pasted or len(terms(ask.text)) >= SAYS_ENOUGH:
        return ask.text
    return f"{ask.text}\n{quoted(ask.pasted[:QUOTED_PASTE])}"


def asked_text(text: str) -> str:
    """Return what to search by: the text cleaned, without what was pasted into it."""
    return with_kinds(query_of(ask_of(typed_text(text))))


@lru_cache(maxsize=MAX_REMEMBERED_TEXTS)
def texts_to_embed(asked: str, expansions: Expansions | None = None, *, apart: bool = True) -> tuple[str, ...]:
    """Return what is asked as a model knows its words and, where these are several things, each of them.

    A query of another language has `READING_WEIGHTS` texts instead, which make one vector.
    """
    reading = read_query(asked)
    if reading is not None and reading.languages:
        return reading.readings
    spelled = (expansions or shipped_expansions()).spelled_out(asked)
    return (spelled, *clauses(spelled)) if apart else (spelled,)


def is_glossed(text: str) -> bool:
    """Return whether the texts to embed for what `asked_text` returned are glosses of it."""
    reading = read_query(text)
    return reading is not None and bool(reading.languages)


def clauses(text: str) -> tuple[str, ...]:
    """Return the parts of a query that asks for several things, or for one with something quoted below it."""
    if not _may_break(text, _CLAUSE_WORDS):
        return ()
    parts = [part.strip() for part in _CLAUSE_END.split(clean_text(text)) if len(part.split()) >= MIN_CLAUSE_WORDS]
    asking = [part for part in parts if not _QUOTED.fullmatch(part)]
    if len(text) > MOST_CHARS:
        asking = gathered(asking, PART_CHARS)
    return tuple(asking[:MAX_CLAUSES]) if len(parts) > 1 else ()


def _identifiers(text: str, words: list[str]) -> tuple[str, ...]:
    spelled = dict.fromkeys(chain.from_iterable(map(_spelled, words)) if _INSIDE_A_NAME.search(text) else ())
    if " " not in (stripped := text.strip()) and (whole := compact(stripped)):
        spelled[whole] = None
    return tuple(spelled)


@lru_cache(maxsize=MAX_REMEMBERED_WORDS)
def _spelled(word: str) -> tuple[str, ...]:
    """Return the names that stand in a word; queries are made of the same few words, and most hold none."""
    return tuple(filter(None, map(compact, _IDENTIFIER.findall(word))))


@lru_cache(maxsize=MAX_REMEMBERED_WORDS)
def _asked(term: str, weight: float, expansions: Expansions) -> QueryTerm:
    """Add the synonyms of a term."""
    phrases = expansions.phrases.get(term, ())
    guesses = [(word, weight * EXPANSION_WEIGHT / len(phrase) ** 0.5) for phrase in phrases for word in phrase]
    return QueryTerm(term, weight, tuple(guesses))


class Wish(NamedTuple):
    """One thing that is asked for; `about` is what it refers to: an earlier wish, or earlier turns."""

    text: str
    about: str = ""
    said: str = ""
    """Its English gloss, where its language cannot be told from it alone."""

    @property
    def query(self) -> str:
        """Return the text to search by."""
        asked = self.said or self.text
        return f"{asked}\n{quoted(self.about)}" if self.says_little else asked

    @property
    def says_little(self) -> bool:
        """Return whether the wish needs what it refers to: "pin it" does, "mail it to Ruth" does not."""
        return bool(self.about) and (
            len(terms(self.said or glossed(self.text) or self.text)) < MIN_WORDS or bool(_ONE.search(self.text))
        )


@lru_cache(maxsize=MAX_REMEMBERED_TEXTS)
def wishes(text: str) -> tuple[Wish, ...]:
    """Split a request into wishes; empty if it asks for one thing, or describes a task at length."""
    if len(text) > MOST_CHARS:
        return ()
    may_be_list = not text.isprintable() or _has_any(text, _LIST_SIGNS)
    if not may_be_list and not _may_break(text, _JOINT_WORDS):
        return ()
    asked, context = without_quotes(text) if '"' in text else (text, "")
    asked = _FIRST.sub("", asked)
    listed = _NUMBER.sub("\n", asked) if may_be_list and len(_NUMBER.findall(asked)) > 1 else asked
    pieces = split_outside_quotes(_JOINT, listed)
    parts = foreign_parts(listed, _is_wish) or list(map(Part, _joined(pieces[::2], pieces[1::2])))
    if not 1 < len(parts) <= MAX_WISHES:
        return ()
    found: list[Wish] = []
    for part, said in parts:
        before = found[-1].text if found else context
        found.append(Wish(part, before if _POINTS.search(said or glossed(part) or part) else "", said))
    return tuple(found)


def _joined(pieces: Sequence[str], joints: Sequence[str]) -> list[str]:
    """Join pieces that are not wishes by themselves; the sentences before the first wish belong to it."""
    parts: list[str] = []
    for number, text in enumerate(map(str.strip, pieces)):
        if not text:
            continue
        if parts and (not _is_wish(text) or _asks_for(f"{parts[-1]}{joints[number - 1]}", text)):
            parts[-1] = f"{parts[-1]}{joints[number - 1]}{text}"
        elif len(parts) == 1 and not any(map(_is_wish, _SENTENCE.split(parts[0]))):
            parts[0] = f"{parts[0]}{joints[number - 1]}{text}"
        else:
            parts.append(text)
    return [part.strip(" ,;") for part in parts]


def _asks_for(need: str, text: str) -> bool:
    """Return whether a question is about the need before it: "I want to cook tonight. Can you find a recipe?"."""
    asks = _NEED.search(need) and not _NEED.match(text) and (_QUESTION.match(text) or _ASKS.match(text))
    return bool(asks) and not _MORE.search(f"{need[-8:]}{text}")


def _is_wish(text: str) -> bool:
    first = FIRST_WORD.match(text)
    says_enough = _POINTS.search(text) or len(terms(text)) >= MIN_WORDS or CHANNEL.search(text)
    acts = first and first[1].lower() in ACTIONS and says_enough
    return bool(acts or (_ASKS.match(text) and terms(text)))


def _may_break(text: str, words: frozenset[str]) -> bool:
    """Return whether a text may have several parts: it is no plain line, or a sign or one of some words joins them."""
    plain = text.isascii() and text.isprintable()
    return not plain or not words.isdisjoint(distinct_words(text)) or _has_any(text, _BREAKS)


def _has_any(text: str, signs: Sequence[str]) -> bool:
    return any(map(text.__contains__, signs))
