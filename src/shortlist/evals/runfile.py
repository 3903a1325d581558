"""Runs as JSON lines: a header for each run, then one line for each query."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

from shortlist.errors import DatasetMissing, InvalidInput
from shortlist.evals.runner import Record, Run

FORMAT_VERSION = 1
_HEADER = tuple(field.name for field in fields(Run) if field.name != "records")


def save_runs(runs: Iterable[Run], path: Path) -> None:
    path.write_text("".join(f"{line}\n" for run in runs for line in _lines(run)), encoding="utf-8")


def load_runs(path: Path) -> tuple[Run, ...]:
    """Read what `save_runs` wrote; a file of another version or kind is refused with the line."""
    try:
        lines = path.read_text(encoding="utf-8").split("\n")
    except FileNotFoundError as error:
        raise DatasetMissing(f"No run {str(path)!r}. Write one with `shortlist eval … --out`.") from error
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidInput(f"Cannot read the run {str(path)!r}: {error}.") from error
    return _runs([_parsed(path, number, line) for number, line in enumerate(lines, 1) if line.strip()], path)


def _lines(run: Run) -> Iterator[str]:
    header = {name: getattr(run, name) for name in _HEADER}
    yield json.dumps({"format_version": FORMAT_VERSION, **header}, ensure_ascii=False)
    for record in run.records:
        yield json.dumps(asdict(record), ensure_ascii=False)


def _parsed(path: Path, number: int, line: str) -> Mapping[str, Any]:
    try:
        value = json.loads(line)
    except ValueError as error:
        raise InvalidInput(f"{path.name}, line {number}: not JSON ({error}). Is the run cut off?") from error
    if not isinstance(value, dict):
        raise InvalidInput(f"{path.name}, line {number}: {value!r} is not a line of a run.")
    return value


def _runs(lines: Sequence[Mapping[str, Any]], path: Path) -> tuple[Run, ...]:
    starts = [number for number, line in enumerate(lines) if "format_version" in line]
    if not starts or starts[0] != 0:
        raise InvalidInput(f"{str(path)!r} is not a run: it does not begin with a header.")
    ends = [*starts[1:], len(lines)]
    try:
        return tuple(_run(lines[start:end]) for start, end in zip(starts, ends, strict=True))
    except (KeyError, TypeError) as error:
        raise InvalidInput(
            f"{str(path)!r} has a missing or invalid field: {error}. Write it again with `shortlist eval --out`."
        ) from error


def _run(lines: Sequence[Mapping[str, Any]]) -> Run:
    header = dict(lines[0])
    version = header.pop("format_version")
    if version != FORMAT_VERSION:
        raise InvalidInput(f"The run has format version {version!r}; this version reads {FORMAT_VERSION}.")
    header["fitted_on"] = tuple(header["fitted_on"])
    return Run(**header, records=tuple(_record(line) for line in lines[1:]))


def _record(line: Mapping[str, Any]) -> Record:
    return Record(**{**line, "ranked": tuple(line["ranked"])})
