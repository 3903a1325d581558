"""Values of single queries, kept beside the results, so that a later commit is compared query by query."""

import gzip
import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
from benchmarks.quality_checks import paired
from benchmarks.quality_data import Answers

from shortlist.evals.cells import label
from shortlist.evals.compare import SIGNIFICANT
from shortlist.evals.tables import Table

COMPARED = ("ndcg@10", "top1")
DIGITS = 5


def write_queries(path: Path, answers: Mapping[str, Answers]) -> None:
    """Keep the values of every query of the default pipeline; ids and figures, no text."""
    kept = {
        name: {"ids": found.ids, **{metric: found.values[metric].round(DIGITS).tolist() for metric in COMPARED}}
        for name, found in answers.items()
    }
    path.write_bytes(gzip.compress(json.dumps(kept).encode(), mtime=0))


def read_queries(path: Path) -> dict[str, Answers]:
    kept = json.loads(gzip.decompress(path.read_bytes()))
    return {
        name: Answers(
            ids=tuple(found["ids"]),
            splits=("",) * len(found["ids"]),
            values={metric: np.array(found[metric]) for metric in COMPARED},
            empty=0,
        )
        for name, found in kept.items()
    }


def against(now: Mapping[str, Answers], before: Mapping[str, Answers], name: str) -> Table:
    """Compare each set with the earlier results on the same queries, and all of them together."""
    both = [each for each in now if each in before]
    rows = [(each, str(len(now[each].ids)), *_cells(now, before, [each])) for each in both]
    if len(both) > 1:
        rows.append(("macro average", "–", *_cells(now, before, both)))
    columns = ("set", "queries", *(f"{label(m)}, {what}" for m in COMPARED for what in ("before", "now", "difference")))
    note = f"Paired test over the queries; a difference with p < {SIGNIFICANT} is significant."
    return Table(f"The default pipeline against {name}", columns, tuple(rows), (note,))


def _cells(now: Mapping[str, Answers], before: Mapping[str, Answers], sets: list[str]) -> list[str]:
    cells: list[str] = []
    for metric in COMPARED:
        mine, theirs = ([_rounded(who[each]) for each in sets] for who in (now, before))
        means = [100 * float(np.mean([found.values[metric].mean() for found in each])) for each in (theirs, mine)]
        cells += [*(f"{mean:.1f}" for mean in means), str(paired(mine, theirs, metric))]
    return cells


def _rounded(found: Answers) -> Answers:
    """Return the values as they are kept, so that equal ones compare as equal."""
    return replace(found, values={metric: found.values[metric].round(DIGITS) for metric in COMPARED})
