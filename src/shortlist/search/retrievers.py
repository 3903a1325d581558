"""The arms: each scores every row for a request, usable alone and in any mix."""

import math
from collections import defaultdict
from collections.abc import Callable
from functools import lru_cache
from itertools import islice

import numpy as np
import re2
from numpy.typing import NDArray
from rapidfuzz import fuzz, process
from rapidfuzz.distance import DamerauLevenshtein

from shortlist.errors import InvalidQuery
from shortlist.index.index import Index
from shortlist.index.lexical import SATURATION, LexicalIndex
from shortlist.models import Scores
from shortlist.search.matches import Match, Matches
from shortlist.search.request import Request
from shortlist.text.clean import fold
from shortlist.text.queries import QueryTerm
from shortlist.text.tokens import compact, words

TYPO_WEIGHT = 0.7
"""A corrected word is less sure than one that stands in the catalog as it was typed."""
MIN_TYPO_LENGTH = 4
MAX_CORRECTIONS = 3
MAX_REMEMBERED_TERMS = 10_000
MAX_REMEMBERED_ROWS = 2_000_000
"""Of all remembered terms together: forty megabytes, however large the catalog."""
FUZZY_CUTOFF = 60.0
MAX_PATTERN_CHARS = 1_000


class Speller:
    """Finds the catalog's nearest words for one it does not have; first letters are rarely mistyped."""

    def __init__(self, index: LexicalIndex) -> None:
        self._index = index
        self._version = -1
        self._grouped = 0
        self._alike: dict[tuple[str, int], list[str]] = defaultdict(list)
        self.corrections = lru_cache(maxsize=2_000)(self._corrections)

    def __call__(self, term: str) -> tuple[str, ...]:
        """Give the most common among the nearest words of the catalog."""
        if self._index.version != self._version:
            self._follow()
        return self.corrections(term)

    def _follow(self) -> None:
        """Take up the words that are new; those that left are still there, and passed over."""
        for word in islice(self._index.vocabulary, self._grouped, None):
            if word.isalpha():
                self._alike[word[0], len(word)].append(word)
        self._grouped, self._version = len(self._index.vocabulary), self._index.version
        self.corrections.cache_clear()

    def _corrections(self, term: str) -> tuple[str, ...]:
        if len(term) < MIN_TYPO_LENGTH or not term.isalpha():
            return ()
        reach = 1 if len(term) < 6 else 2
        near = [
            (distance, -self._index.frequency(word), word)
            for length in range(len(term) - reach, len(term) + reach + 1)
            for word, distance, _ in process.extract(
                term,
                self._alike.get((term[0], length), ()),
                scorer=DamerauLevenshtein.distance,
                score_cutoff=reach,
                limit=None,
            )
            if self._index.frequency(word)
        ]
        closest = min(near, default=(0,))[0]
        return tuple(word for distance, _, word in sorted(near)[:MAX_CORRECTIONS] if distance == closest)


class LexicalRetriever:
    """BM25F over the fields; a word that has stand-ins counts once, by the best of them."""

    def __init__(self, index: Index) -> None:
        self._index = index
        self.speller = Speller(index.lexical)
        self._latest: tuple[Request, Matches] | None = None
        self._forget()

    def __call__(self, request: Request) -> Scores:
        return _masked(self.look_up(request).scores(self._index.lexical.size), request.mask)

    def look_up(self, request: Request) -> Matches:
        """Give what answers the terms of a request; words come again, so they are remembered."""
        if self._version != self._index.lexical.version:
            self._forget()
        latest = self._latest
        if latest is None or latest[0] is not request:
            latest = self._latest = (request, Matches.of(request.analysed.terms, self._remembered(request)))
        return latest[1]

    def _remembered(self, request: Request) -> list[Match]:
        if len(self._matches) > MAX_REMEMBERED_TERMS or self._rows > MAX_REMEMBERED_ROWS:
            self._forget()
        known = self._matches.get
        return [known(asked) or self._match(asked) for asked in request.analysed.terms]

    def _match(self, asked: QueryTerm) -> Match:
        self._matches[asked] = found = Match.of(self._index.lexical, asked, self.stand_ins(asked))
        self._rows += found.worth.shape[1]
        return found

    def _forget(self) -> None:
        self._version, self._latest = self._index.lexical.version, None
        self._matches: dict[QueryTerm, Match] = {}
        self._rows = 0

    def stand_ins(self, asked: QueryTerm) -> tuple[tuple[str, float], ...]:
        """Give the terms to look for, with their weights: the word, its synonyms, or its likely spellings."""
        frequency = self._index.lexical.frequency
        known = tuple((t, w) for t, w in asked.instead if frequency(t)) if asked.instead else ()
        if frequency(asked.term):
            return ((asked.term, asked.weight), *known)
        return known or tuple((t, asked.weight * TYPO_WEIGHT) for t in self.speller(asked.term))


