"""Exact BM25F over weighted fields: sparse, explainable, updated instead of rebuilt.

A stored weight depends on its own document alone (lengths are compared with fixed references, not with the collection's
average), and idf comes from live counts at query time. So adding, changing or removing one tool touches that tool only,
and the result equals a fresh build.
"""

import math
import threading
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from itertools import chain, islice
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from shortlist.index.ports import Among, Candidates, Rows
from shortlist.index.postings import (
    NAME_BIT,
    NO_POSTINGS,
    SERVER_BIT,
    FieldWeight,
    Forward,
    Inverted,
    Postings,
)
from shortlist.index.vectors import best, masked
from shortlist.models import Scores
from shortlist.text.documents import FIELDS, Document, Field
from shortlist.text.queries import QueryTerm

Lines: TypeAlias = NDArray[np.float32]
StandIns: TypeAlias = Callable[[QueryTerm], Sequence[tuple[str, float]]]
"""From a term of the query to the terms of the catalog to look for in its place, with their weights."""

MERGE_SHARE = 0.1
"""Once this share of the rows came by updates, they are merged into the main arrays."""
MAX_REMEMBERED_TERMS = 10_000
MAX_REMEMBERED_ROWS = 2_000_000
"""The limit for all cached terms together: 40 MB, whatever the size of the catalog."""
SCORE_AND_GAINS = 5
"""What a match is worth to a row: its score, and how telling it is, if it stands there at all, in the name, in the
server's name; and, between these two, what part of the name it is."""
FEW_ROWS = 2_000
"""In a catalog of no more, a match has a column for every row: adding up is faster than gathering."""

# Between what coordinate descent on the training sets liked and what is known to work: names first, prose next.
FIELD_WEIGHTS: Mapping[Field, FieldWeight] = {
    "name": FieldWeight(2.4, 0.5, 3.5),
    "title": FieldWeight(1.5, 0.5, 3.5),
    "labels": FieldWeight(0.8, 0.5, 6.0),
    "description": FieldWeight(0.85, 0.8, 20.0),
    "parameters": FieldWeight(0.5, 0.5, 5.0),
    "parameter_text": FieldWeight(0.4, 0.9, 25.0),
    "server": FieldWeight(1.0, 0.5, 2.5),
    "server_text": FieldWeight(0.3, 0.7, 15.0),
    "boilerplate": FieldWeight(0.15, 0.7, 15.0),
}


@dataclass(frozen=True, slots=True)
class FieldFilter:
    """Passes terms that stand in some of these fields and in none of those, each given as bits."""

    some: np.uint16
    none: np.uint16

    def passing(self, fields: NDArray[np.uint16]) -> NDArray[np.bool_]:
        found: NDArray[np.bool_] = ((fields & self.some) > 0) & ((fields & self.none) == 0)
        return found


class Vocabulary(dict[str, int]):
    """Numbers for terms. Terms are only ever added, so all versions of an index share one vocabulary."""

    def __init__(self, terms: Iterable[tuple[str, int]] = ()) -> None:
        super().__init__(terms)
        self._alike: dict[tuple[str, int], list[str]] = defaultdict(list)
        self._grouped = 0
        self._grouping = threading.Lock()

    def __missing__(self, term: str) -> int:
        number = self[term] = len(self)
        return number

    def alike(self, first: str, length: int) -> Sequence[str]:
        """Return the words of a length that begin with a letter, also those that no row holds any more."""
        if self._grouped < len(self):
            with self._grouping:
                for word in list(islice(self, self._grouped, None)):
                    if word.isalpha():
                        self._alike[word[0], len(word)].append(word)
                    self._grouped += 1
        return self._alike.get((first, length), ())


