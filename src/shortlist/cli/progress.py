"""A line on stderr that counts; silent when nobody watches."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from shortlist.index.embedders import Progress


@contextmanager
def progress_bar(label: str) -> Iterator[Progress]:
    """Give a callback that shows how much is done."""
    shown = sys.stderr.isatty()

    def show(done: int, total: int) -> None:
        if shown:
            print(f"\r{label}: {done}/{total}", end="", file=sys.stderr, flush=True)

    try:
        yield show
    finally:
        if shown:
            print("\r\033[K", end="", file=sys.stderr, flush=True)
