"""Whether stated probabilities are true, and whether "none" is said when it should: python -m benchmarks.calibration.

Three things, all with what was fitted on training sets only: stated probability against observed, pooled and per set;
"none" for the queries of one set against the catalog of an unrelated one, and wrongly against their own; and how well
the match probability tells a catalog that has the tool from the same catalog without it and its family.
"""

import argparse
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from benchmarks.calibration_plot import plot
from benchmarks.measuring import publish, spread
from benchmarks.quality_data import SETS, Model, progress, say

from shortlist.catalog.catalog import Catalog
from shortlist.errors import InvalidQuery
from shortlist.evals import cells
from shortlist.evals.calibration import auroc, calibration_bins, expected_calibration_error
from shortlist.evals.cases import Case
from shortlist.evals.contender import refuse_if_fitted
from shortlist.evals.datasets import Dataset, load_dataset, read_catalogs
from shortlist.evals.metrics import marks, strict_groups
from shortlist.evals.significance import Values, bootstrap
from shortlist.evals.tables import Table
from shortlist.index.cache import StoredVectors
from shortlist.index.embedders import shipped
from shortlist.models import Confidence, Filters, Query, SearchResult, ToolId
from shortlist.paths import cache_folder
from shortlist.search.fusion import NO_MATCH
from shortlist.search.searcher import Searcher, SearchOptions
from shortlist.storage.sqlite_vectors import SqliteVectors
from shortlist.text.tokens import compact

PLOT = Path("docs/images/calibration.svg")
LIMIT = 5
MANY = 300
POOLED_LIMIT, SET_LIMIT = 0.05, 0.10
NONE_SHARE, FALSE_SHARE = 0.90, 0.05
POOLED_QUERIES = 5_000
UNRELATED = (
    ("azure_mcp", "stackone_270"),
    ("azure_mcp", "portkey_120"),
    ("azure_mcp_jan2026", "mcptoolbenchpp"),
    ("metatool:heldout_tools", "azure_mcp"),
    ("stackone_270", "mcptoolbenchpp"),
    ("stackone_270", "azure_mcp"),
    ("portkey_120", "azure_mcp"),
    ("toolret_apigen", "azure_mcp"),
    ("sealtools_out_domain", "stackone_270"),
    ("toollens_test", "azure_mcp"),
    ("nodebench_175", "azure_mcp"),
    ("mcptoolbenchpp", "stackone_270"),
)
"""Queries of the first against the catalog of the second: another trade, so hardly any has a tool there."""
REMOVED = tuple(name for name in SETS if name not in ("mcp_union", "mcp_union_unseen"))
"""Where a tool can be taken out with all that does the same; the unions hold too many relatives."""


@dataclass(frozen=True, slots=True)
class Stated:
    """What was stated for every query of a set against one catalog, and whether the first hit was right."""

    sure: tuple[Confidence, ...]
    right: Values

    @property
    def probabilities(self) -> Values:
        return np.array([each.probability for each in self.sure])

    @property
    def matches(self) -> Values:
        return np.array([each.match_probability for each in self.sure])

    @property
    def none(self) -> Values:
        return np.array([each.level == "none" for each in self.sure], np.float64)


class Searches:
    """Searchers over the catalogs of sets; queries are embedded once, catalogs one at a time."""

    def __init__(self, embedder: str) -> None:
        found = shipped(embedder)
        cache = StoredVectors(SqliteVectors(cache_folder() / "vectors.sqlite"))
        self._model = Model(found, cache) if found else None
        self._options = SearchOptions(cache=cache)

    def over(self, dataset: Dataset) -> Searcher:
        searcher = Searcher(read_catalogs(dataset.catalogs).catalog, self._model, options=self._options)
        searcher.prepare(progress(f"{dataset.name} vectors"))
        refuse_if_fitted(searcher.pipeline.fitted_on, dataset)
        return searcher


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sets", nargs="+", default=list(SETS), metavar="NAME[:SPLIT]")
    parser.add_argument("--embedder", default="small", help="small, static, none or a folder with a model")
    parser.add_argument("--sample", type=int, default=500, help="queries of a set against other catalogs, at most")
    parser.add_argument("--plot", type=Path, default=PLOT)
    parser.add_argument("--name", default="calibration", help="what the file of results is called")
    options = parser.parse_args()
    searches = Searches(options.embedder)
    datasets = {name: load_dataset(name) for name in options.sets}
    own: dict[str, Stated] = {}
    removed: dict[str, tuple[Stated, Stated]] = {}
    elsewhere: dict[tuple[str, str], Stated] = {}
    for name, dataset in datasets.items():
        searcher = searches.over(dataset)
        own[name] = _stated(searcher, dataset.cases, name)
        if name in REMOVED:
            removed[name] = _with_and_without(searcher, dataset, options.sample)
        for asked in (one for one, other in UNRELATED if other == name and one in datasets):
            cases = spread(datasets[asked].cases, options.sample)
            elsewhere[asked, name] = _stated(searcher, cases, f"{asked} against {name}")
    _draw(own, options.plot)
    _publish(options, own, {pair: elsewhere[pair] for pair in UNRELATED if pair in elsewhere}, removed)


