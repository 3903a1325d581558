"""The arrays of the lexical index: terms by row, rows by term."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from shortlist.text.documents import FIELDS, Field

SATURATION = 1.3
"""BM25's k1: how soon repeating a word stops helping."""
_FIELD_BITS = len(FIELDS).bit_length()
NAME_BIT, SERVER_BIT = (np.uint16(1 << FIELDS.index(field)) for field in ("name", "server"))
OWN_BITS = np.uint16(
    sum(1 << number for number, field in enumerate(FIELDS) if field not in ("server", "server_text", "boilerplate"))
)
"""The fields with words of a tool itself; the others have what its server is called or says about all of its tools."""


@dataclass(frozen=True, slots=True)
class FieldWeight:
    """How much a field counts, and how long one usually is."""

    weight: float
    length_penalty: float
    usual_length: float


class Postings(NamedTuple):
    """The rows that hold a term, ascending, the saturated weight it has there, and in which fields it stands."""

    rows: NDArray[np.int64]  # narrower ones would be widened each time they index an array, which takes longer
    weights: NDArray[np.float32]
    fields: NDArray[np.uint16]


NO_POSTINGS = Postings(np.empty(0, np.int64), np.empty(0, np.float32), np.empty(0, np.uint16))


@dataclass(frozen=True, slots=True)
class Forward:
    """Terms by row."""

    starts: NDArray[np.int64]
    terms: NDArray[np.int32]
    weights: NDArray[np.float32]
    fields: NDArray[np.uint16]

    @classmethod
    def empty(cls) -> "Forward":
        return cls.hollow(0)

    @classmethod
    def hollow(cls, rows: int) -> "Forward":
        """Return rows without a term."""
        return cls(np.zeros(rows + 1, np.int64), np.empty(0, np.int32), np.empty(0, np.float32), np.empty(0, np.uint16))

    @classmethod
    def weigh(
        cls,
        terms: NDArray[np.int64],
        counts: NDArray[np.int64],
        weights: Mapping[Field, FieldWeight],
        words: int,
    ) -> "Forward":
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

    def name_sizes(self) -> NDArray[np.float32]:
        """Return how many terms the name of each row has, one at least."""
        sizes: NDArray[np.float32] = np.maximum(self.counts((self.fields & NAME_BIT) > 0), 1).astype(np.float32)
        return sizes

    def counts(self, terms: NDArray[np.bool_]) -> NDArray[np.int64]:
        """Return how many of these terms each row has."""
        before = np.concatenate([[0], np.cumsum(terms)])
        counts: NDArray[np.int64] = before[self.starts[1:]] - before[self.starts[:-1]]
        return counts

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

    def extended(self, other: "Forward") -> "Forward":
        return Forward(
            np.concatenate([self.starts, other.starts[1:] + self.starts[-1]]),
            np.concatenate([self.terms, other.terms]),
            np.concatenate([self.weights, other.weights]),
            np.concatenate([self.fields, other.fields]),
        )

    def only(self, rows: NDArray[np.int64]) -> "Forward":
        lengths = np.diff(self.starts)[rows]
        starts = np.concatenate([[0], np.cumsum(lengths)])
        at = np.arange(starts[-1]) + np.repeat(self.starts[rows] - starts[:-1], lengths)
        return Forward(starts, self.terms[at], self.weights[at], self.fields[at])

    def inverted(self, words: int, alive: NDArray[np.bool_]) -> "Inverted":
        row = np.repeat(np.arange(self.count), np.diff(self.starts))
        kept = np.flatnonzero(alive[row]) if self.count else np.zeros(0, np.int64)
        order = _ordered(self.terms[kept], kept)
        counts = np.bincount(self.terms[order], minlength=words)
        return Inverted(
            np.concatenate([[0], np.cumsum(counts)]),
            Postings(row[order], self.weights[order], self.fields[order]),
        )

    def state(self) -> dict[str, NDArray[Any]]:
        return {"starts": self.starts, "terms": self.terms, "weights": self.weights, "fields": self.fields}

    @classmethod
    def restore(cls, arrays: Mapping[str, NDArray[Any]]) -> "Forward":
        return cls(*(arrays[name] for name in ("starts", "terms", "weights", "fields")))


@dataclass(frozen=True, slots=True)
class Inverted:
    """Rows by term."""

    starts: NDArray[np.int64]
    all: Postings

    @classmethod
    def empty(cls) -> "Inverted":
        return cls(np.zeros(1, np.int64), NO_POSTINGS)

    def frequencies(self) -> NDArray[np.int32]:
        return np.diff(self.starts).astype(np.int32)

    def state(self) -> dict[str, NDArray[Any]]:
        return {
            "inverted_starts": self.starts,
            "inverted_rows": self.all.rows,
            "inverted_weights": self.all.weights,
            "inverted_fields": self.all.fields,
        }

    @classmethod
    def restore(cls, arrays: Mapping[str, NDArray[Any]]) -> "Inverted":
        rows, weights, fields = (arrays[f"inverted_{name}"] for name in ("rows", "weights", "fields"))
        if not len(rows) == len(weights) == len(fields) == arrays["inverted_starts"][-1]:
            raise ValueError("its parts differ in size")
        return cls(arrays["inverted_starts"], Postings(rows, weights, fields))


def _ordered(numbers: NDArray[np.int32], places: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the places in the order of their numbers; sorting both as one number is faster than an indirect sort."""
    both = (numbers.astype(np.int64) << 32) + places
    both.sort()
    order: NDArray[np.int64] = both & (1 << 32) - 1
    return order
