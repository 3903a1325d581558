"""Cases: a query, the tools that answer it, and what can be wrong with such a label."""

import gzip
import json
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias

from shortlist.errors import DatasetMissing, InvalidInput
from shortlist.evals.metrics import Groups, strict_groups
from shortlist.models import Json, ToolId

ProblemKind: TypeAlias = Literal["duplicate query", "conflicting labels", "impossible label"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A query and the tools that answer it; without gold, the right answer is that no tool does."""

    id: str
    query: str
    gold: tuple[ToolId, ...]
    groups: Groups = ()
    split: str = "test"
    segment: str = ""
    source: str = ""

    @property
    def answerable(self) -> bool:
        return bool(self.gold)


@dataclass(frozen=True, slots=True)
class Problem:
    """A label that makes a case unfair to score."""

    kind: ProblemKind
    cases: tuple[str, ...]
    message: str


def read_cases(path: Path) -> tuple[Case, ...]:
    """Read JSONL, gzipped or not; an unreadable line or an id used twice is an error that names it."""
    cases = tuple(_case(fields, place) for place, fields in read_objects(path))
    _check_unique_ids(cases, path.name)
    return cases


def read_queries(path: Path) -> tuple[tuple[str, str], ...]:
    """Read ids and queries alone, from cases or from lines that have no labels."""
    return tuple((_text(fields, "id", place), _text(fields, "query", place)) for place, fields in read_objects(path))


def read_objects(path: Path) -> Iterator[tuple[str, Mapping[str, Json]]]:
    """Read the objects of a JSONL file, each with its place for an error to name."""
    for number, line in _lines(path):
        place = f"{path.name}, line {number}"
        yield place, _object(line, place)


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    try:
        text = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
        lines = text.decode("utf-8-sig").split("\n")  # not splitlines: queries may hold U+2028
    except FileNotFoundError as error:
        raise DatasetMissing(f"No file {str(path)!r}. Check the path.") from error
    except (OSError, EOFError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise InvalidInput(f"Cannot read {str(path)!r}: {reason}. Pass UTF-8 JSONL, gzipped or not.") from error
    return ((number, line) for number, line in enumerate(lines, start=1) if line.strip())


def _object(line: str, place: str) -> Mapping[str, Json]:
    try:
        fields = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise InvalidInput(f"{place}: not JSON ({error}). Write one case on each line.") from error
    if not isinstance(fields, dict):
        raise InvalidInput(f"{place}: {fields!r} is not an object with id, query and gold.")
    return fields


def _case(fields: Mapping[str, Json], place: str) -> Case:
    if fields.get("reviewed", True) is not True:
        raise InvalidInput(
            f"{place}: nobody has reviewed this case. Check that its tools answer the query, correct or delete the "
            "line, and set 'reviewed' to true."
        )
    split = _text(fields, "split", place, default="test")
    gold = _ids(fields.get("gold"), place)
    groups = fields.get("gold_groups")
    return Case(
        id=_text(fields, "id", place),
        query=_text(fields, "query", place),
        gold=gold,
        groups=_groups(groups, place) if groups else strict_groups(gold),
        split=split,
        segment=_text(fields, "segment", place, default=split),
        source=_text(fields, "source", place, default=""),
    )


def _text(fields: Mapping[str, Json], key: str, place: str, *, default: str | None = None) -> str:
    value = fields.get(key, default)
    if not isinstance(value, str):
        raise InvalidInput(f"{place}: {key!r} is {value!r}; it must be a string.")
    return value


def _ids(value: Json, place: str) -> tuple[ToolId, ...]:
    """Check a list of tool ids; an id listed twice is one tool."""
    if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
        raise InvalidInput(f"{place}: {value!r} must be a list of tool ids ([] when no tool answers).")
    return tuple(dict.fromkeys(value))


def _groups(value: Json, place: str) -> Groups:
    if not isinstance(value, list):
        raise InvalidInput(f"{place}: 'gold_groups' must be a list of lists of tool ids.")
    return tuple(frozenset(_ids(group, place)) for group in value)


def _check_unique_ids(cases: Sequence[Case], place: str) -> None:
    seen: set[str] = set()
    for case in cases:
        if case.id in seen:
            raise InvalidInput(f"{place}: the case id {case.id!r} is used twice. Give each case its own.")
        seen.add(case.id)


def find_problems(cases: Sequence[Case], tool_ids: Collection[ToolId]) -> tuple[Problem, ...]:
    """Flag labels that cannot be met, and queries asked more than once; they stay in the score."""
    return (*_impossible(cases, tool_ids), *_duplicates(cases))


def _impossible(cases: Sequence[Case], tool_ids: Collection[ToolId]) -> Iterator[Problem]:
    for case in cases:
        groups = case.groups or strict_groups(case.gold)
        if any(not any(member in tool_ids for member in group) for group in groups):
            missing = ", ".join(sorted(each for each in case.gold if each not in tool_ids))
            yield Problem("impossible label", (case.id,), f"not in the catalog: {missing}")


def _duplicates(cases: Sequence[Case]) -> Iterator[Problem]:
    by_query: dict[str, list[Case]] = defaultdict(list)
    for case in cases:
        by_query[" ".join(case.query.casefold().split())].append(case)
    for query, same in by_query.items():
        if len(same) > 1:
            alike = len({frozenset(case.gold) for case in same}) == 1
            kind: ProblemKind = "duplicate query" if alike else "conflicting labels"
            yield Problem(kind, tuple(case.id for case in same), f"asked {len(same)} times: {query[:80]!r}")
