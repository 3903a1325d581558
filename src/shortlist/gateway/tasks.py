"""Work that runs beside requests, contained: a failure is logged with its origin, counted, and ends nothing else."""

import logging
from collections import Counter
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Self, TypeAlias

import anyio

Work: TypeAlias = Callable[[], Awaitable[object]]

logger = logging.getLogger(__name__)


class BackgroundTasks:
    """An async context manager. Leaving it cancels whatever still runs."""

    def __init__(self) -> None:
        self._tasks = anyio.create_task_group()
        self.failures: Counter[str] = Counter()
        """How much work failed, by its origin."""

    def spawn(self, origin: str, work: Work) -> None:
        """Run something beside the request that caused it. `origin` names it in the log."""
        self._tasks.start_soon(self.contained, origin, work)

    async def contained(self, origin: str, work: Work) -> None:
        """Wait for something whose failure must not reach the caller."""
        try:
            await work()
        except Exception as error:
            self.failures[origin] += 1
            logger.warning("%s failed: %s: %s", origin, type(error).__name__, error)
            logger.debug("%s failed", origin, exc_info=error)

    async def __aenter__(self) -> Self:
        await self._tasks.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._tasks.cancel_scope.cancel()
        await self._tasks.__aexit__(kind, error, trace)
