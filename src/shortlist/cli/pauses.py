"""Keeps garbage collection from slowing a start and from stopping the event loop."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager

import anyio

FREEZE_SECONDS = (1.0, 10.0, 60.0)
"""When, one after the other: servers, the index and the vectors arrive in the first minute."""


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
        gc.freeze()
        gc.enable()
