"""Garbage collection while a gateway starts, and memory that goes back to the system."""

import gc
import os
import subprocess
import sys
from pathlib import Path

import anyio
import pytest

from shortlist.cli import pauses
from shortlist.cli.pauses import no_collection


def test_collection_is_off_during_a_start_and_on_again_after_it() -> None:
    assert gc.isenabled()
    with no_collection():
        assert not gc.isenabled()
    assert gc.isenabled()


def test_collection_that_was_off_stays_off() -> None:
    gc.disable()
    try:
        with no_collection():
            assert not gc.isenabled()
        assert not gc.isenabled()
    finally:
        gc.enable()


@pytest.mark.anyio
@pytest.mark.skipif(pauses._of_glibc("malloc_trim") is None, reason="the C library cannot return memory on demand")
async def test_freed_memory_is_returned_though_something_behind_it_is_still_used(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(pauses, "RETURN_SECONDS", 0.0)
    block, count = 64 * 1024, 2_000  # below the size that glibc maps, and returns, by itself
    blocks = [b"x" * block for _ in range(count)]
    kept, blocks = blocks[::100], []
    before = resident_bytes()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(pauses.return_memory)
        with anyio.fail_after(60):
            while resident_bytes() > before - block * count // 2:
                await anyio.sleep(0.01)
        tasks.cancel_scope.cancel()
    assert len(kept) == count // 100


@pytest.mark.skipif(pauses._of_glibc("mallopt") is None, reason="the C library has no arenas")
def test_threads_share_a_few_arenas() -> None:
    program = """
import ctypes, threading
from shortlist.cli.pauses import share_arenas
share_arenas()
together = threading.Barrier(12)
def work():
    together.wait()
    block = b"x" * 100_000
    together.wait()
threads = [threading.Thread(target=work) for _ in range(12)]
for thread in threads: thread.start()
for thread in threads: thread.join()
ctypes.CDLL(None).malloc_stats()
"""
    without = {name: value for name, value in os.environ.items() if name != "MALLOC_ARENA_MAX"}
    told = subprocess.run([sys.executable, "-c", program], env=without, check=True, capture_output=True, text=True)
    assert 1 <= told.stderr.count("Arena ") <= pauses.ARENAS


KEEPING = """
import gc, weakref, anyio
from shortlist.cli import pauses

class Knot:
    def __init__(self):
        self.me = self

async def main():
    pauses.FREEZE_SECONDS, pauses.QUIET_SECONDS = (0.0,), 0.001
    gc.set_threshold(500, 3, 10)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(pauses.keep_pauses_short)
        while pauses._freeze_survivors not in gc.callbacks:
            await anyio.sleep(0.001)
        await work()
        tasks.cancel_scope.cancel()
"""


def run_keeping(work: str) -> str:
    """Run some work while pauses are kept short, in a process whose objects may be frozen; return what it printed."""
    program = f"{KEEPING}\n{work}\nanyio.run(main)"
    return subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True).stdout.strip()


def test_a_collection_walks_nothing_that_outlived_the_young_generations() -> None:
    work = """
async def work():
    kept = [[number] for number in range(100_000)]
    print(len(gc.get_objects(generation=2)) < 5_000, len(kept))
"""
    assert run_keeping(work) == "True 100000"


@pytest.mark.parametrize(
    ("quiet_cpu", "most", "is_freed"),
    [(1e9, 1_000_000, True), (0.0, 1_000_000, False), (0.0, 20_000, True)],
    ids=["quiet", "busy", "busy, with far too much of it"],
)
def test_garbage_that_was_frozen_is_collected_when_nobody_waits_or_when_it_is_far_too_much(
    quiet_cpu: float, most: int, is_freed: bool
) -> None:
    work = f"""
async def work():
    pauses.QUIET_CPU, pauses.GROWN_OBJECTS, pauses.MOST_GROWN_OBJECTS = {quiet_cpu}, 10_000, {most}
    knot = Knot()
    found = weakref.ref(knot)
    kept = [[number] for number in range(100_000)]
    del knot
    for _ in range(100):
        await anyio.sleep(0.005)
    print(found() is None, len(kept))
"""
    assert run_keeping(work) == f"{is_freed} 100000"


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
