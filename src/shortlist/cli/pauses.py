"""Keeps garbage collection from slowing a start and from stopping the event loop, and returns freed memory."""

import asyncio
import gc
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import anyio
import anyio.to_thread

FREEZE_SECONDS = (1.0, 10.0, 60.0)
"""When, one after the other: servers, the index and the vectors arrive in the first minute."""

BUSY_TASKS = 200
"""With more tasks, many clients are connected. What their sessions have allocated must stay collectable."""
RETURN_SECONDS = 30.0
"""How often freed memory is returned; it takes a millisecond."""


@contextmanager
def no_collection() -> Iterator[None]:
    """Collect no garbage before the first freeze: what a start loads stays, and walking it takes time."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


async def keep_pauses_short() -> None:
    """Exclude what was loaded at the start from garbage collection: walking it stops the loop for 0.1 s."""
    for seconds in FREEZE_SECONDS:
        await anyio.sleep(seconds)
        gc.enable()
        while len(asyncio.all_tasks()) > BUSY_TASKS:
            await anyio.sleep(FREEZE_SECONDS[-1])
            gc.collect()  # what these sessions left must not be frozen
        gc.freeze()


async def return_memory() -> None:
    """Return freed memory to the system now and then; the allocator returns only what lies at the end of its heap."""
    trim = _trim()
    while trim is not None:
        await anyio.sleep(RETURN_SECONDS)
        await anyio.to_thread.run_sync(trim, 0)


def _trim() -> Callable[[int], int] | None:
    """Return glibc's `malloc_trim`; None where the C library is another one."""
    if sys.platform != "linux":
        return None
    import ctypes  # noqa: PLC0415 - no part of a start

    trim: Callable[[int], int] | None = getattr(ctypes.CDLL(None), "malloc_trim", None)
    return trim
