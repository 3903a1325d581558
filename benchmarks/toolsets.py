"""Which toolsets a search suggests loading, on NodeBench's scenarios: python -m benchmarks.toolsets.

A scenario is a few queries and the toolsets that its work needs; a toolset is a category of tools. A search suggests
the categories of its hits, by their part of the belief in all hits.
"""

import argparse
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.measuring import bench_file, publish

from shortlist.catalog.toolsets import suggest_toolsets
from shortlist.evals.cells import NOTHING
from shortlist.evals.datasets import load_dataset, read_catalogs
from shortlist.evals.tables import Table
from shortlist.index.cache import StoredVectors
from shortlist.index.embedders import shipped
from shortlist.models import Query
from shortlist.paths import cache_folder
from shortlist.search.searcher import Searcher, SearchOptions
from shortlist.storage.sqlite_vectors import SqliteVectors

TOOLS = "nodebench_175"
SCENARIOS = "nodebench_ab_scenarios.json"
RENAMED = {"docs": "documentation", "parallel": "parallel_agents"}
"""Toolsets that go by another name than their category."""
LIMIT = 5
SUGGESTED = 3
"""So many toolsets are named to a model."""
FIRST_IN = 13
"""In so many scenarios an expected toolset has to be the first suggestion for one of the queries."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    name: str
    expected: tuple[str, ...]
    suggested: Mapping[str, tuple[str, ...]]
    """By query, best first."""

    @property
    def found(self) -> bool:
        return any(name in self.expected for names in self.suggested.values() for name in names)

    @property
    def first(self) -> bool:
        return any(names[0] in self.expected for names in self.suggested.values() if names)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--embedder", default="small", help="small, static, none or a folder with a model")
    options = parser.parse_args()
    catalog = read_catalogs(load_dataset(TOOLS).catalogs).catalog
    cache = StoredVectors(SqliteVectors(cache_folder() / "vectors.sqlite"))
    searcher = Searcher(catalog, shipped(options.embedder), options=SearchOptions(cache=cache))
    searcher.prepare()
    raw = json.loads(bench_file("eval", SCENARIOS).read_text("utf-8"))
    wanted = raw["expected_toolset_suggestions"]
    found = [_scenario(searcher, each, wanted[each["name"]]) for each in raw["scenarios"] if wanted.get(each["name"])]
    publish("toolsets", [_table(found), _checks(found)], {"model": searcher.model_id, "scenarios": found})


def _scenario(searcher: Searcher, raw: Mapping[str, Any], expected: Sequence[str]) -> Scenario:
    asked = dict.fromkeys(call["args"]["query"] for call in raw["calls"] if "query" in call["args"])
    suggested = {text: suggest_toolsets(searcher.search(Query(text=text, limit=LIMIT))) for text in asked}
    return Scenario(
        name=raw["name"],
        expected=tuple(RENAMED.get(name, name) for name in expected),
        suggested={text: tuple(name for name, _ in ranked[:SUGGESTED]) for text, ranked in suggested.items()},
    )


def _table(found: Sequence[Scenario]) -> Table:
    rows = tuple(
        (
            each.name,
            ", ".join(each.expected),
            "; ".join(dict.fromkeys(names[0] if names else NOTHING for names in each.suggested.values())),
            "yes" if each.found else "no",
            "yes" if each.first else "no",
        )
        for each in found
    )
    columns = ("scenario", "expected", "first suggestions", "expected among the first 3", "expected first")
    return Table("Toolsets that a search suggests", columns, rows)


def _checks(found: Sequence[Scenario]) -> Table:
    suggested, first = sum(each.found for each in found), sum(each.first for each in found)
    rows = (
        ("every scenario gets some expected toolset suggested", suggested == len(found), f"{suggested}/{len(found)}"),
        (f"first for one of its queries in at least {FIRST_IN}", first >= FIRST_IN, f"{first}/{len(found)}"),
    )
    said = tuple((asked, "holds" if holds else "DOES NOT HOLD", figures) for asked, holds, figures in rows)
    return Table("What is asked", ("asked", "", "figures"), said)


if __name__ == "__main__":
    main()
