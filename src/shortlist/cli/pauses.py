"""Keeps garbage collection from slowing a start and from stopping the event loop, and returns freed memory."""

import gc
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import anyio
import anyio.to_thread

FREEZE_SECONDS = (1.0, 10.0, 60.0)
"""When, one after the other: servers, the index and the vectors arrive in the first minute."""

QUIET_CPU = 0.02
"""Below this share of one core the process does next to nothing, and nobody waits for a full collection."""
QUIET_SECONDS = 5.0
GROWN_OBJECTS = 250_000
"""How many more objects than after the last full collection make another one worth its pause."""
MOST_GROWN_OBJECTS = 2_000_000
"""How many more are collected even while clients wait: a process that is never quiet must not grow without end."""
COLLECTIONS_A_COUNT = 20
"""How many collections of the young generations pass before a busy process counts what is frozen, which walks it."""
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
    """Exclude what stays from garbage collection: walking it stops the loop for 0.1 s.

    Calls and sessions are freed by reference counting, so what outlives the young generations is rarely garbage. Each
    collection of them is followed by a freeze, and a full one waits until the process has next to nothing to do.
    """
    for seconds in FREEZE_SECONDS:
        await anyio.sleep(seconds)
        gc.enable()
        gc.freeze()
    gc.callbacks.append(_freeze_survivors)
    try:
        await _collect_when_quiet()
    finally:
        gc.callbacks.remove(_freeze_survivors)


def _freeze_survivors(phase: str, info: dict[str, int]) -> None:
    """Keep the oldest generation empty, so that nothing walks it while clients wait."""
    if phase == "stop" and info["generation"] > 0:
        gc.freeze()


async def _collect_when_quiet() -> None:
    """Collect the garbage among everything that was frozen, once much was and nobody waits, or far too much was."""
    known, counted = gc.get_freeze_count(), _collections()
    while True:
        used = time.process_time()
        await anyio.sleep(QUIET_SECONDS)
        is_quiet = time.process_time() - used < QUIET_CPU * QUIET_SECONDS
        if _collections() - counted < (1 if is_quiet else COLLECTIONS_A_COUNT):
            continue
        counted = _collections()
        if gc.get_freeze_count() > known + (GROWN_OBJECTS if is_quiet else MOST_GROWN_OBJECTS):
            gc.unfreeze()
            gc.collect()  # and freeze: what is left survived
            known = gc.get_freeze_count()


def _collections() -> int:
    return int(gc.get_stats()[1]["collections"])


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
