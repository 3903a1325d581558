"""BM25F over weighted fields: sparse, exact, explainable, updated in place of rebuilt.

A stored weight depends on its own document alone (lengths are compared with fixed references, not with the
collection's average), and idf is taken from live counts at query time. So adding, changing or removing one
tool touches that tool only, and the result equals a fresh build.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from shortlist.text.documents import FIELDS, Document, Field

SATURATION = 1.3
"""BM25's k1: how soon repeating a word stops helping."""

MERGE_SHARE = 0.1
"""Once this share of the rows came by updates, they are merged into the main arrays."""


@dataclass(frozen=True, slots=True)
class FieldWeight:
    """How much a field counts, and how long one usually is."""

    weight: float
    length_penalty: float
    usual_length: float


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
_FIELD_BITS = len(FIELDS).bit_length()
NAME_BIT, SERVER_BIT = (np.uint16(1 << FIELDS.index(field)) for field in ("name", "server"))


class Postings(NamedTuple):
    """The rows that hold a term, ascending, the saturated weight it has there, and in which fields it stands."""

    rows: NDArray[np.int64]  # narrower ones would be widened each time they index an array, which takes longer
    weights: NDArray[np.float32]
    fields: NDArray[np.uint16]


_NO_POSTINGS = Postings(np.empty(0, np.int64), np.empty(0, np.float32), np.empty(0, np.uint16))


class Vocabulary(dict[str, int]):
    """Numbers for terms; one that is new takes the next."""

    def __missing__(self, term: str) -> int:
        number = self[term] = len(self)
        return number