class ExactLexicalIndex:
    """Documents by row, as a value: `changed` and `compacted` return new indexes that share the arrays they can.

    Rows are never reused until `compacted`, so that they can be shared with other indexes.
    """

    def __init__(
        self,
        main: Forward,
        alive: NDArray[np.bool_],
        vocabulary: Vocabulary,
        weights: Mapping[Field, FieldWeight] = FIELD_WEIGHTS,
        inverted: Inverted | None = None,
        name_sizes: NDArray[np.float32] | None = None,
    ) -> None:
        self.vocabulary = vocabulary
        self.alive = alive
        self.counted = alive
        """The rows that make their terms known and frequent."""
        self.live = int(np.count_nonzero(alive))
        self.name_sizes = main.name_sizes() if name_sizes is None else name_sizes
        """How many terms the name of each row has, one at least."""
        self._field_weights = weights
        self._main = main
        self._inverted = inverted or main.inverted(len(vocabulary), alive)
        self._frequency = self._inverted.frequencies()
        self._late = Forward.empty()
        """The rows that came by updates, after the main ones; `_late_postings` has them by term."""
        self._late_postings: dict[int, list[tuple[int, float, int]]] = {}
        self._forget()

    @classmethod
    def build(
        cls, documents: Iterable[Document], weights: Mapping[Field, FieldWeight] = FIELD_WEIGHTS
    ) -> "ExactLexicalIndex":
        vocabulary = Vocabulary()
        main = _weigh(documents, vocabulary, weights)
        return cls(main, np.ones(main.count, np.bool_), vocabulary, weights)

    @property
    def size(self) -> int:
        """How many rows there are, removed ones included."""
        return len(self.alive)

    def changed(self, gone: Sequence[int], documents: Sequence[Document]) -> "ExactLexicalIndex":
        """Return the index without some rows and with new documents at its end."""
        added = _weigh(documents, self.vocabulary, self._field_weights)
        alive = np.concatenate([self.alive, np.ones(added.count, np.bool_)])
        alive[list(gone)] = False
        late = self._late.extended(added)
        if late.count > max(64, MERGE_SHARE * len(alive)):
            return ExactLexicalIndex(self._main.extended(late), alive, self.vocabulary, self._field_weights)
        newer = object.__new__(ExactLexicalIndex)
        newer.vocabulary, newer.alive, newer.counted = self.vocabulary, alive, alive
        newer.live = int(np.count_nonzero(alive))
        newer.name_sizes = np.concatenate([self.name_sizes, added.name_sizes()])
        newer._field_weights, newer._main, newer._inverted = self._field_weights, self._main, self._inverted
        newer._late = late
        newer._frequency = self._counted(gone, added)
        newer._late_postings = _extended(self._late_postings, added, self.size)
        newer._forget()
        return newer

    def compacted(self) -> "ExactLexicalIndex":
        """Drop the rows that were removed; those that are left move up."""
        main = self._main.extended(self._late).only(np.flatnonzero(self.alive))
        return ExactLexicalIndex(main, np.ones(self.live, np.bool_), self.vocabulary, self._field_weights)

    def idf(self, term: str) -> float:
        """Return the IDF of a term; it is highest for a term that the catalog does not have."""
        frequency = self.frequency(term)
        return math.log1p((self.live - frequency + 0.5) / (frequency + 0.5))

    def frequency(self, term: str) -> int:
        number = self.vocabulary.get(term)
        return 0 if number is None or number >= len(self._frequency) else int(self._frequency[number])

    def postings(self, term: str) -> Postings:
        number = self.vocabulary.get(term)
        return NO_POSTINGS if number is None else self._postings(number)

    def _postings(self, number: int) -> Postings:
        main = self._main_postings(number)
        late = self._late_postings.get(number)
        if not late:
            return main
        rows, weights, fields = zip(*late, strict=True)
        return Postings(
            np.concatenate([main.rows, np.array(rows, np.int64)]),
            np.concatenate([main.weights, np.array(weights, np.float32)]),
            np.concatenate([main.fields, np.array(fields, np.uint16)]),
        )

    def _main_postings(self, number: int) -> Postings:
        starts, every = self._inverted.starts, self._inverted.all
        if number + 1 >= len(starts):
            return NO_POSTINGS
        start, end = starts[number : number + 2].tolist()
        return Postings(every.rows[start:end], every.weights[start:end], every.fields[start:end])

    def terms_of(self, row: int) -> NDArray[np.int32]:
        part, start, end = self._place(row)
        return part.terms[start:end]

    def fields_of(self, row: int) -> tuple[NDArray[np.int32], NDArray[np.uint16]]:
        """Return the terms of a row, and a bit for each of the fields that they are in."""
        part, start, end = self._place(row)
        return part.terms[start:end], part.fields[start:end]

    def weights_of(self, row: int) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
        """Return the terms of a row, and the saturated weight of each."""
        part, start, end = self._place(row)
        return part.terms[start:end], part.weights[start:end]

    def term_counts(self, fields: FieldFilter) -> NDArray[np.int64]:
        """Return how many terms each row has in some fields."""
        parts = (self._main, self._late)
        return np.concatenate([part.counts(fields.passing(part.fields)) for part in parts])

    def rows_holding(self, terms: Iterable[int], fields: FieldFilter | None = None) -> NDArray[np.int64]:
        """Return how many of some terms each row holds, in any field or in these; removed rows may be counted too."""
        found = [self._postings(number) for number in terms]
        rows = [each.rows if fields is None else each.rows[fields.passing(each.fields)] for each in found]
        return np.bincount(np.concatenate([np.empty(0, np.int64), *rows]), minlength=self.size)

    def uncounted(self, rows: Rows) -> "ExactLexicalIndex":
        """Return the same index for searching, in which some rows do not make their terms known or frequent."""
        view = copy(self)
        view.live = self.live - len(rows)
        view.counted = self.alive.copy()
        view.counted[rows] = False
        main = self._main.count
        parts = self._main.only(rows[rows < main]), self._late.only(rows[rows >= main] - main)
        size = len(self._frequency)
        terms, fields = (np.concatenate([getattr(part, name) for part in parts]) for name in ("terms", "fields"))
        others = self._frequency - np.bincount(terms, minlength=size).astype(np.int32)
        named = np.bincount(terms[fields & SERVER_BIT != 0], minlength=size)
        only_named = np.minimum(named, view.live).astype(np.int32)  # a server's name is the user's word: it stays known
        view._frequency = np.where(others > 0, others, only_named)
        view._forget()
        return view

    def fills(self, row: int, field: Field) -> bool:
        """Return whether a row has words in a field."""
        filled = self._filled.get(row)
        if filled is None:
            part, start, end = self._place(row)
            filled = self._filled[row] = int(np.bitwise_or.reduce(part.fields[start:end]))
        return bool(filled & (1 << FIELDS.index(field)))

    def match(self, terms: Sequence[QueryTerm], stand_ins: StandIns) -> "Matches":
        """Look up the terms of a query; terms recur, so what answers each is remembered."""
        if len(self._matches) > MAX_REMEMBERED_TERMS or self._remembered_rows > MAX_REMEMBERED_ROWS:
            self._forget()
        known = self._matches.get
        return Matches.of(terms, [known(asked) or self._match(asked, stand_ins(asked)) for asked in terms], self)

    def retrieve(self, query: "Matches", limit: int, among: Among) -> Candidates:
        """Return the rows that match best."""
        scores = masked(query.scores, among.rows)
        rows = best(scores, limit)
        return Candidates(rows, scores[rows], int(np.count_nonzero(scores)), every=query.scores)

    def score(self, query: "Matches", rows: Rows) -> Scores:
        return query.scores[rows]

    def state(self) -> dict[str, NDArray[Any]]:
        """Return the arrays to save; the vocabulary goes beside them."""
        whole = self
        if self._late.count:
            whole = ExactLexicalIndex(self._main.extended(self._late), self.alive, self.vocabulary, self._field_weights)
        own = {"alive": self.alive, "name_sizes": self.name_sizes}
        return {**whole._main.state(), **whole._inverted.state(), **own}

    @classmethod
    def restore(cls, vocabulary: Sequence[str], arrays: Mapping[str, NDArray[Any]]) -> "ExactLexicalIndex":
        """Return a saved index; its arrays are used as they are and may lie in mapped files."""
        words = Vocabulary(zip(vocabulary, range(len(vocabulary)), strict=True))
        parts = Forward.restore(arrays), arrays["alive"], words
        return cls(*parts, inverted=Inverted.restore(arrays), name_sizes=arrays["name_sizes"])

    def _place(self, row: int) -> tuple[Forward, int, int]:
        main = len(self._main.starts) - 1
        part, row = (self._main, row) if row < main else (self._late, row - main)
        start, end = part.starts[row : row + 2].tolist()
        return part, start, end

    def _match(self, asked: QueryTerm, stand_ins: Sequence[tuple[str, float]]) -> "Match":
        self._matches[asked] = found = Match.of(self, asked, stand_ins)
        self._remembered_rows += found.worth.shape[1]
        return found

    def _forget(self) -> None:
        self._matches: dict[QueryTerm, Match] = {}
        self._remembered_rows = 0
        self._filled: dict[int, int] = {}
        """By row that was a first hit, a bit for each field that has words."""

    def _counted(self, gone: Sequence[int], added: Forward) -> NDArray[np.int32]:
        frequency = np.zeros(max(len(self.vocabulary), len(self._frequency)), np.int32)
        frequency[: len(self._frequency)] = self._frequency
        for row in gone:
            if self.alive[row]:
                frequency[self.terms_of(row)] -= 1
        np.add.at(frequency, added.terms, 1)
        return frequency


