"""Set the scanner's thresholds for the classifier in the package, and print what they flag of real tools.

    python -m training.poison.thresholds --english -1.2 0.8 --foreign -0.8 0.6

The tools are those of the servers that the classifier was not trained on (`folds.SERVERS_OF_FINAL`); it takes half an
hour on two cores. The thresholds are written to `head.json` first.
"""

import argparse
import functools
import json
import multiprocessing
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor

from shortlist.cli.pinning import open_scanner
from shortlist.index.passages import PassageClassifier
from shortlist.trust.definitions import ToolDefinition
from shortlist.trust.verdicts import DefinitionScanner
from training.poison.fit import OUT, REAL, collected_tools, real_tools
from training.poison.folds import SERVERS_OF_FINAL, server_fold

KINDS = ("english", "foreign")
AT_ONCE = 50


@functools.cache
def scanner() -> DefinitionScanner:
    return open_scanner()


def levels(definitions: Sequence[ToolDefinition]) -> list[str]:
    return [scanner().scan(definition).level for definition in definitions]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for kind in KINDS:
        parser.add_argument(f"--{kind}", type=float, nargs=2, required=True, metavar=("SUSPICIOUS", "DANGEROUS"))
    options = parser.parse_args()
    head = json.loads(OUT.read_text("utf-8"))
    head["classifier"] = PassageClassifier().card.digest
    for kind in KINDS:
        head[kind]["suspicious"], head[kind]["dangerous"] = getattr(options, kind)
    OUT.write_text(json.dumps(head) + "\n", "utf-8")
    sources = {"catalogs": real_tools(*REAL), "packages": collected_tools()}
    with ProcessPoolExecutor(mp_context=multiprocessing.get_context("spawn")) as processes:
        for name, tools in sources.items():
            left_out = [tool for tool in tools if server_fold(tool.server) in SERVERS_OF_FINAL]
            parts = [left_out[start : start + AT_ONCE] for start in range(0, len(left_out), AT_ONCE)]
            found = Counter(level for part in processes.map(levels, parts) for level in part)
            shares = {level: f"{100 * count / len(left_out):.2f} %" for level, count in found.items()}
            print(f"{name}: {len(left_out)} tools, {shares}", flush=True)


if __name__ == "__main__":
    main()
