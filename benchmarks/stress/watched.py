"""Runs `shortlist` and writes down how long its event loop and its garbage collections paused.

    PAUSES_FILE=pauses.json python -m benchmarks.stress.watched serve ...

A pause counts as far as the process used the CPU in it: what other processes take away is no pause of this one.
"""

import gc
import json
import os
import sys
import threading
from pathlib import Path
from time import perf_counter, process_time, thread_time
from typing import Any

import anyio

from shortlist.cli import main, stack
from shortlist.cli.pauses import keep_pauses_short

TICK_SECONDS = 0.005
WRITE_SECONDS = 2.0
WARM_UP_SECONDS = 75.0
"""What is loaded at the start is frozen within 71 seconds; until then pauses are counted apart."""


class Pauses:
    """The longest pauses since the start, in milliseconds."""

    def __init__(self) -> None:
        self._began = perf_counter()
        self._collecting = 0.0
        self._found = {"loop, warming up": 0.0, "loop": 0.0, "garbage, warming up": 0.0, "garbage": 0.0}
        self._above = 0

    def note(self, kind: str, seconds: float) -> None:
        name = f"{kind}, warming up" if perf_counter() - self._began < WARM_UP_SECONDS else kind
        self._found[name] = max(self._found[name], round(1000 * seconds, 2))
        if name == "loop" and seconds > 0.025:
            self._above += 1

    def collected(self, phase: str, _: dict[str, Any]) -> None:
        """Time a garbage collection, by the CPU of the thread that does it: the loop waits for that one alone."""
        if phase == "start":
            self._collecting = thread_time()
        else:
            self.note("garbage", thread_time() - self._collecting)

    async def watch_loop(self) -> None:
        while True:
            due, used = perf_counter() + TICK_SECONDS, process_time()
            await anyio.sleep(TICK_SECONDS)
            self.note("loop", min(max(0.0, perf_counter() - due), process_time() - used))

    def write_now_and_then(self, path: Path) -> None:
        while True:
            threading.Event().wait(WRITE_SECONDS)
            part = path.with_suffix(".part")
            part.write_text(json.dumps({**self._found, "loop pauses above 25 ms": self._above}))
            part.replace(path)


def run() -> int:
    """Serve, watched."""
    pauses, keep_short = Pauses(), keep_pauses_short
    gc.callbacks.append(pauses.collected)
    path = Path(os.environ["PAUSES_FILE"])
    threading.Thread(target=pauses.write_now_and_then, args=[path], daemon=True).start()

    async def watched() -> None:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(keep_short)
            tasks.start_soon(pauses.watch_loop)

    vars(stack)["keep_pauses_short"] = watched
    return main()


if __name__ == "__main__":
    sys.exit(run())