class LexicalIndex:
    """Documents by row; rows are never reused, so that they can be shared with other indexes."""

    def __init__(self, weights: Mapping[Field, FieldWeight] = FIELD_WEIGHTS) -> None:
        self._field_weights = weights
        self.vocabulary = Vocabulary()
        self.alive = np.zeros(0, np.bool_)
        self.live = 0
        self.version = 0
        """Another number after every change, for whoever remembers what was looked up here."""
        self.name_sizes = np.zeros(0, np.float32)
        """How many terms the name of each row has, one at least."""
        self._frequency = np.zeros(0, np.int32)
        self._main = _Forward.empty()
        self._inverted = _Inverted.empty()
        self._late = _Forward.empty()
        """The rows that came by updates, after the main ones; `_late_postings` has them by term."""
        self._late_postings: dict[int, list[tuple[int, float, int]]] = {}

    @classmethod
    def build(
        cls, documents: Iterable[Document], weights: Mapping[Field, FieldWeight] = FIELD_WEIGHTS
    ) -> "LexicalIndex":
        index = cls(weights)
        index._main = index._weigh(documents)
        index.live = index._main.count
        index.alive = np.ones(index.live, np.bool_)
        index._merge()
        return index

    @property
    def size(self) -> int:
        """How many rows there are, removed ones included."""
        return len(self.alive)

    def add(self, documents: Sequence[Document]) -> range:
        """Append documents; gives their rows."""
        self.version += 1
        added = self._weigh(documents)
        rows = range(self.size, self.size + added.count)
        for offset, row in enumerate(rows):
            for term, weight, fields in added.entries(offset):
                self._late_postings.setdefault(term, []).append((row, weight, fields))
                self._frequency[term] += 1
        self._late = self._late.extended(added)
        self.live += added.count
        self.alive = np.concatenate([self.alive, np.ones(added.count, np.bool_)])
        self.name_sizes = np.concatenate([self.name_sizes, added.name_sizes()])
        if self._late.count > max(64, MERGE_SHARE * self.size):
            self._merge()
        return rows

    def remove(self, rows: Iterable[int]) -> None:
        """Take rows out of every answer and every count."""
        self.version += 1
        for row in rows:
            if self.alive[row]:
                self.alive[row] = False
                self.live -= 1
                self._frequency[self.terms_of(row)] -= 1

    def idf(self, term: str) -> float:
        """How telling a term is in this catalog; the most telling for one that it does not have."""
        frequency = self.frequency(term)
        return math.log1p((self.live - frequency + 0.5) / (frequency + 0.5))

    def frequency(self, term: str) -> int:
        number = self.vocabulary.get(term)
        return 0 if number is None else int(self._frequency[number])

    def postings(self, term: str) -> Postings:
        number = self.vocabulary.get(term)
        if number is None:
            return _NO_POSTINGS
        main = self._inverted.postings(number)
        late = self._late_postings.get(number)
        if not late:
            return main
        rows, weights, fields = zip(*late, strict=True)
        return Postings(
            np.concatenate([main.rows, np.array(rows, np.int64)]),
            np.concatenate([main.weights, np.array(weights, np.float32)]),
            np.concatenate([main.fields, np.array(fields, np.uint16)]),
        )

    def terms_of(self, row: int) -> NDArray[np.int32]:
        main = self._main.count
        return self._main.terms_of(row) if row < main else self._late.terms_of(row - main)

    def fills(self, row: int, field: Field) -> bool:
        """Say whether a row has words in a field."""
        main = self._main.count
        fields = self._main.fields_of(row) if row < main else self._late.fields_of(row - main)
        return bool(np.bitwise_or.reduce(fields) & (1 << FIELDS.index(field)))

    def _weigh(self, documents: Iterable[Document]) -> "_Forward":
        """Turn documents into one saturated weight for each row and term."""
        vocabulary, counts = self.vocabulary, list[int]()

        def fields() -> Iterator[Sequence[str]]:
            for document in documents:
                found = [document[field] for field in FIELDS]
                counts.extend(map(len, found))
                yield from found

        terms = np.fromiter(map(vocabulary.__getitem__, chain.from_iterable(fields())), np.int64)
        missing = len(vocabulary) - len(self._frequency)
        self._frequency = np.concatenate([self._frequency, np.zeros(missing, np.int32)])
        return _Forward.weigh(terms, np.array(counts, np.int64), self._field_weights, len(vocabulary))

    def _merge(self) -> None:
        """Take the late rows among the main ones and count anew."""
        self.version += 1
        self._main, self._late = self._main.extended(self._late), _Forward.empty()
        self._inverted, self._late_postings = self._main.inverted(len(self.vocabulary), self.alive), {}
        self._frequency = self._inverted.frequencies()
        self.name_sizes = self._main.name_sizes()

    def compact(self) -> None:
        """Drop the rows that were removed; those that are left move up."""
        self._main = self._main.extended(self._late).only(np.flatnonzero(self.alive))
        self._late = _Forward.empty()
        self.alive = np.ones(self.live, np.bool_)
        self._merge()

    def state(self) -> dict[str, NDArray[Any]]:
        """Give the arrays to save; the vocabulary goes beside them."""
        self._merge()
        return {**self._main.state(), "alive": self.alive}

    @classmethod
    def restore(cls, vocabulary: Sequence[str], arrays: Mapping[str, NDArray[Any]]) -> "LexicalIndex":
        index = cls()
        index.vocabulary = Vocabulary(zip(vocabulary, range(len(vocabulary)), strict=True))
        index._main = _Forward.restore(arrays)
        index.alive = np.array(arrays["alive"])
        index.live = int(index.alive.sum())
        index._merge()
        return index


