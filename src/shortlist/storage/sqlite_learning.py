"""Experiments and exemplars in SQLite, in the file of the events that they are counted from."""

import sqlite3
from collections.abc import Iterable
from dataclasses import dataclass, fields
from typing import Any

from shortlist.errors import InvalidInput
from shortlist.models import ToolId
from shortlist.storage.port import LearnedPair, StoredExperiment, WorkspaceOutcome
from shortlist.storage.sqlite import Database

_OUTCOME = tuple(field.name for field in fields(WorkspaceOutcome))
_PAIR = ", ".join(field.name for field in fields(LearnedPair))
LEARNED = "learned until"


class SqliteExperiments:
    """Stores experiments; triggers of the schema count what exposed workspaces do."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def experiments(self) -> list[StoredExperiment]:
        """Return all experiments, the latest first."""
        rows = self._database.query("SELECT name, plan, started, stopped FROM experiments ORDER BY started DESC, name")
        return [StoredExperiment(name=n, plan=plan, started=at, stopped=end) for n, plan, at, end in rows]

    def start(self, experiment: StoredExperiment) -> None:
        """Start an experiment; raises InvalidInput while another one runs, or for a name that was used before."""
        with self._database.transaction() as connection:
            check_free(connection.execute("SELECT name, stopped FROM experiments"), experiment.name)
            connection.execute(
                "INSERT INTO experiments (name, plan, started) VALUES (?, ?, ?)",
                (experiment.name, experiment.plan, experiment.started),
            )

    def stop(self, name: str, at: int) -> None:
        """Stop an experiment; what its workspaces do afterwards is not counted."""
        with self._database.transaction() as connection:
            connection.execute("UPDATE experiments SET stopped = ? WHERE name = ? AND stopped IS NULL", (at, name))

    def outcomes(self, name: str) -> list[WorkspaceOutcome]:
        """Return what each exposed workspace did since, in the order of exposure."""
        sql = f"SELECT {', '.join(_OUTCOME)} FROM outcomes WHERE experiment = ? ORDER BY id"  # noqa: S608
        return [WorkspaceOutcome(*row) for row in self._database.query(sql, (name,))]


def check_free(experiments: Iterable[tuple[str, int | None]], name: str) -> None:
    """Raise InvalidInput while an experiment runs, or where one had this name."""
    for known, stopped in experiments:
        if stopped is None:
            raise InvalidInput(f"The experiment {known!r} is running. Stop it first with `shortlist ab stop`.")
        if known == name:
            raise InvalidInput(f"An experiment {name!r} exists already. Choose another name.")


@dataclass(frozen=True, slots=True, kw_only=True)
class ExemplarBounds:
    """How many pairs are kept, the latest ones."""

    of_tool: int = 50
    """Per caller and tool, so that the busiest tool leaves room for the others."""
    of_caller: int = 1_000
    """A caller that floods the log only displaces its own pairs."""
    of_all: int = 10_000
    at_once: int = 20_000
    """Events read in one transaction: a short one, so that the recorder is not held up."""


BOUNDS = ExemplarBounds()


class SqliteExemplars:
    """Adds up calls that belong to a search; every gateway on this machine sees the same pairs."""

    def __init__(self, database: Database, bounds: ExemplarBounds = BOUNDS) -> None:
        self._database = database
        self._bounds = bounds

    def learn(self) -> None:
        """Add up calls recorded since the last time, by any gateway, and drop the oldest beyond the bounds."""
        newest = self._database.query("SELECT coalesce(max(id), 0) FROM events")[0][0]
        while self._learned_until() < newest:
            with self._database.transaction(create=False) as connection:
                start = _learned_until(connection.execute(_READ_NOTE, (LEARNED,)).fetchone())
                end = min(start + self._bounds.at_once, newest)
                added = connection.execute(_ADD_UP, {"start": start, "end": end}).rowcount
                connection.execute("INSERT OR REPLACE INTO notes VALUES (?, ?)", (LEARNED, str(max(start, end))))
                if added:
                    self._bound(connection)

    def state(self) -> tuple[Any, ...]:
        """Return a value that changes whenever the pairs change."""
        sql = "SELECT count(*), total(successes), total(errors), max(last) FROM exemplars"
        return self._database.query(sql)[0]

    def pairs(self, *, caller: str | None = None, tool: ToolId | None = None) -> list[LearnedPair]:
        """Return the pairs of one caller or tool, or all of them, the latest first."""
        where, values = _conditions(caller, tool)
        sql = f"SELECT {_PAIR} FROM exemplars WHERE {where} ORDER BY last DESC, caller, tool, query"  # noqa: S608
        names = [field.name for field in fields(LearnedPair)]
        return [LearnedPair(**dict(zip(names, row, strict=True))) for row in self._database.query(sql, values)]

    def clear(self, *, caller: str | None = None, tool: ToolId | None = None) -> int:
        """Delete pairs and return how many; calls made so far are not learned again."""
        self.learn()
        where, values = _conditions(caller, tool)
        with self._database.transaction(create=False) as connection:
            return connection.execute(f"DELETE FROM exemplars WHERE {where}", values).rowcount  # noqa: S608

    def _learned_until(self) -> int:
        found = self._database.query(_READ_NOTE, (LEARNED,))
        return _learned_until(found[0] if found else None)

    def _bound(self, connection: sqlite3.Connection) -> None:
        bounds = self._bounds
        for partition, most in (("caller, tool", bounds.of_tool), ("caller", bounds.of_caller), ("1", bounds.of_all)):
            connection.execute(_TOO_MANY.format(partition=partition), (most,))


def _learned_until(row: tuple[str] | None) -> int:
    return int(row[0]) if row else 0


def _conditions(caller: str | None, tool: ToolId | None) -> tuple[str, list[str]]:
    asked = {column: value for column, value in (("caller", caller), ("tool", tool)) if value is not None}
    return " AND ".join(["1", *(f"{column} = ?" for column in asked)]), list(asked.values())


_READ_NOTE = "SELECT value FROM notes WHERE name = ?"
_ADD_UP = f"""
INSERT INTO exemplars ({_PAIR})
SELECT call.caller, call.subject, search.subject, sum(call.outcome = 'ok'), sum(call.outcome = 'error'), max(call.at)
FROM events AS call JOIN events AS search ON search.id = call.search
WHERE call.id > :start AND call.id <= :end AND call.kind = 'called' AND call.outcome IN ('ok', 'error')
  AND search.kind = 'searched' AND search.subject IS NOT NULL AND search.subject NOT LIKE 'hash:%'
GROUP BY call.caller, call.subject, search.subject
ON CONFLICT DO UPDATE SET
  successes = successes + excluded.successes, errors = errors + excluded.errors, last = max(last, excluded.last)
"""  # noqa: S608
_TOO_MANY = """
DELETE FROM exemplars WHERE (caller, tool, query) IN (
  SELECT caller, tool, query FROM (
    SELECT caller, tool, query, row_number() OVER (PARTITION BY {partition} ORDER BY last DESC, query, tool) AS place
    FROM exemplars)
  WHERE place > ?)
"""
