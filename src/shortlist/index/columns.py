"""Columns of an index: values by row, of which the first come from files and later ones are added in memory.

The files of a large index are mapped: they are read where somebody looks, and processes share the pages. So a start
reads next to nothing, however many tools there are, and a second worker costs next to no memory.
"""

import hashlib
from array import array
from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any, Generic, TypeVar, overload

import numpy as np
from numpy.typing import NDArray

from shortlist.index.ports import Mask

T = TypeVar("T")
Arrays = Mapping[str, NDArray[Any]]


class Texts(Sequence[str]):
    """Texts in one block of UTF-8, decoded when asked for."""

    def __init__(self, arrays: Arrays) -> None:
        self._block, self._ends = memoryview(arrays["block"].data), arrays["ends"]
        if len(self._block) != (self._ends[-1] if len(self._ends) else 0):
            raise ValueError("the texts of a column are cut off")

    @staticmethod
    def state(texts: Iterable[str]) -> dict[str, NDArray[Any]]:
        """Return the arrays that hold these texts."""
        parts = [text.encode("utf-8", "surrogatepass") for text in texts]
        ends = np.cumsum(np.fromiter(map(len, parts), np.int64, len(parts)))
        return {"block": np.frombuffer(b"".join(parts), np.uint8), "ends": ends}

    @overload
    def __getitem__(self, at: int) -> str: ...
    @overload
    def __getitem__(self, at: slice) -> list[str]: ...
    def __getitem__(self, at: int | slice) -> str | list[str]:
        if isinstance(at, slice):
            return [self[place] for place in range(*at.indices(len(self)))]
        end = self._ends.item(at)
        return str(self._block[self._ends.item(at - 1) if at else 0 : end], "utf-8", "surrogatepass")

    def __len__(self) -> int:
        return len(self._ends)

    def __iter__(self) -> Iterator[str]:
        start = 0
        for end in self._ends.tolist():
            yield str(self._block[start:end], "utf-8", "surrogatepass")
            start = end


class TextRows(Mapping[str, int]):
    """The row of each text, found by the sorted hashes of all."""

    def __init__(self, texts: Texts, arrays: Arrays) -> None:
        self.texts, self._hashes, self._rows = texts, arrays["hashes"], arrays["rows"]
        if not len(texts) == len(self._hashes) == len(self._rows):
            raise ValueError("its parts differ in size")

    @staticmethod
    def state(texts: Iterable[str]) -> dict[str, NDArray[Any]]:
        hashes = np.fromiter(map(_hash_of, texts), np.uint64)
        order = np.argsort(hashes, kind="stable")
        return {"hashes": hashes[order], "rows": order.astype(np.int32)}

    def __getitem__(self, text: str) -> int:
        wanted = np.uint64(_hash_of(text))
        at = int(self._hashes.searchsorted(wanted))
        while at < len(self._hashes) and self._hashes[at] == wanted:
            row = int(self._rows[at])
            if self.texts[row] == text:
                return row
            at += 1
        raise KeyError(text)

    def __len__(self) -> int:
        return len(self.texts)

    def __iter__(self) -> Iterator[str]:
        return iter(self.texts)


class ByRow(Mapping[str, T], Generic[T]):
    """Values by tool id that are made from the row of the tool."""

    def __init__(self, rows: Mapping[str, int], value: Callable[[int], T]) -> None:
        self._rows, self._value = rows, value

    def __getitem__(self, key: str) -> T:
        return self._value(self._rows[key])

    def __contains__(self, key: object) -> bool:
        return key in self._rows

    def __iter__(self) -> Iterator[str]:
        return iter(self._rows)

    def __len__(self) -> int:
        return len(self._rows)


class Growing(Sequence[T]):
    """A list whose first values are given by a sequence that is not copied."""

    def __init__(self, first: Sequence[T]) -> None:
        self._first, self._size = first, len(first)
        self._later: list[T] = []

    def append(self, value: T) -> None:
        self._later.append(value)

    @overload
    def __getitem__(self, at: int) -> T: ...
    @overload
    def __getitem__(self, at: slice) -> list[T]: ...
    def __getitem__(self, at: int | slice) -> T | list[T]:
        if isinstance(at, slice):
            return [self[place] for place in range(*at.indices(len(self)))]
        return self._first[at] if at < self._size else self._later[at - self._size]

    def __len__(self) -> int:
        return self._size + len(self._later)

    def __iter__(self) -> Iterator[T]:
        return chain(self._first, list(self._later))