@dataclass(frozen=True, slots=True)
class _Forward:
    """Terms by row."""

    starts: NDArray[np.int64]
    terms: NDArray[np.int32]
    weights: NDArray[np.float32]
    fields: NDArray[np.uint16]

    @classmethod
    def empty(cls) -> "_Forward":
        return cls.hollow(0)

    @classmethod
    def hollow(cls, rows: int) -> "_Forward":
        """Rows without a term."""
        return cls(np.zeros(rows + 1, np.int64), np.empty(0, np.int32), np.empty(0, np.float32), np.empty(0, np.uint16))

    @classmethod
    def weigh(
        cls,
        terms: NDArray[np.int64],
        counts: NDArray[np.int64],
        weights: Mapping[Field, FieldWeight],
        words: int,
    ) -> "_Forward":
        if not len(counts):
            return cls.empty()
        each = [weights[field] for field in FIELDS]
        lengths = counts.reshape(-1, len(FIELDS)).astype(np.float32)
        penalty = np.array([w.length_penalty for w in each], np.float32)
        usual = np.array([w.usual_length for w in each], np.float32)
        value = np.array([w.weight for w in each], np.float32) / (1 - penalty + penalty * lengths / usual)
        row, field = np.divmod(np.repeat(np.arange(len(counts)), counts), len(FIELDS))
        key = ((row * max(words, 1) + terms) << _FIELD_BITS) + field
        key.sort()  # one number for row, term and field: sorting numbers is faster than ordering them by others
        cell, field = key >> _FIELD_BITS, key & (1 << _FIELD_BITS) - 1
        first = np.flatnonzero(np.diff(cell, prepend=-1))
        if not len(first):
            return cls.hollow(len(lengths))
        row, term = np.divmod(cell[first], max(words, 1))
        per_row = np.bincount(row, minlength=len(lengths))
        every_row = np.repeat(row, np.diff(first, append=len(key)))
        frequency = np.add.reduceat(value[every_row, field], first)
        return cls(
            np.concatenate([[0], np.cumsum(per_row)]),
            term.astype(np.int32),
            (frequency * (SATURATION + 1) / (SATURATION + frequency)).astype(np.float32),
            np.bitwise_or.reduceat((1 << field).astype(np.uint16), first),
        )

    @property
    def count(self) -> int:
        return len(self.starts) - 1

    def terms_of(self, row: int) -> NDArray[np.int32]:
        return self.terms[self.starts[row] : self.starts[row + 1]]

    def fields_of(self, row: int) -> NDArray[np.uint16]:
        return self.fields[self.starts[row] : self.starts[row + 1]]

    def name_sizes(self) -> NDArray[np.float32]:
        before = np.concatenate([[0], np.cumsum((self.fields & NAME_BIT) > 0)])
        sizes: NDArray[np.float32] = np.maximum(before[self.starts[1:]] - before[self.starts[:-1]], 1).astype(
            np.float32
        )
        return sizes

    def entries(self, row: int) -> list[tuple[int, float, int]]:
        part = slice(self.starts[row], self.starts[row + 1])
        return list(
            zip(
                self.terms[part].tolist(),
                self.weights[part].tolist(),
                self.fields[part].tolist(),
                strict=True,
            )
        )

    def extended(self, other: "_Forward") -> "_Forward":
        return _Forward(
            np.concatenate([self.starts, other.starts[1:] + self.starts[-1]]),
            np.concatenate([self.terms, other.terms]),
            np.concatenate([self.weights, other.weights]),
            np.concatenate([self.fields, other.fields]),
        )

    def only(self, rows: NDArray[np.int64]) -> "_Forward":
        lengths = np.diff(self.starts)[rows]
        starts = np.concatenate([[0], np.cumsum(lengths)])
        at = np.arange(starts[-1]) + np.repeat(self.starts[rows] - starts[:-1], lengths)
        return _Forward(starts, self.terms[at], self.weights[at], self.fields[at])

    def inverted(self, words: int, alive: NDArray[np.bool_]) -> "_Inverted":
        row = np.repeat(np.arange(self.count), np.diff(self.starts))
        kept = np.flatnonzero(alive[row]) if self.count else np.zeros(0, np.int64)
        order = _ordered(self.terms[kept], kept)
        counts = np.bincount(self.terms[order], minlength=words)
        return _Inverted(
            np.concatenate([[0], np.cumsum(counts)]),
            Postings(row[order], self.weights[order], self.fields[order]),
        )

    def state(self) -> dict[str, NDArray[Any]]:
        return {"starts": self.starts, "terms": self.terms, "weights": self.weights, "fields": self.fields}

    @classmethod
    def restore(cls, arrays: Mapping[str, NDArray[Any]]) -> "_Forward":
        return cls(*(np.array(arrays[name]) for name in ("starts", "terms", "weights", "fields")))


@dataclass(frozen=True, slots=True)
class _Inverted:
    """Rows by term."""

    starts: NDArray[np.int64]
    all: Postings

    @classmethod
    def empty(cls) -> "_Inverted":
        return cls(np.zeros(1, np.int64), _NO_POSTINGS)

    def postings(self, term: int) -> Postings:
        if term + 1 >= len(self.starts):
            return _NO_POSTINGS
        start, end = self.starts[term : term + 2].tolist()
        return Postings(self.all.rows[start:end], self.all.weights[start:end], self.all.fields[start:end])

    def frequencies(self) -> NDArray[np.int32]:
        return np.diff(self.starts).astype(np.int32)


def _ordered(numbers: NDArray[np.int32], places: NDArray[np.int64]) -> NDArray[np.int64]:
    """Give the places in the order of their numbers; sorting both as one number is faster than an indirect sort."""
    both = (numbers.astype(np.int64) << 32) + places
    both.sort()
    order: NDArray[np.int64] = both & (1 << 32) - 1
    return order