def _stated(searcher: Searcher, cases: Sequence[Case], what: str) -> Stated:
    show, sure, right = progress(what), [], []
    for done, case in enumerate(cases, start=1):
        result = _search(searcher, Query(text=case.query, limit=LIMIT))
        sure.append(result.confidence if result else NO_MATCH)
        right.append(_right(result, case))
        show(done, len(cases))
    return Stated(tuple(sure), np.array(right))


def _with_and_without(searcher: Searcher, dataset: Dataset, sample: int) -> tuple[Stated, Stated]:
    """Ask with the whole catalog, and with the right tools and their relatives out of it."""
    cases = spread(dataset.cases, sample)
    without, names = [], _by_name(searcher.catalog)
    for case in cases:
        gone = _family(case, searcher.catalog, names)
        result = _search(searcher, Query(text=case.query, limit=LIMIT, filters=Filters(exclude=gone)))
        without.append(result.confidence if result else NO_MATCH)
    say(f"{dataset.name}: {len(cases)} without their tools")
    return _stated(searcher, cases, f"{dataset.name} with"), Stated(tuple(without), np.zeros(len(cases)))


def _family(case: Case, catalog: Catalog, names: Mapping[str, frozenset[ToolId]]) -> frozenset[ToolId]:
    """Return the right tools, those that the labels call equivalent, and those of the same name on other servers."""
    named = [names[compact(catalog.tools[each].name)] for each in case.gold if each in catalog.tools]
    return frozenset(case.gold).union(*case.groups, *named)


def _by_name(catalog: Catalog) -> dict[str, frozenset[ToolId]]:
    found: dict[str, set[ToolId]] = {}
    for tool in catalog.tools.values():
        found.setdefault(compact(tool.name), set()).add(tool.id)
    return {name: frozenset(ids) for name, ids in found.items()}


def _search(searcher: Searcher, query: Query) -> SearchResult | None:
    try:
        return searcher.search(query)
    except InvalidQuery:  # an empty query finds nothing; the rest of the set still counts
        return None


def _right(result: SearchResult | None, case: Case) -> float:
    ids = [hit.tool.id for hit in result.hits[:1]] if result else []
    return float(sum(marks(ids, case.groups or strict_groups(case.gold))))


def _pooled(own: Mapping[str, Stated]) -> tuple[Values, Values]:
    stated = [each.probabilities for each in own.values()]
    return np.concatenate(stated), np.concatenate([each.right for each in own.values()])


def _sets(own: Mapping[str, Stated]) -> dict[str, Stated]:
    """Put the parts of a set together again where it was asked by part."""
    parts: dict[str, list[Stated]] = {}
    for name, stated in own.items():
        parts.setdefault(name.partition(":")[0], []).append(stated)
    return {
        name: Stated(tuple(sure for s in found for sure in s.sure), np.concatenate([s.right for s in found]))
        for name, found in parts.items()
    }


def _draw(own: Mapping[str, Stated], path: Path) -> None:
    large = {name: calibration_bins(s.probabilities, s.right) for name, s in own.items() if len(s.sure) >= MANY}
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(plot(calibration_bins(*_pooled(own)), large, "Calibration, 10 bins of equal mass"), "utf-8")


def _publish(
    options: argparse.Namespace,
    own: Mapping[str, Stated],
    elsewhere: Mapping[tuple[str, str], Stated],
    removed: Mapping[str, tuple[Stated, Stated]],
) -> None:
    sets = _sets(own)
    errors = {n: expected_calibration_error(s.probabilities, s.right) for n, s in (sets | dict(own)).items()}
    tables = [
        _error_table(own, sets, errors),
        _bin_table(own),
        _none_table(elsewhere, own),
        _removed_table(removed),
        _check_table(own, sets, errors, elsewhere),
    ]
    data: dict[str, Any] = {
        "embedder": options.embedder if not Path(options.embedder).is_dir() else "a folder",
        "pooled": {"queries": sum(len(s.sure) for s in own.values()), "ece": expected_calibration_error(*_pooled(own))},
        "bins": calibration_bins(*_pooled(own)),
        "sets": {name: {"queries": len(s.sure), "ece": errors[name]} for name, s in (sets | dict(own)).items()},
        "none_elsewhere": {f"{one} against {other}": bootstrap([s.none]) for (one, other), s in elsewhere.items()},
        "none_at_home": {name: bootstrap([own[name].none]) for name in own},
        "removed": {name: {"auroc": _auroc(*pair), "none": pair[1].none.mean()} for name, pair in removed.items()},
    }
    publish(options.name, tables, data)