class DenseRetriever:
    """Exact cosine between the query's vector and every tool's.

    A query that asks for several things is near to none of their tools as a whole: half of a tool's score is
    then its cosine with the part that is nearest to it.
    """

    def __init__(self, index: Index) -> None:
        self._index = index

    def __call__(self, request: Request) -> Scores:
        dense = self._index.dense
        if dense is None or request.vectors is None:
            return np.zeros(self._index.lexical.size, np.float32)
        whole, *parts = dense.scores(request.vectors)
        cosines = (whole + np.max(parts, axis=0)) / 2 if parts else whole
        return _masked(cosines, request.mask)


class TfIdfRetriever:
    """TF-IDF cosine over all words alike, for comparison."""

    def __init__(self, plain: LexicalIndex) -> None:
        self._plain = plain
        self._norms = self._row_norms()

    def __call__(self, request: Request) -> Scores:
        scores = np.zeros(self._plain.size, np.float32)
        for asked in request.analysed.terms:
            postings = self._plain.postings(asked.term)
            idf = self._plain.idf(asked.term)
            scores[postings.rows] += np.float32(idf * idf) * _log_frequency(postings.weights)
        return _masked(scores / self._norms, request.mask)

    def _row_norms(self) -> NDArray[np.float32]:
        squares = np.zeros(self._plain.size, np.float32)
        for term in self._plain.vocabulary:
            postings = self._plain.postings(term)
            squares[postings.rows] += (np.float32(self._plain.idf(term)) * _log_frequency(postings.weights)) ** 2
        return np.sqrt(np.maximum(squares, 1e-9))


class PlainRetriever:
    """BM25 over all words alike: the arm that published hybrids mix with TF-IDF."""

    def __init__(self, plain: LexicalIndex) -> None:
        self._plain = plain

    def __call__(self, request: Request) -> Scores:
        scores = np.zeros(self._plain.size, np.float32)
        for asked in request.analysed.terms:
            postings = self._plain.postings(asked.term)
            scores[postings.rows] += np.float32(self._plain.idf(asked.term)) * postings.weights
        return _masked(scores, request.mask)


class NameRetriever:
    """Matches on the tool's name alone, by a test of the name that is given."""

    def __init__(self, index: Index, match: Callable[[str], Callable[[str], float]]) -> None:
        self._index = index
        self._match = match

    def __call__(self, request: Request) -> Scores:
        scores = np.zeros(self._index.lexical.size, np.float32)
        score = self._match(request.query.text)
        for row in self._index.rows.values():
            scores[row] = score(self._index.tool(row).name)
        return _masked(scores, request.mask)


def exact_match(text: str) -> Callable[[str], float]:
    """Accept a name in any spelling of its case and separators."""
    wanted = compact(text)
    return lambda name: float(bool(wanted) and compact(name) == wanted)


def prefix_match(text: str) -> Callable[[str], float]:
    """Prefer the shortest of the names that start so."""
    wanted = compact(text)
    return lambda name: len(wanted) / len(compact(name)) if wanted and compact(name).startswith(wanted) else 0.0


def fuzzy_match(text: str) -> Callable[[str], float]:
    """Forgive typing errors and word order."""
    wanted = " ".join(fold(text).split())[:200]

    def score(name: str) -> float:
        return (
            max(
                fuzz.token_sort_ratio(wanted, words(name), score_cutoff=FUZZY_CUTOFF),
                fuzz.ratio(compact(wanted), compact(name), score_cutoff=FUZZY_CUTOFF),
            )
            / 100
        )

    return score


class RegexRetriever:
    """A pattern over names and descriptions, by an engine whose time grows with the text alone."""

    def __init__(self, index: Index) -> None:
        self._index = index

    def __call__(self, request: Request) -> Scores:
        pattern = _compiled(request.query.text)
        scores = np.zeros(self._index.lexical.size, np.float32)
        for row in self._index.rows.values():
            tool = self._index.tool(row)
            found = pattern.search(tool.name) or pattern.search(tool.id)
            scores[row] = 1.0 if found else 0.5 * bool(pattern.search(tool.description))
        return _masked(scores, request.mask)


def _compiled(pattern: str) -> "re2._Regexp":
    if len(pattern) > MAX_PATTERN_CHARS:
        raise InvalidQuery(f"A pattern may have {MAX_PATTERN_CHARS} characters; this one has {len(pattern)}.")
    options = re2.Options()
    options.case_sensitive, options.log_errors, options.max_mem = False, False, 8 << 20
    try:
        return re2.compile(pattern, options)
    except (re2.error, ValueError) as error:
        reason = error.args[0].decode() if error.args and isinstance(error.args[0], bytes) else error
        raise InvalidQuery(f"{pattern!r} is not a pattern (RE2 syntax, no look-around): {reason}") from None


def _log_frequency(saturated: NDArray[np.float32]) -> NDArray[np.float32]:
    frequency = SATURATION * saturated / (SATURATION + 1 - saturated)
    return 1 + np.log(np.maximum(frequency, math.exp(-1) + 1e-6))


def _masked(scores: Scores, mask: NDArray[np.bool_] | None) -> Scores:
    if mask is None:
        return scores
    masked: Scores = np.where(mask, scores, np.float32(0))
    return masked
