"""Garbage collection while a gateway starts, and memory that goes back to the system."""

import gc
import os
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
@pytest.mark.skipif(pauses._trim() is None, reason="the C library cannot return memory on demand")
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


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