def _extended(
    postings: dict[int, list[tuple[int, float, int]]], added: Forward, size: int
) -> dict[int, list[tuple[int, float, int]]]:
    """Add rows to postings; lists that grow are copied, since an older index may be reading them."""
    newer, own = dict(postings), set[int]()
    for offset in range(added.count):
        for term, weight, fields in added.entries(offset):
            if term not in own:
                newer[term] = list(newer.get(term, ()))
                own.add(term)
            newer[term].append((size + offset, weight, fields))
    return newer


def _weigh(documents: Iterable[Document], vocabulary: Vocabulary, weights: Mapping[Field, FieldWeight]) -> Forward:
    """Turn documents into one saturated weight for each row and term."""
    counts = list[int]()

    def fields() -> Iterator[Sequence[str]]:
        for document in documents:
            found = [document[field] for field in FIELDS]
            counts.extend(map(len, found))
            yield from found

    terms = np.fromiter(map(vocabulary.__getitem__, chain.from_iterable(fields())), np.int64)
    return Forward.weigh(terms, np.array(counts, np.int64), weights, len(vocabulary))


class Match(NamedTuple):
    """The rows that have one term of the query, or a term that may stand for it."""

    rows: Rows | None
    """None where every row has a column."""
    worth: Lines
    """A column for each row."""
    telling: float
    """The IDF of the term times its weight in the query."""

    @classmethod
    def of(cls, index: ExactLexicalIndex, asked: QueryTerm, stand_ins: Sequence[tuple[str, float]]) -> "Match":
        telling = asked.weight * index.idf(asked.term)
        if not stand_ins:
            return NO_MATCH._replace(telling=telling)
        found = [index.postings(term) for term, _ in stand_ins]
        each = [
            _worth(postings, weight * index.idf(term), weight / asked.weight)
            for postings, (term, weight) in zip(found, stand_ins, strict=True)
        ]
        rows, (scores, anywhere, name, server) = _best([postings.rows for postings in found], each)
        part_of_name = name / index.name_sizes[rows]
        worth = np.array([scores, telling * anywhere, telling * name, part_of_name, telling * server], np.float32)
        if index.size > FEW_ROWS:
            return cls(rows, worth, telling)
        return cls(None, _in_every_row(rows, worth, index.size), telling)