def _error_table(own: Mapping[str, Stated], sets: Mapping[str, Stated], errors: Mapping[str, float]) -> Table:
    pooled = _pooled(own)
    rows = [("all, pooled", pooled, expected_calibration_error(*pooled))]
    rows += [(name, (s.probabilities, s.right), errors[name]) for name, s in (dict(own) | dict(sets)).items()]
    shown = tuple(
        (
            name,
            f"{len(stated):,}",
            cells.percent(stated.mean()),
            cells.percent(right.mean()),
            f"{error:.3f}",
            f"{auroc(stated, right > 0):.3f}",
        )
        for name, (stated, right), error in rows
    )
    columns = ("set", "queries", "stated", "right", "calibration error", "AUROC of right first hits")
    return Table("Stated probability against observed, 10 bins of equal mass", columns, shown)


def _bin_table(own: Mapping[str, Stated]) -> Table:
    rows = tuple(
        (f"{each.count:,}", cells.percent(each.stated), cells.percent(each.observed))
        for each in calibration_bins(*_pooled(own))
    )
    return Table("The pooled bins", ("queries", "stated", "right"), rows)


def _none_table(elsewhere: Mapping[tuple[str, str], Stated], own: Mapping[str, Stated]) -> Table:
    rows = [
        (
            one,
            other,
            f"{len(s.sure):,}",
            cells.interval(bootstrap([s.none])),
            cells.interval(bootstrap([own[one].none])),
        )
        for (one, other), s in elsewhere.items()
    ]
    columns = ("queries of", "against the catalog of", "queries", "answered “none”", "“none” on their own catalog")
    return Table("Abstention", columns, tuple(rows))


def _removed_table(removed: Mapping[str, tuple[Stated, Stated]]) -> Table:
    rows = [
        (
            name,
            f"{len(home.sure):,}",
            f"{_auroc(home, gone):.3f}",
            cells.percent(gone.none.mean()),
            cells.percent(home.none.mean()),
        )
        for name, (home, gone) in removed.items()
    ]
    if removed:
        homes, gones = zip(*removed.values(), strict=True)
        scores = np.concatenate([each.matches for each in (*homes, *gones)])
        there = np.concatenate([np.full(len(s.sure), at, bool) for at, side in ((1, homes), (0, gones)) for s in side])
        rows.append(("all, pooled", f"{len(there) // 2:,}", f"{auroc(scores, there):.3f}", "", ""))
    columns = ("set", "queries", "AUROC of the match probability", "“none” without the tool", "“none” with it")
    note = "The right tools, their equivalents and tools of the same name are filtered out of their own catalog."
    return Table("With the right tool removed", columns, tuple(rows), (note,))


def _auroc(home: Stated, gone: Stated) -> float:
    there = np.arange(len(home.sure) + len(gone.sure)) < len(home.sure)
    return auroc(np.concatenate([home.matches, gone.matches]), there)


def _check_table(
    own: Mapping[str, Stated],
    sets: Mapping[str, Stated],
    errors: Mapping[str, float],
    elsewhere: Mapping[tuple[str, str], Stated],
) -> Table:
    rows = [(what, "holds" if holds else "DOES NOT HOLD", said) for what, holds, said in _checks(own, sets, errors)]
    if elsewhere:
        said, wrongly = [s.none for s in elsewhere.values()], [s.none for s in own.values()]
        none, false = bootstrap(said), bootstrap(wrongly)
        rows.append(
            _line("“none” for unrelated catalogs, macro, at least 90 %", none.mean >= NONE_SHARE, cells.interval(none))
        )
        rows.append(
            _line("“none” on their own catalogs, macro, at most 5 %", false.mean <= FALSE_SHARE, cells.interval(false))
        )
    return Table("What is asked", ("asked", "", "figures"), tuple(rows))


def _line(asked: str, holds: bool, figures: str) -> tuple[str, str, str]:
    return asked, "holds" if holds else "DOES NOT HOLD", figures


def _checks(
    own: Mapping[str, Stated], sets: Mapping[str, Stated], errors: Mapping[str, float]
) -> Iterator[tuple[str, bool, str]]:
    stated, right = _pooled(own)
    error = expected_calibration_error(stated, right)
    yield f"at least {POOLED_QUERIES:,} queries", len(stated) >= POOLED_QUERIES, f"{len(stated):,}"
    yield "pooled calibration error at most 0.05", error <= POOLED_LIMIT, f"{error:.3f}"
    for name in (name for name, s in (dict(own) | dict(sets)).items() if len(s.sure) >= MANY):
        yield f"{name}: calibration error at most 0.10", errors[name] <= SET_LIMIT, f"{errors[name]:.3f}"


if __name__ == "__main__":
    main()
