"""Check that a change of the code left every ranking as it was: record before it, compare after it.

    python -m benchmarks.parity record FILE                # the bundled golden set
    python -m benchmarks.parity compare FILE
    python -m benchmarks.parity record FILE --sets         # the sets of the benchmark data, with the model `static`

`tests/search/data/golden_rankings.json` is such a file. Record it again when a change is meant to alter rankings.
"""

import argparse
import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

from benchmarks.quality_data import SETS

from shortlist.evals.datasets import load_dataset, read_catalogs
from shortlist.models import Filters, Query, SearchMode

LIMIT = 5
PIPELINES = ("default", "rrf", "weighted", "stackone", "bm25", "tfidf")
MODES: Sequence[SearchMode] = ("lexical", "dense", "fuzzy", "prefix", "exact")
DEFAULT_EVERY, EVERY = 5, 25
"""One of so many golden queries is asked of the default pipeline, one of so many of all other pipelines and modes."""
SOME_SERVERS = frozenset({"github", "gitlab", "slack", "jira", "postgres", "drive"})

Rankings: TypeAlias = dict[str, list[list[Any]]]
"""By what was asked and how: the hits' ids and scores, and last the confidence."""


def golden_rankings(search: Callable[[Query], Any]) -> Rankings:
    """Ask the golden set: all of it by the default pipeline, a part by every other, filtered and collapsed."""
    return {name: _found(search(query)) for name, query in _golden_queries()}


def _golden_queries() -> Iterator[tuple[str, Query]]:
    cases = load_dataset("golden").cases
    for case in cases[::DEFAULT_EVERY]:
        yield f"default {case.id}", Query(text=case.query, limit=LIMIT)
    for case in [case for case in cases if case.gold][::EVERY]:
        for name in PIPELINES[1:]:
            yield f"{name} {case.id}", Query(text=case.query, limit=LIMIT, pipeline=name)
        for mode in MODES:
            text = case.gold[0].partition("/")[2][:9] if mode not in ("lexical", "dense") else case.query
            yield f"mode {mode} {case.id}", Query(text=text, limit=LIMIT, mode=mode)
        yield f"filtered {case.id}", Query(text=case.query, limit=LIMIT, filters=Filters(servers=SOME_SERVERS))
        yield f"collapsed {case.id}", Query(text=case.query, limit=60, collapse=True, diverse=True)


def _found(result: Any) -> list[list[Any]]:
    sure = result.confidence
    return [
        *([hit.tool.id, round(hit.score, 3)] for hit in result.hits[:LIMIT]),
        [sure.level, round(sure.probability, 3)],
    ]


def differences(before: Mapping[str, Rankings], after: Mapping[str, Rankings]) -> list[str]:
    """Return the differences between two recordings; scores may differ by rounding."""
    return [
        f"{model}: {asked}: {old} is now {new}"
        for model, rankings in before.items()
        for asked, old in rankings.items()
        if not _same(old, new := after.get(model, {}).get(asked, []))
    ]


def _same(old: Sequence[Sequence[Any]], new: Sequence[Sequence[Any]]) -> bool:
    return len(old) == len(new) and all(
        a[0] == b[0] and abs(a[1] - b[1]) <= 0.002 for a, b in zip(old, new, strict=True)
    )


def record_golden() -> dict[str, Rankings]:
    from shortlist.index.embedders import shipped
    from shortlist.search.searcher import Searcher

    catalog = read_catalogs(load_dataset("golden").catalogs).catalog
    recorded = {}
    for tier in ("none", "static"):
        searcher = Searcher(catalog, shipped(tier))
        searcher.prepare()
        recorded[tier] = golden_rankings(searcher.search)
    return recorded


def record_sets(names: Sequence[str]) -> dict[str, Rankings]:
    from shortlist.index.cache import StoredVectors
    from shortlist.index.embedders import shipped
    from shortlist.search.searcher import Searcher, SearchOptions
    from shortlist.storage.sqlite_vectors import SqliteVectors

    vectors = StoredVectors(SqliteVectors(Path(__file__).parent / ".cache" / "vectors.sqlite"))
    recorded = {}
    for name in names:
        dataset = load_dataset(name)
        print(f"{name}: {len(dataset.cases)} queries", file=sys.stderr)
        searcher = Searcher(
            read_catalogs(dataset.catalogs).catalog, shipped("static"), options=SearchOptions(cache=vectors)
        )
        searcher.prepare()
        recorded[name] = {
            case.id: _found(searcher.search(Query(text=case.query, limit=LIMIT))) for case in dataset.cases
        }
    return recorded


def read_rankings(path: Path) -> dict[str, Rankings]:
    """Read what was recorded: one line for each model or set."""
    lines = path.read_text("utf-8").splitlines()
    return {name: rankings for line in lines for name, rankings in json.loads(line).items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("action", choices=("record", "compare"))
    parser.add_argument("file", type=Path)
    parser.add_argument(
        "--sets", nargs="*", help="sets of the benchmark data instead of the golden set; all by default"
    )
    options = parser.parse_args()
    now = record_golden() if options.sets is None else record_sets(options.sets or SETS)
    if options.action == "record":
        lines = (json.dumps({model: rankings}, ensure_ascii=False) for model, rankings in now.items())
        options.file.write_text("\n".join(lines) + "\n", "utf-8")
        return
    before = read_rankings(options.file)
    found = differences(before, now)
    print("\n".join(found[:50]) or "every ranking is as it was recorded")
    sys.exit(bool(found))


if __name__ == "__main__":
    main()