NO_MATCH = Match(np.empty(0, np.int64), np.empty((SCORE_AND_GAINS, 0), np.float32), 0.0)


class Matches(NamedTuple):
    """The matches of all terms of a query: added up in a small catalog, else one after the other."""

    rows: Rows | None
    """None where every row has a column, and all that was found is added up in it."""
    worth: Lines
    telling: float
    unknown: float
    """The share of the terms, by weight, that nothing answers."""
    scores: Scores
    """The score of every row."""

    @classmethod
    def of(cls, terms: Sequence[QueryTerm], matches: Sequence[Match], index: ExactLexicalIndex) -> "Matches":
        """Add up what answers the terms."""
        if not terms:
            return UNREAD._replace(unknown=1.0, scores=np.zeros(index.size, np.float32))
        found: list[Match] = []
        telling = asked = unanswered = 0.0
        for (_, weight, _), match in zip(terms, matches, strict=True):
            telling += match.telling
            asked += weight
            if match.worth.size:
                found.append(match)
            else:
                unanswered += weight
        rows, worth = _together(found)
        scores: Scores = worth[0]
        if rows is not None:
            scores = np.zeros(index.size, np.float32)
            np.add.at(scores, rows, worth[0])
        return cls(rows, worth, telling, unanswered / asked, scores)

    def gains(self, rows: Rows, size: int) -> Lines:
        """Return what each of some rows gains, one column per row."""
        if self.rows is None:
            return self.worth[1:].take(rows, axis=1)
        place = np.full(size, -1)
        place[rows] = np.arange(len(rows))
        at = place[self.rows]
        (here,) = (at >= 0).nonzero()
        gains = SCORE_AND_GAINS - 1
        cells = at[here] + len(rows) * np.arange(gains)[:, None]
        summed = np.bincount(cells.ravel(), self.worth[1:].take(here, axis=1).ravel(), gains * len(rows))
        return summed.astype(np.float32).reshape(gains, len(rows))


