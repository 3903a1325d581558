"""Runs work that may take long in a process of its own, which is killed when its time is over.

A thread would not do: it holds the interpreter's lock while it parses or compares large values, and nothing ends it.
"""

from collections.abc import Callable
from typing import TypeVar, TypeVarTuple

import anyio
import anyio.to_process
from anyio.lowlevel import RunVar

Result = TypeVar("Result")
Arguments = TypeVarTuple("Arguments")

PROCESSES = 1
_limiter: RunVar[anyio.CapacityLimiter | None] = RunVar("worker processes", None)


class WorkerFailed(Exception):
    """The work took too long, or no process could do it."""


class WorkerTimedOut(WorkerFailed):
    """The work was begun, and ended when its time was over."""


async def run_apart(function: Callable[[*Arguments], Result], *arguments: *Arguments, seconds: float) -> Result:
    """Return what a function of a module returns; waiting for a free process counts as part of its time."""
    has_begun = False
    try:
        with anyio.fail_after(seconds):
            async with _one_at_a_time():
                has_begun = True
                return await anyio.to_process.run_sync(function, *arguments, cancellable=True)
    except TimeoutError:
        if has_begun:
            raise WorkerTimedOut(f"it takes longer than {seconds:g} s") from None
        raise WorkerFailed(f"other checks took more than {seconds:g} s") from None
    except (anyio.BrokenWorkerProcess, OSError) as error:
        raise WorkerFailed(f"no worker process could do it ({type(error).__name__})") from None


def _one_at_a_time() -> anyio.CapacityLimiter:
    limiter = _limiter.get()
    if limiter is None:
        limiter = anyio.CapacityLimiter(PROCESSES)
        _limiter.set(limiter)
    return limiter
