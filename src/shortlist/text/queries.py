"""A query as weighted terms: what is asked counts, what was pasted into it hardly does."""

import re
from functools import lru_cache
from itertools import chain, islice
from typing import NamedTuple

from shortlist.text.asks import read_ask
from shortlist.text.clean import clean_text
from shortlist.text.expansions import Expansions, Phrases, shipped_expansions
from shortlist.text.languages.glossing import Gloss
from shortlist.text.languages.reading import GlossedText, read_query
from shortlist.text.tokens import compact, terms

MAX_QUERY_TERMS = 160

PASTED_WEIGHT = 0.35
"""Words inside placeholders, paths, links and quotes: arguments more often than the thing asked for."""
EXPANSION_WEIGHT = 0.45
"""A synonym is a guess; the word itself is not."""
SENSE_WEIGHT = 0.6
"""What another English word for the same foreign one counts, by how likely it is meant."""
UNREAD_WEIGHT = 0.3
"""A word of another script that no lexicon has: in an English catalog it stands for nothing."""

MAX_REMEMBERED_WORDS = 4_096
MAX_CLAUSES = 8
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
    "'": r"(?<!\w)'[^'\n]{1,200}'(?!\w)",
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
# Every way a clause ends begins with white space or a comma, which the engine can skip to.
_CLAUSE_END = re.compile(
    r"[\s,](?:(?<=[.!?;]\s)\s*|(?<=\n)\n*|(?:(?<=\s)\s*|\s+)(?:and then|then|and also|also|after that|finally|next)\s+"
    r"|(?<=,)\s+and\s+)",
    re.IGNORECASE,
)
_QUOTED = re.compile(r"(?:\"[^\"]*\"\s*)+")
_CLAUSE_SIGNS = (". ", "! ", "? ", "; ", ", ", "then", "also", "after", "finally", "next")
"""No clause of a plain line ends without one of these."""


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


def analyse(text: str, expansions: Expansions | None = None) -> AnalysedQuery:
    """Read a query; nothing in it can make this fail."""
    short = read_ask(clean_text(text)).query
    reading = read_query(short)
    if reading is not None and reading.languages:
        return _analysed_reading(short, reading, expansions or shipped_expansions())
    asked, pasted = _apart(short)
    weights = dict.fromkeys(terms(asked), 1.0)
    if pasted:
        weights |= {term: PASTED_WEIGHT for term in terms(pasted) if term not in weights}
    if not weights:
        weights = dict.fromkeys(terms(short), 1.0)
    phrases = (expansions or shipped_expansions()).phrases.get
    found = [_asked(term, weight, phrases(term)) for term, weight in islice(weights.items(), MAX_QUERY_TERMS)]
    words = short.split()
    return AnalysedQuery(short, tuple(found), _identifiers(short, words), len(words), reading)


def _analysed_reading(short: str, reading: GlossedText, expansions: Expansions) -> AnalysedQuery:
    """Analyse a query of another language by its English words."""
    asked, pasted = _apart(short)
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
    head, *rest = [_asked(term, 1.0, expansions.phrases.get(term)) for term in first_terms]
    kept = tuple(each for each in beside if each[0] not in first_terms)
    return [head._replace(instead=(*kept, *head.instead)), *rest]


def _apart(text: str) -> tuple[str, str]:
    """Part what asks from what was pasted into it, less what no word can be read from."""
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


def texts_to_embed(text: str, expansions: Expansions | None = None, *, apart: bool = True) -> tuple[str, ...]:
    """Return the query as a model knows its words and, where it asks for several things, each of them."""
    asked = read_ask(clean_text(text)).query
    reading = read_query(asked)
    if reading is not None and reading.languages:
        return (reading.text, *reading.clauses) if apart else (reading.text,)
    spelled = (expansions or shipped_expansions()).spelled_out(asked)
    return (spelled, *clauses(spelled)) if apart else (spelled,)


def clauses(text: str) -> tuple[str, ...]:
    """Return the parts of a query that asks for several things, or for one with something quoted below it."""
    if text.isascii() and text.isprintable() and not any(map(text.lower().__contains__, _CLAUSE_SIGNS)):
        return ()
    parts = [part.strip() for part in _CLAUSE_END.split(clean_text(text)) if len(part.split()) >= MIN_CLAUSE_WORDS]
    asking = [part for part in parts if not _QUOTED.fullmatch(part)]
    return tuple(asking[:MAX_CLAUSES]) if len(parts) > 1 else ()


def _identifiers(text: str, words: list[str]) -> tuple[str, ...]:
    spelled = dict.fromkeys(chain.from_iterable(map(_spelled, words)))
    if " " not in (stripped := text.strip()) and (whole := compact(stripped)):
        spelled[whole] = None
    return tuple(spelled)


@lru_cache(maxsize=MAX_REMEMBERED_WORDS)
def _spelled(word: str) -> tuple[str, ...]:
    """Return the names that stand in a word; queries are made of the same few words, and most hold none."""
    return tuple(filter(None, map(compact, _IDENTIFIER.findall(word))))


@lru_cache(maxsize=MAX_REMEMBERED_WORDS)
def _asked(term: str, weight: float, phrases: Phrases | None) -> QueryTerm:
    """Put what may stand for a term beside it."""
    guesses = [(word, weight * EXPANSION_WEIGHT / len(phrase) ** 0.5) for phrase in phrases or () for word in phrase]
    return QueryTerm(term, weight, tuple(guesses))