UNREAD = Matches(NO_MATCH.rows, NO_MATCH.worth, 0.0, 0.0, np.empty(0, np.float32))
"""Placeholder for a query without lexical lookup: an ablation, or dense search only."""


def _together(matches: Sequence[Match]) -> tuple[Rows | None, Lines]:
    if not matches:
        return NO_MATCH.rows, NO_MATCH.worth
    if matches[0].rows is not None:
        return np.concatenate([m.rows for m in matches]), np.concatenate([m.worth for m in matches], axis=1)
    worth = matches[0].worth.copy()
    for match in matches[1:]:
        worth += match.worth
    return None, worth


def _in_every_row(rows: Rows, worth: Lines, size: int) -> Lines:
    every = np.zeros((len(worth), size), np.float32)
    every[:, rows] = worth
    return every


def _worth(postings: Postings, weight: float, share: float) -> NDArray[np.float32]:
    """Return each row's score, and the share of what was asked that it has, has in its name, has in its server's."""
    anywhere = np.full(len(postings.rows), share, np.float32)
    named = [anywhere * ((postings.fields & bit) > 0) for bit in (NAME_BIT, SERVER_BIT)]
    return np.array([np.float32(weight) * postings.weights, anywhere, *named], np.float32)


def _best(
    rows: list[NDArray[np.int64]], worth: list[NDArray[np.float32]]
) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """Keep the best that each row has."""
    if len(rows) == 1:
        return rows[0], worth[0]
    every, at = np.unique(np.concatenate(rows), return_inverse=True)
    best = np.zeros((len(worth[0]), len(every)), np.float32)
    for kept, offered in zip(best, np.concatenate(worth, axis=1), strict=True):
        np.maximum.at(kept, at, offered)
    return every, best
