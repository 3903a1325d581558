"""Exemplars for a measurement: a file written by `shortlist learned export`, less what the cases themselves ask."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from shortlist.errors import InvalidInput
from shortlist.evals.cases import read_objects
from shortlist.models import Asker, Exemplar

LOCAL = Asker()


@dataclass(frozen=True, slots=True)
class Learned:
    """Exemplars of one group, and the caller that its queries are searched as."""

    exemplars: tuple[Exemplar, ...]
    asker: Asker = LOCAL

    def besides(self, queries: Iterable[str]) -> "Learned":
        """Drop exemplars whose query is one of these: a known answer would not measure search."""
        asked = set(map(_plain, queries))
        return replace(self, exemplars=tuple(each for each in self.exemplars if _plain(each.query) not in asked))


def read_learned(path: Path, caller: str = LOCAL.name) -> Learned:
    """Read exported exemplars, to be asked as one of their callers or as somebody else."""
    return Learned(
        tuple(
            Exemplar(
                query=_text(fields.get("query"), "query", place),
                tool=_text(fields.get("tool"), "tool", place),
                by=replace(LOCAL, name=_text(fields.get("caller", LOCAL.name), "caller", place)),
                weight=_weight(fields.get("weight", 1.0), place),
            )
            for place, fields in read_objects(path)
        ),
        replace(LOCAL, name=caller),
    )


def _text(value: object, key: str, place: str) -> str:
    if not isinstance(value, str):
        raise InvalidInput(f"{place}: {key!r} is {value!r}; it must be a string, as in `shortlist learned export`.")
    return value


def _weight(value: object, place: str) -> float:
    if not isinstance(value, int | float) or not 0 <= value <= 1:
        raise InvalidInput(f"{place}: 'weight' is {value!r}; it must be between 0 and 1.")
    return float(value)


def _plain(query: str) -> str:
    return " ".join(query.casefold().split())
