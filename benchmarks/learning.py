"""What learning from use is worth, and what it cannot be made to do: python -m benchmarks.learning.

A fifth of a set's queries, with their right tools, is the log; the rest is asked without and with it. The log is the
asker's own, or spread over ten colleagues; a tenth of its calls may be wrong; a hostile colleague may have called one
tool for every query of the rest; and it may be about other tools than those that are asked for. `--sets
development:NAME` measures on the development part of train/, which the constants of `search/exemplars.py` were chosen
on; `--try NAME=VALUE` measures another constant.
"""

import argparse
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np
from benchmarks.measuring import publish
from benchmarks.quality_data import Model, say

from shortlist.catalog.catalog import Catalog
from shortlist.evals import cells
from shortlist.evals.bench import Bench
from shortlist.evals.calibration import expected_calibration_error
from shortlist.evals.cases import Case
from shortlist.evals.compare import align, delta
from shortlist.evals.datasets import Dataset, load_dataset, read_catalogs
from shortlist.evals.learned import Learned
from shortlist.evals.runner import Run, Runner
from shortlist.evals.tables import Table
from shortlist.index.cache import StoredVectors
from shortlist.index.embedders import shipped
from shortlist.models import Asker, Exemplar, ToolId
from shortlist.paths import cache_folder
from shortlist.search import exemplars
from shortlist.storage.sqlite_vectors import SqliteVectors

SETS = ("metatool:heldout_tools", "authored_dev")
DEVELOPMENT = "development:"
METRICS = ("lenient_top1", "lenient_ndcg@10")
LOGGED_SHARE, WRONG_SHARE = 0.2, 0.1
COLLEAGUES = 10
PLAUSIBLE = 5
"""A wrong call is one of so many hits: models call what they are shown."""
ME, EVE = Asker("me"), Asker("eve")

Log: TypeAlias = tuple[Exemplar, ...]


@dataclass(frozen=True, slots=True)
class Use:
    """A set cut in two: what was called, and what is asked afterwards."""

    dataset: Dataset
    catalog: Catalog
    logged: tuple[Case, ...]
    hits: Mapping[str, Sequence[ToolId]]
    """What was shown for each query, by case."""
    target: ToolId
    """A tool that no query asks for."""
    seed: int

    def log(self, *, callers: Sequence[Asker] = (ME,), wrong: float = 0.0) -> Log:
        chance = random.Random(self.seed)
        return tuple(
            Exemplar(query=case.query, tool=tool, by=chance.choice(callers))
            for case in self.logged
            for tool in (self._wrong(case, chance) if chance.random() < wrong else case.gold)
        )

    def _wrong(self, case: Case, chance: random.Random) -> Sequence[ToolId]:
        others = [tool for tool in self.hits[case.id][:PLAUSIBLE] if tool not in frozenset().union(*case.groups)]
        return [chance.choice(others)] if others else []

    @property
    def colleagues(self) -> Log:
        return self.log(callers=[Asker(f"colleague {n}") for n in range(COLLEAGUES)])

    @property
    def hostile(self) -> Log:
        return tuple(Exemplar(query=case.query, tool=self.target, by=EVE) for case in self.dataset.cases)


SCENARIOS: Mapping[str, Callable[[Use], Log]] = {
    "own log": Use.log,
    "own log, a tenth of it wrong": lambda use: use.log(wrong=WRONG_SHARE),
    "log of ten colleagues": lambda use: use.colleagues,
    "… and a hostile one": lambda use: (*use.colleagues, *use.hostile),
    "a hostile colleague alone": lambda use: use.hostile,
}
OTHER_TOOLS = "own log of other tools"


def main() -> None:
    options = _options()
    for name, value in options.tried:
        setattr(exemplars, name, value)
    embedder = shipped(options.embedder)
    model = Model(embedder, StoredVectors(SqliteVectors(cache_folder() / "vectors.sqlite"))) if embedder else None
    found = [row for name in options.sets for row in _measured(name, model, options.seed)]
    tables = [_table(found), _hostile_table(found)]
    publish(options.name, tables, {"embedder": options.embedder, "seed": options.seed, "rows": found})


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sets", nargs="+", default=list(SETS))
    parser.add_argument("--embedder", default="small", help="small, static or none")
    parser.add_argument("--seed", type=int, default=1, help="decides which queries are the log")
    parser.add_argument("--try", dest="tried", action="append", type=_constant, default=[], metavar="NAME=VALUE")
    parser.add_argument("--name", default="learning", help="what the file of results is called")
    return parser.parse_args()


def _constant(text: str) -> tuple[str, float]:
    name, _, value = text.partition("=")
    if not hasattr(exemplars, name):
        raise argparse.ArgumentTypeError(f"no constant {name!r} in search/exemplars.py")
    return name, type(getattr(exemplars, name))(value)


