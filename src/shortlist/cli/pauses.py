"""Keeps garbage collection from slowing a start and from stopping the event loop, and returns freed memory."""

import asyncio
import gc
import os
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
ARENAS = 2
"""Where threads allocate memory. Each arena keeps what is freed in it, and Python runs one thread at a time anyway."""
M_ARENA_MAX = -8
"""The name of this parameter in glibc's malloc.h."""


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


def share_arenas() -> None:
    """Let all threads allocate from a few arenas; glibc makes up to eight for each core, as threads come and go."""
    if "MALLOC_ARENA_MAX" not in os.environ and (set_option := _of_glibc("mallopt")) is not None:
        set_option(M_ARENA_MAX, ARENAS)


async def return_memory() -> None:
    """Return freed memory to the system now and then; the allocator returns only what lies at the end of its heap."""
    trim = _of_glibc("malloc_trim")
    while trim is not None:
        await anyio.sleep(RETURN_SECONDS)
        await anyio.to_thread.run_sync(trim, 0)


def _of_glibc(name: str) -> Callable[..., int] | None:
    """Return a function of glibc; None where the C library is another one."""
    if sys.platform != "linux":
        return None
    import ctypes  # noqa: PLC0415 - only a gateway needs it

    found: Callable[..., int] | None = getattr(ctypes.CDLL(None), name, None)
    return found
