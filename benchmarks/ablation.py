"""What each part of the default pipeline earns, on average over the sets: python -m benchmarks.ablation.

Every retriever and stage off in turn, the fixed weight in place of the adaptive fusion, and the reading of queries
without its expansions and without taking requests for several things apart. `shortlist ablate SET` shows one set by
segments, with the queries that move.
"""

import argparse
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

from benchmarks.measuring import publish
from benchmarks.quality_checks import DEFAULT, FIXED, Difference, paired
from benchmarks.quality_data import BY_SPLIT, METRICS, SINGLE, Answers, Model, asked, marked, say

from shortlist.evals import cells
from shortlist.evals.bench import Bench
from shortlist.evals.cells import label
from shortlist.evals.datasets import Dataset, load_dataset, read_catalogs
from shortlist.evals.report import MARK_NOTE
from shortlist.evals.runner import LIMIT
from shortlist.evals.significance import macro
from shortlist.evals.tables import Table
from shortlist.index.cache import StoredVectors
from shortlist.index.embedders import shipped
from shortlist.models import Query, ToolId
from shortlist.paths import cache_folder
from shortlist.search.searcher import Searcher, SearchOptions
from shortlist.storage.sqlite_vectors import SqliteVectors
from shortlist.text.queries import Expansions

SETS = (*SINGLE, "authored_dev", "metatool:multi")
FULL = "nothing: the default pipeline"
Rank: TypeAlias = Callable[[str], Sequence[ToolId]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sets", nargs="+", default=list(SETS), metavar="NAME[:SPLIT]")
    parser.add_argument("--embedder", default="small", help="small, static or a folder with a model")
    parser.add_argument("--name", default="ablation", help="what the file of results is called")
    options = parser.parse_args()
    embedder = shipped(options.embedder)
    if embedder is None:
        parser.error("there is little to switch off without a model")
    model = Model(embedder, StoredVectors(SqliteVectors(cache_folder() / "vectors.sqlite")))
    found: dict[str, dict[str, Answers]] = {}
    for name in options.sets:
        dataset = load_dataset(name)
        for part, rank in _variants(dataset, model).items():
            ranked = asked(dataset.cases, rank, f"{name} without {part}")
            found.setdefault(part, {})[name] = marked(dataset, dataset.cases, ranked)
    say("significance")
    changes = {part: _changes(found[FULL], found[part]) for part in found if part != FULL}
    data = {"embedder": model.model_id, "sets": options.sets, "changes": changes, "means": _means(found)}
    publish(options.name, [_macro_table(found, changes), _set_table(found)], data)


def _variants(dataset: Dataset, model: Model) -> dict[str, Rank]:
    """Return the default pipeline whole and less each of its parts."""
    catalog = read_catalogs(dataset.catalogs).catalog
    bench = Bench(catalog, model, vectors=model.cache)
    contenders = {FULL: bench.contender(DEFAULT), **bench.without_each(DEFAULT)}
    contenders["dense"] = Bench(catalog).contender(
        DEFAULT
    )  # what is fitted for words alone, as users without a model have
    contenders["adaptive fusion (a fixed weight instead)"] = bench.contender(FIXED)
    ranks: dict[str, Rank] = {part: _ids(contender.rank) for part, contender in contenders.items()}
    reading = {
        "query expansions": SearchOptions(expansions=Expansions({}, {}), cache=model.cache),
        "several things apart": SearchOptions(clauses=False, cache=model.cache),
    }
    for part, options in reading.items():
        searcher = Searcher(catalog, model, options=options)
        searcher.prepare()
        ranks[part] = _hits(searcher)
    return ranks


def _ids(rank: Callable[[str, int], Any]) -> Rank:
    return lambda text: rank(text, LIMIT).ids


def _hits(searcher: Searcher) -> Rank:
    return lambda text: [hit.tool.id for hit in searcher.search(Query(text=text, limit=LIMIT)).hits]


def _changes(full: Mapping[str, Answers], without: Mapping[str, Answers]) -> dict[str, Difference]:
    whole, less = ([side[name] for name in full] for side in (full, without))
    return {metric: paired(less, whole, metric) for metric in METRICS}


def _means(found: Mapping[str, Mapping[str, Answers]]) -> dict[str, dict[str, dict[str, float]]]:
    return {part: {name: _mean(name, a) for name, a in sets.items()} for part, sets in found.items()}


def _mean(name: str, answers: Answers) -> dict[str, float]:
    return {metric: macro(answers.strata(metric, by_split=name in BY_SPLIT)) for metric in METRICS}


def _macro_table(found: Mapping[str, Mapping[str, Answers]], changes: Mapping[str, Mapping[str, Difference]]) -> Table:
    whole = (FULL, *(cells.percent(macro([a.values[metric] for a in found[FULL].values()])) for metric in METRICS))
    rows = [
        (part, *(f"{100 * each.mean:+.2f}{cells.mark(each.p_value)}" for each in by_metric.values()))
        for part, by_metric in changes.items()
    ]
    return Table("Off, and what that changes on average", ("off", *map(label, METRICS)), (whole, *rows), (MARK_NOTE,))


def _set_table(found: Mapping[str, Mapping[str, Answers]]) -> Table:
    rows = tuple(
        (part, *(cells.percent(_mean(n, a)["ndcg@10"]) for n, a in sets.items())) for part, sets in found.items()
    )
    return Table("nDCG@10 by set", ("off", *found[FULL]), rows)


if __name__ == "__main__":
    main()
