"""Experiments and exemplars in PostgreSQL: one truth for all gateways that share the database."""

from dataclasses import fields
from typing import Any

from shortlist.models import ToolId
from shortlist.storage.port import LearnedPair, StoredExperiment, WorkspaceOutcome
from shortlist.storage.postgres.database import Postgres, PostgresConnection
from shortlist.storage.sqlite_learning import BOUNDS, LEARNED, ExemplarBounds, check_free

_OUTCOME = tuple(field.name for field in fields(WorkspaceOutcome))
_PAIR = tuple(field.name for field in fields(LearnedPair))


class PostgresExperiments:
    """Stores experiments; triggers of the schema count what exposed workspaces do."""

    def __init__(self, database: Postgres) -> None:
        self._database = database

    def experiments(self) -> list[StoredExperiment]:
        rows = self._database.query("SELECT name, plan, started, stopped FROM experiments ORDER BY started DESC, name")
        return [StoredExperiment(name=n, plan=plan, started=at, stopped=end) for n, plan, at, end in rows]

    def start(self, experiment: StoredExperiment) -> None:
        with self._database.transaction() as connection:
            connection.execute("LOCK TABLE experiments IN EXCLUSIVE MODE")
            check_free(connection.execute("SELECT name, stopped FROM experiments").fetchall(), experiment.name)
            connection.execute(
                "INSERT INTO experiments (name, plan, started) VALUES (%s, %s, %s)",
                (experiment.name, experiment.plan, experiment.started),
            )

    def stop(self, name: str, at: int) -> None:
        with self._database.transaction() as connection:
            connection.execute("UPDATE experiments SET stopped = %s WHERE name = %s AND stopped IS NULL", (at, name))

    def outcomes(self, name: str) -> list[WorkspaceOutcome]:
        sql = f"SELECT {', '.join(_OUTCOME)} FROM outcomes WHERE experiment = %s ORDER BY id"  # noqa: S608
        return [WorkspaceOutcome(*row) for row in self._database.query(sql, (name,))]


class PostgresExemplars:
    """Adds up calls that belong to a search; whichever gateway learns first does it for all."""

    def __init__(self, database: Postgres, bounds: ExemplarBounds = BOUNDS) -> None:
        self._database = database
        self._bounds = bounds

    def learn(self) -> None:
        newest = self._database.query("SELECT coalesce(max(id), 0) FROM events")[0][0]
        while self._learned_until() < newest:
            with self._database.transaction(create=False) as connection:
                connection.execute("LOCK TABLE exemplars IN EXCLUSIVE MODE")
                row = connection.execute(_READ_NOTE, (LEARNED,)).fetchone()
                start = int(row[0]) if row else 0
                end = min(start + self._bounds.at_once, newest)
                added = connection.execute(_ADD_UP, {"start": start, "end": end}).rowcount
                connection.execute(_PUT_NOTE, (LEARNED, str(max(start, end))))
                if added:
                    self._bound(connection)

    def state(self) -> tuple[Any, ...]:
        sql = "SELECT count(*), sum(successes)::bigint, sum(errors)::bigint, max(last) FROM exemplars"
        return self._database.query(sql)[0]

    def pairs(self, *, caller: str | None = None, tool: ToolId | None = None) -> list[LearnedPair]:
        sql = f"SELECT {', '.join(_PAIR)} FROM exemplars WHERE {_MATCHING} ORDER BY last DESC, caller, tool, query"  # noqa: S608
        rows = self._database.query(sql, {"caller": caller, "tool": tool})
        return [LearnedPair(**dict(zip(_PAIR, row, strict=True))) for row in rows]

    def clear(self, *, caller: str | None = None, tool: ToolId | None = None) -> int:
        self.learn()
        with self._database.transaction(create=False) as connection:
            sql = f"DELETE FROM exemplars WHERE {_MATCHING}"  # noqa: S608
            return connection.execute(sql, {"caller": caller, "tool": tool}).rowcount

    def _learned_until(self) -> int:
        found = self._database.query(_READ_NOTE, (LEARNED,))
        return int(found[0][0]) if found else 0

    def _bound(self, connection: PostgresConnection) -> None:
        bounds = self._bounds
        for partition, most in (
            ("caller, tool", bounds.of_tool),
            ("caller", bounds.of_caller),
            ("true", bounds.of_all),
        ):
            connection.execute(_TOO_MANY.format(partition=partition), (most,))


_MATCHING = (
    "(%(caller)s::text IS NULL OR caller = %(caller)s::text) AND (%(tool)s::text IS NULL OR tool = %(tool)s::text)"
)
_READ_NOTE = "SELECT value FROM notes WHERE name = %s"
_PUT_NOTE = "INSERT INTO notes VALUES (%s, %s) ON CONFLICT (name) DO UPDATE SET value = excluded.value"
LONGEST_QUERY = 1_000
"""Bytes of a query that is learned: it is part of a key."""
_ADD_UP = f"""
INSERT INTO exemplars ({", ".join(_PAIR)})
SELECT call.caller, call.subject, search.subject, count(*) FILTER (WHERE call.outcome = 'ok'),
       count(*) FILTER (WHERE call.outcome = 'error'), max(call.at)
FROM events AS call JOIN events AS search ON search.id = call.search
WHERE call.id > %(start)s AND call.id <= %(end)s AND call.kind = 'called' AND call.outcome IN ('ok', 'error')
  AND search.kind = 'searched' AND search.subject IS NOT NULL AND search.subject NOT LIKE 'hash:%%'
  AND octet_length(search.subject) <= {LONGEST_QUERY}
GROUP BY call.caller, call.subject, search.subject
ON CONFLICT (caller, tool, query) DO UPDATE SET
  successes = exemplars.successes + excluded.successes, errors = exemplars.errors + excluded.errors,
  last = greatest(exemplars.last, excluded.last)
"""  # noqa: S608
_TOO_MANY = """
DELETE FROM exemplars WHERE (caller, tool, query) IN (
  SELECT caller, tool, query FROM (
    SELECT caller, tool, query, row_number() OVER (PARTITION BY {partition} ORDER BY last DESC, query, tool) AS place
    FROM exemplars) AS placed
  WHERE place > %s)
"""
