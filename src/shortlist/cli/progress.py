"""Progress output on stderr."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from shortlist.index.embedders import Progress

LOGGED_EVERY = 1_000


@contextmanager
def progress_bar(label: str) -> Iterator[Progress]:
    """Yield a callback that shows progress on a terminal and is silent elsewhere."""
    shown = sys.stderr.isatty()

    def show(done: int, total: int) -> None:
        if shown:
            print(f"\r{label}: {done}/{total}", end="", file=sys.stderr, flush=True)

    try:
        yield show
    finally:
        if shown:
            print("\r\033[K", end="", file=sys.stderr, flush=True)


def counted(what: str) -> Progress:
    """Rewrite one line on a terminal; write few lines into a log."""

    def show(done: int, total: int) -> None:
        if sys.stderr.isatty():
            print(f"\r{what}: {done}/{total}", end="\n" if done == total else "", file=sys.stderr, flush=True)
        elif done == total or done % LOGGED_EVERY == 0:
            say(f"{what}: {done}/{total}")

    return show


def say(text: str) -> None:
    print(text, file=sys.stderr)