def _measured(name: str, model: Model | None, seed: int) -> Iterator[dict[str, Any]]:
    dataset, catalog = _development(name) if name.startswith(DEVELOPMENT) else _whole(name)
    cases = [case for case in dataset.cases if case.answerable]
    random.Random(seed).shuffle(cases)
    size = round(len(cases) * LOGGED_SHARE)
    logged, rest = tuple(cases[:size]), replace(dataset, cases=tuple(cases[size:]))
    wanted = {tool for case in cases for group in case.groups for tool in group}
    target = random.Random(seed).choice(sorted(catalog.tools.keys() - wanted))
    shown = _run(
        replace(dataset, cases=tuple(cases)), catalog, model, ()
    )  # and embeds every query, so that times compare
    use = Use(rest, catalog, logged, {record.id: record.ranked for record in shown.records}, target, seed)
    plain = _run(rest, catalog, model, ())
    for scenario, log in SCENARIOS.items():
        yield _row(scenario, use, log(use), plain, _run(rest, catalog, model, log(use)))
        say(f"{dataset.name}: {scenario}")
    yield _about_other_tools(use, plain, model)


def _about_other_tools(use: Use, plain: Run, model: Model | None) -> dict[str, Any]:
    """Log the queries of one half of the tools, and ask those of the other."""
    half = {tool for tool in use.catalog.tools if random.Random(f"{use.seed} {tool}").random() < 0.5}
    asked = replace(use.dataset, cases=tuple(case for case in use.dataset.cases if not half.intersection(case.gold)))
    logged = replace(use, dataset=asked, logged=tuple(case for case in use.logged if half.issuperset(case.gold)))
    kept = {case.id for case in asked.cases}
    before = replace(plain, records=tuple(record for record in plain.records if record.id in kept))
    return _row(OTHER_TOOLS, logged, logged.log(), before, _run(asked, use.catalog, model, logged.log()))


def _run(dataset: Dataset, catalog: Catalog, model: Model | None, log: Log) -> Run:
    bench = Bench(catalog, model, vectors=model.cache if model else None, learned=Learned(log, ME) if log else None)
    return Runner(tools=catalog.tools, fingerprint=catalog.fingerprint).run(dataset, bench.contender("default"))


def _row(scenario: str, use: Use, log: Log, plain: Run, learned: Run) -> dict[str, Any]:
    pair = align(plain, learned)
    return {
        "set": use.dataset.name,
        "log": scenario,
        "pairs": len(log),
        "queries": len(use.dataset.cases),
        "changes": {metric: delta(metric, [pair]) for metric in METRICS},
        "target_first": [_first(run, use.target) for run in (plain, learned)],
        "calibration_error": [_calibration_error(run) for run in (plain, learned)],
        "milliseconds": [float(np.median(run.milliseconds())) for run in (plain, learned)],
    }


def _first(run: Run, tool: ToolId) -> int:
    return sum(record.ranked[:1] == (tool,) for record in run.records)


def _calibration_error(run: Run) -> float:
    return expected_calibration_error(run.probabilities(), run.correct())


def _whole(name: str) -> tuple[Dataset, Catalog]:
    dataset = load_dataset(name)
    return dataset, read_catalogs(dataset.catalogs).catalog


def _development(name: str) -> tuple[Dataset, Catalog]:
    """Return the development queries and the tools of a set of train/, or of one source of train/labelled."""
    from training.holdout import is_held_out

    source = name.removeprefix(DEVELOPMENT)
    prefix = f"{source}|" if source in LABELLED else ""
    dataset, catalog = _whole("train/labelled" if prefix else f"train/{source}")
    cases = tuple(c for c in dataset.cases if c.gold[0].startswith(prefix) and is_held_out(source, c.gold))
    tools = [tool for tool in catalog.tools.values() if tool.id.startswith(prefix)]
    return replace(dataset, name=name, cases=cases), Catalog.of(tools)


LABELLED = ("metatool", "sealtools", "bfcl", "toollinkos", "acebench", "apibench_gorilla", "toolbench_rapidapi")


def _table(found: Sequence[dict[str, Any]]) -> Table:
    rows = tuple(
        (
            row["set"],
            row["log"],
            f"{row['pairs']:,}",
            f"{row['queries']:,}",
            *(cell for metric in METRICS for cell in _change(row["changes"][metric])),
            "{:.3f} → {:.3f}".format(*row["calibration_error"]),
            "{:.1f} → {:.1f}".format(*row["milliseconds"]),
        )
        for row in found
    )
    columns = ("set", "log", "pairs", "asked", "top-1", "change", "nDCG@10", "change", "calibration error", "ms")
    note = "In brackets: 95 % bootstrap interval of the paired difference, in points. ms: without embedding the query."
    return Table("Learning from use: without → with", columns, rows, (note,))


def _change(change: Any) -> tuple[str, str]:
    return f"{cells.percent(change.before)} → {cells.percent(change.after)}", cells.change(change)


def _hostile_table(found: Sequence[dict[str, Any]]) -> Table:
    rows = tuple(
        (row["set"], row["log"], f"{row['queries']:,}", *map(str, row["target_first"]))
        for row in found
        if "hostile" in row["log"]
    )
    columns = ("set", "log", "asked", "its tool first, without", "with")
    return Table("A colleague that called one tool for every query", columns, rows)


if __name__ == "__main__":
    main()
