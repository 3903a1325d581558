"""Experiments and what exposed workspaces did, in the file of the events."""

import json
import sqlite3
import time
from dataclasses import fields, replace

from shortlist.errors import InvalidInput
from shortlist.telemetry.experiments.outcomes import Outcome
from shortlist.telemetry.experiments.plan import Experiment
from shortlist.telemetry.sqlite_store import SqliteFile

_COLUMNS = tuple(field.name for field in fields(Outcome))


class ExperimentStore:
    """Starts and stops experiments, and reads their outcomes; exposures come in with the events."""

    def __init__(self, file: SqliteFile) -> None:
        self._file = file

    def start(self, experiment: Experiment) -> Experiment:
        """Begin an experiment now; only one runs at a time, and a name is used once."""
        begun = replace(experiment, started=_now(), stopped=None)
        with self._file.transaction() as connection:
            self._refuse(connection, begun.name)
            connection.execute(
                "INSERT INTO experiments (name, plan, started) VALUES (?, ?, ?)",
                (begun.name, json.dumps(begun.data()), begun.started),
            )
        return begun

    def stop(self, name: str) -> Experiment:
        """End an experiment; what its workspaces do from now on no longer counts."""
        experiment = self.get(name)
        if experiment.stopped is not None:
            raise InvalidInput(f"The experiment {name!r} has been stopped already.")
        stopped = _now()
        with self._file.transaction() as connection:
            connection.execute("UPDATE experiments SET stopped = ? WHERE name = ?", (stopped, name))
        return replace(experiment, stopped=stopped)

    def running(self) -> Experiment | None:
        return next((each for each in self.experiments() if each.stopped is None), None)

    def experiments(self) -> list[Experiment]:
        """Give all experiments, the latest first."""
        rows = self._file.query("SELECT plan, stopped FROM experiments ORDER BY started DESC, name")
        return [replace(Experiment.from_data(json.loads(plan)), stopped=stopped) for plan, stopped in rows]

    def get(self, name: str | None = None) -> Experiment:
        """Give an experiment by its name, or the latest; raises where there is none."""
        known = self.experiments()
        found = next((each for each in known if name in (None, each.name)), None)
        if found is None:
            raise InvalidInput(
                f"No experiment {name!r}. There are {', '.join(each.name for each in known)}."
                if known
                else "No experiment has been started. `shortlist ab start` does."
            )
        return found

    def outcomes(self, experiment: Experiment) -> list[Outcome]:
        """Give what each exposed workspace did since, in the order of exposure."""
        sql = f"SELECT {', '.join(_COLUMNS)} FROM outcomes WHERE experiment = ? ORDER BY id"  # noqa: S608
        return [Outcome(*row) for row in self._file.rows(sql, (experiment.name,))]

    def _refuse(self, connection: sqlite3.Connection, name: str) -> None:
        """Say why an experiment cannot begin, if it cannot."""
        for known, stopped in connection.execute("SELECT name, stopped FROM experiments"):
            if stopped is None:
                raise InvalidInput(f"The experiment {known!r} is running. `shortlist ab stop` ends it.")
            if known == name:
                raise InvalidInput(f"There was an experiment {name!r} already. Give this one another name.")


def _now() -> int:
    return int(time.time() * 1000)
