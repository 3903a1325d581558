"""Runs `shortlist` and, at each SIGUSR1, writes down how many objects of each type are alive.

COUNTS_FILE=counts.json python -m benchmarks.stress.counted serve ...
"""

import gc
import json
import os
import signal
import sys
from collections import Counter
from pathlib import Path

from shortlist.cli import main


def write_counts(*_: object) -> None:
    """Count what the garbage collector knows after a collection; what was frozen at the start is not among it."""
    gc.collect()
    counts = Counter(f"{type(each).__module__}.{type(each).__qualname__}" for each in gc.get_objects())
    path = Path(os.environ["COUNTS_FILE"])
    part = path.with_suffix(".part")
    part.write_text(json.dumps(counts))
    part.replace(path)


if __name__ == "__main__":
    signal.signal(signal.SIGUSR1, write_counts)
    sys.exit(main())
