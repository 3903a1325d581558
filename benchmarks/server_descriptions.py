"""What a server's own description is worth to the search for its tools: python -m benchmarks.server_descriptions.

The same queries through a `ToolFilter` with and without `include_server_description`, on the sets whose servers
describe themselves. Descriptions are searched by words, so a model in the mix changes how much they count.
"""

import argparse
import os
import tempfile
from collections.abc import Sequence
from typing import Any

import numpy as np
from benchmarks.measuring import publish, spread

from shortlist.evals.cases import Case
from shortlist.evals.datasets import load_dataset, read_catalogs
from shortlist.evals.metrics import measure
from shortlist.evals.significance import paired_p_value
from shortlist.evals.tables import Table
from shortlist.library.filter import ToolFilter

SETS = ("golden", "mcpbench", "authored_dev", "toolbench_g3")
METRICS = ("lenient_top1", "lenient_ndcg@10")
LIMIT = 10


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sets", nargs="+", default=list(SETS))
    parser.add_argument("--models", nargs="+", default=["none", "static"])
    parser.add_argument("--sample", type=int, default=2_000, help="how many queries of a set at most")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        os.environ["XDG_CACHE_HOME"] = folder
        found = [_compared(name, model, options.sample) for name in options.sets for model in options.models]
    publish("server-descriptions", [_table(found)], {"rows": found})


def _compared(name: str, model: str, sample: int) -> dict[str, Any]:
    dataset = load_dataset(name)
    cases = [case for case in spread(dataset.cases, sample) if case.answerable]
    catalog = read_catalogs(dataset.catalogs).catalog
    described = sum(len(catalog.members[name]) for name, s in catalog.servers.items() if s.description)
    scores = {
        included: _scores(ToolFilter(catalog, embedding=model, include_server_description=included), cases)
        for included in (False, True)
    }
    return {
        "set": name,
        "model": model,
        "queries": len(cases),
        "described": described / len(catalog),
        "without": scores[False].mean(axis=0).tolist(),
        "with": scores[True].mean(axis=0).tolist(),
        "p": [paired_p_value([scores[True][:, i] - scores[False][:, i]]) for i in range(len(METRICS))],
    }


def _scores(tools: ToolFilter, cases: Sequence[Case]) -> Any:
    found = []
    for case in cases:
        ranked = [hit.tool.id for hit in tools.search(case.query, limit=LIMIT).hits]
        values = measure(ranked, case.gold, case.groups)
        found.append([values[metric] for metric in METRICS])
    return np.array(found)


def _table(found: Sequence[dict[str, Any]]) -> Table:
    rows = tuple(
        (
            row["set"],
            f"{row['queries']:,}",
            f"{row['described']:.0%}",
            row["model"],
            *(f"{row['without'][i]:.1%} → {row['with'][i]:.1%} (p {row['p'][i]:.2f})" for i in range(len(METRICS))),
        )
        for row in found
    )
    columns = ("set", "queries", "tools with a described server", "model", "top-1", "nDCG@10")
    return Table("Server descriptions: without → with", columns, rows)


if __name__ == "__main__":
    main()
