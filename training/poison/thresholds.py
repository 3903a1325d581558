"""Choose the scanner's thresholds for the classifier in the package, in a quarter of an hour on two cores.

    python -m training.poison.thresholds --english 0.006 0.0012 --foreign 0.003 0.0007

Each pair of rates says which share of the real tools that the classifier was not trained on
(`folds.SERVERS_OF_FINAL`) may be flagged, and called dangerous, by passages in English or in other languages. Writes
the thresholds to `head.json`. What the structure of a definition tells needs no threshold and is not counted.
"""

import argparse
import functools
import json
import math
import multiprocessing
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from shortlist.index.passages import PassageClassifier
from shortlist.trust.definitions import ToolDefinition
from shortlist.trust.head import Head, Mixture, shipped_head
from shortlist.trust.scanner import Scanner
from training.poison.fit import OUT, REAL, collected_tools, real_tools
from training.poison.folds import SERVERS_OF_FINAL, server_fold

KINDS = ("english", "foreign")
LOWER = 1.5
"""How far below the thresholds of before the new ones may lie."""
AT_ONCE = 50


@functools.cache
def reader() -> tuple[Scanner, Head]:
    """Return a scanner with lowered thresholds, and what it judges by."""
    head = shipped_head()
    head = replace(head, english=lowered(head.english), foreign=lowered(head.foreign))
    return Scanner(PassageClassifier(), head), head


def lowered(mixture: Mixture) -> Mixture:
    return replace(mixture, suspicious=mixture.suspicious - LOWER, dangerous=mixture.suspicious - LOWER)


def highest(definitions: Sequence[ToolDefinition]) -> list[list[float]]:
    """Return the thresholds below which definitions are flagged and dangerous: English, then other languages."""
    scanner, head = reader()
    found = []
    for definition in definitions:
        best = {kind: [-math.inf, -math.inf] for kind in KINDS}
        for each, passage in scanner.readings(definition):
            mixture = best["foreign" if each.mixture is head.foreign else "english"]
            for place, bound in enumerate((passage.suspicious, passage.dangerous)):
                score = min(passage.score, each.mixture.highest(each.quick, each.words))
                mixture[place] = max(mixture[place], score - (bound - each.mixture.suspicious))
        found.append([*best["english"], *best["foreign"]])
    return found


def threshold(scores: NDArray[np.float64], rate: float) -> float:
    """Return what a share of the tools exceeds: between the scores on both sides."""
    ranked = np.sort(scores)[::-1]
    place = round(rate * len(ranked))
    if not np.isfinite(ranked[place]):
        raise SystemExit(f"Fewer than {place} tools score high enough: ask for a rate below {rate}, or raise LOWER.")
    return round(float(ranked[place - 1] + ranked[place]) / 2, 2)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for kind in KINDS:
        parser.add_argument(f"--{kind}", type=float, nargs=2, required=True, metavar=("FLAGGED", "DANGEROUS"))
    options = parser.parse_args()
    tools = [d for d in (*real_tools(*REAL), *collected_tools()) if server_fold(d.server) in SERVERS_OF_FINAL]
    parts = [tools[start : start + AT_ONCE] for start in range(0, len(tools), AT_ONCE)]
    with ProcessPoolExecutor(mp_context=multiprocessing.get_context("spawn")) as processes:
        scores = np.array([row for part in processes.map(highest, parts) for row in part])
    head = json.loads(OUT.read_text("utf-8"))
    head["classifier"] = PassageClassifier().card.digest
    for place, kind in enumerate(KINDS):
        flagged, dangerous = getattr(options, kind)
        head[kind]["suspicious"] = threshold(scores[:, 2 * place], flagged)
        head[kind]["dangerous"] = threshold(scores[:, 2 * place + 1], dangerous)
        print(f"{kind}: {head[kind]}")
    OUT.write_text(json.dumps(head) + "\n", "utf-8")
    print(f"{len(tools)} real tools")


if __name__ == "__main__":
    main()
