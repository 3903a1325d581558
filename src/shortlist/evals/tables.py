"""Tables: how results are written for people (Markdown) and for machines (JSON)."""

import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from typing import Any

import numpy as np

from shortlist.text.tokens import one_line


@dataclass(frozen=True, slots=True)
class Table:
    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    notes: tuple[str, ...] = ()


def to_markdown(tables: Sequence[Table]) -> str:
    return "\n\n".join(_markdown(table) for table in tables) + "\n"


def to_json(value: Any) -> str:
    return json.dumps(plain(value), ensure_ascii=False, indent=2)


def plain(value: Any) -> Any:
    """Turn results into JSON values; NaN and infinity (the rank of a miss) become null."""
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: plain(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, Mapping):
        return {str(key): plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple | np.ndarray):
        return [plain(each) for each in value]
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else None
    return value


def table_of(
    title: str, columns: Mapping[str, Callable[[Any], str]], items: Sequence[Any], notes: Sequence[str] = ()
) -> Table:
    """Lay out items by columns, each a function from an item to its cell."""
    rows = tuple(tuple(cell(item) for cell in columns.values()) for item in items)
    return Table(title, tuple(columns), rows, tuple(notes))


def _markdown(table: Table) -> str:
    lines = [
        f"### {table.title}",
        "",
        _line(table.columns),
        _line(["---"] * len(table.columns)),
        *(_line(row) for row in table.rows),
    ]
    return "\n".join([*lines, *(["", " ".join(table.notes)] if table.notes else [])])


def _line(cells: Iterable[str]) -> str:
    """Join cells into a row; whatever came from outside is cleaned, on one line, and cannot end a cell."""
    safe = (one_line(cell).replace("|", r"\|") for cell in cells)
    return f"| {' | '.join(safe)} |"
