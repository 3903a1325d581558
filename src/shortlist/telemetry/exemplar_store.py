"""Pairs of a query and the tool it led to, in the file of the events: added up, bounded, cleared."""

from dataclasses import dataclass
from typing import Any

from shortlist.models import ToolId
from shortlist.telemetry.exemplars import Pair
from shortlist.telemetry.sqlite_store import SqliteFile

COLUMNS = "caller, tool, query, successes, errors, last"
LEARNED = "learned until"


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """How many pairs are kept, the latest ones."""

    of_tool: int = 50
    """Of one caller and tool: the busiest tool leaves room for the others."""
    of_caller: int = 1_000
    """A caller that floods drives out what is its own."""
    of_all: int = 10_000
    at_once: int = 20_000
    """Events that are looked through in one transaction: a moment, so that the writer is not held up."""


BOUNDS = Bounds()


class ExemplarStore:
    """Learns from the calls that belong to a search; every gateway on this machine sees the same."""

    def __init__(self, file: SqliteFile, bounds: Bounds = BOUNDS) -> None:
        self._file = file
        self._bounds = bounds

    def learn(self) -> None:
        """Add up what was called since the last time, by whichever gateway; what is too much goes, the oldest first."""
        while self._waiting():
            with self._file.transaction() as connection:
                start = self._learned_until()
                end = min(start + self._bounds.at_once, self._newest())
                added = connection.execute(_ADD_UP, {"start": start, "end": end}).rowcount
                connection.execute("INSERT OR REPLACE INTO notes VALUES (?, ?)", (LEARNED, str(end)))
                if added:
                    self._bound(connection)

    def _bound(self, connection: Any) -> None:
        bounds = self._bounds
        for partition, most in (("caller, tool", bounds.of_tool), ("caller", bounds.of_caller), ("1", bounds.of_all)):
            connection.execute(_TOO_MUCH.format(partition=partition), (most,))

    def state(self) -> tuple[Any, ...]:
        """Give what is different whenever the pairs are."""
        sql = "SELECT count(*), total(successes), total(errors), max(last) FROM exemplars"
        return self._file.query(sql)[0]

    def pairs(self, *, caller: str | None = None, tool: ToolId | None = None) -> list[Pair]:
        """Give the pairs, of one caller or tool or all, the latest first."""
        where, values = _conditions(caller, tool)
        sql = f"SELECT {COLUMNS} FROM exemplars WHERE {where} ORDER BY last DESC, caller, tool, query"  # noqa: S608
        names = COLUMNS.split(", ")
        return [Pair(**dict(zip(names, row, strict=True))) for row in self._file.rows(sql, values)]

    def clear(self, *, caller: str | None = None, tool: ToolId | None = None) -> int:
        """Forget pairs and say how many; what was called so far is not learned again."""
        self.learn()
        where, values = _conditions(caller, tool)
        with self._file.transaction() as connection:
            return connection.execute(f"DELETE FROM exemplars WHERE {where}", values).rowcount  # noqa: S608

    def _waiting(self) -> bool:
        return self._newest() > self._learned_until()

    def _newest(self) -> int:
        return int(self._file.query("SELECT coalesce(max(id), 0) FROM events")[0][0])

    def _learned_until(self) -> int:
        found = self._file.query("SELECT value FROM notes WHERE name = ?", (LEARNED,))
        return int(found[0][0]) if found else 0


def _conditions(caller: str | None, tool: ToolId | None) -> tuple[str, list[str]]:
    asked = {column: value for column, value in (("caller", caller), ("tool", tool)) if value is not None}
    return " AND ".join(["1", *(f"{column} = ?" for column in asked)]), list(asked.values())


_ADD_UP = f"""
INSERT INTO exemplars ({COLUMNS})
SELECT call.caller, call.subject, search.subject, sum(call.outcome = 'ok'), sum(call.outcome = 'error'), max(call.at)
FROM events AS call JOIN events AS search ON search.id = call.search
WHERE call.id > :start AND call.id <= :end AND call.kind = 'called' AND call.outcome IN ('ok', 'error')
  AND search.kind = 'searched' AND search.subject IS NOT NULL AND search.subject NOT LIKE 'hash:%'
GROUP BY call.caller, call.subject, search.subject
ON CONFLICT DO UPDATE SET
  successes = successes + excluded.successes, errors = errors + excluded.errors, last = max(last, excluded.last)
"""  # noqa: S608
_TOO_MUCH = """
DELETE FROM exemplars WHERE (caller, tool, query) IN (
  SELECT caller, tool, query FROM (
    SELECT caller, tool, query, row_number() OVER (PARTITION BY {partition} ORDER BY last DESC, query, tool) AS place
    FROM exemplars)
  WHERE place > ?)
"""