class Coded:
    """A column with few distinct values: each row holds the number of its value."""

    def __init__(self, values: Iterable[Any] = (), codes: NDArray[np.int32] | None = None) -> None:
        self._values = list(values)
        self._numbers = {value: number for number, value in enumerate(self._values)}
        self._first: NDArray[np.int32] = np.empty(0, np.int32) if codes is None else codes
        self._size = len(self._first)
        self._later = array("i")

    @property
    def values(self) -> Sequence[Any]:
        """Return the distinct values, in the order of their numbers."""
        return self._values

    def append(self, value: Any) -> None:
        number = self._numbers.get(value)
        if number is None:
            self._values.append(value)
            number = self._numbers[value] = len(self._values) - 1
        self._later.append(number)

    def __getitem__(self, row: int) -> Any:
        return self._values[self._first.item(row) if row < self._size else self._later[row - self._size]]

    def __len__(self) -> int:
        return self._size + len(self._later)

    def codes(self, size: int | None = None) -> NDArray[np.int32]:
        """Return the numbers of the first rows; later rows may be added meanwhile."""
        wanted = len(self) if size is None else size
        later = np.array(self._later[: max(wanted - self._size, 0)], np.int32)
        return np.concatenate([self._first[:wanted], later]) if len(later) else self._first[:wanted]

    def holding(self, values: Collection[Any], size: int) -> Mask:
        """Mark the rows that have one of these values."""
        wanted = [number for value in values if (number := self._numbers.get(value)) is not None]
        return np.isin(self.codes(size), wanted)

    def only(self, rows: NDArray[np.int64]) -> "Coded":
        """Return the column of these rows alone; they move up."""
        used, codes = np.unique(self.codes()[rows], return_inverse=True)
        return Coded([self._values[number] for number in used.tolist()], codes.astype(np.int32))


class Grouped:
    """Rows by a text that a few of them share; the texts of mapped rows are sorted."""

    def __init__(self, known: Mapping[str, int] | None = None, arrays: Arrays | None = None) -> None:
        self._known: Mapping[str, int] = known or {}
        self._sorted: Sequence[str] = known.texts if isinstance(known, TextRows) else sorted(self._known)
        self._starts: NDArray[np.int64] = arrays["starts"] if arrays else np.zeros(1, np.int64)
        self._rows: NDArray[np.int32] = arrays["rows"] if arrays else np.empty(0, np.int32)
        if len(self._starts) != len(self._known) + 1 or self._starts[-1] != len(self._rows):
            raise ValueError("its parts differ in size")
        self._later: dict[str, list[int]] = {}

    @staticmethod
    def state(groups: Mapping[str, Sequence[int]]) -> dict[str, NDArray[Any]]:
        """Return the arrays that hold the rows of each text, in the order of the texts."""
        sizes = np.fromiter(map(len, groups.values()), np.int64, len(groups))
        rows = np.fromiter(chain.from_iterable(groups.values()), np.int32, int(sizes.sum()))
        return {"starts": np.concatenate([[0], np.cumsum(sizes)]), "rows": rows}

    def add(self, text: str, row: int) -> None:
        self._later.setdefault(text, []).append(row)

    def get(self, text: str, default: Sequence[int] = ()) -> Sequence[int]:
        """Return the rows of a text, or the default where no row has it."""
        number, later = self._known.get(text), self._later.get(text)
        if number is None:
            return later or default
        start, end = self._starts[number : number + 2].tolist()
        first: list[int] = self._rows[start:end].tolist()
        return first + later if later else first

    def items(self) -> Iterator[tuple[str, Sequence[int]]]:
        """Yield every text with its rows."""
        starts = self._starts.tolist()
        for number, text in enumerate(self._sorted):
            first: list[int] = self._rows[starts[number] : starts[number + 1]].tolist()
            yield text, first + self._later.get(text, [])
        for text, rows in list(self._later.items()):
            if text not in self._known:
                yield text, list(rows)

    def starting(self, prefix: str) -> Iterator[tuple[str, Sequence[int]]]:
        """Yield every text that begins like this with its rows."""
        for at in range(bisect_left(self._sorted, prefix), len(self._sorted)):
            text = self._sorted[at]
            if not text.startswith(prefix):
                break
            yield text, self.get(text)
        for text in list(self._later):
            if text.startswith(prefix) and text not in self._known:
                yield text, self.get(text)


def _hash_of(text: str) -> int:
    digest = hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest, "little")
