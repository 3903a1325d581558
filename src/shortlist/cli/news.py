"""News of changes that other gateways make in a shared store; without any, whoever follows changes polls."""

import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import anyio
import anyio.from_thread
import anyio.to_thread

from shortlist.storage.shared import Changes


class News:
    """Wakes whoever waits for a kind of change; what happens while nobody waits is not missed."""

    def __init__(self) -> None:
        self._waiting: dict[str, anyio.Event] = {}
        self.listeners: list[Callable[[str], None]] = []

    async def wait(self, kind: str, seconds: float) -> None:
        """Wait for a change of this kind, at most so long."""
        event = self._waiting.setdefault(kind, anyio.Event())
        with anyio.move_on_after(seconds):
            await event.wait()
        self._waiting[kind] = anyio.Event()

    def tell(self, what: str) -> None:
        """Wake those who wait for this change; all of them where anything may have changed."""
        kind = what.partition(" ")[0]
        for known, event in self._waiting.items():
            if not what or known == kind:
                event.set()
        for listener in self.listeners:
            listener(what)

    @asynccontextmanager
    async def following(self, changes: Changes | None) -> AsyncIterator[None]:
        """Hear the changes of a store until this ends."""
        if changes is None:
            yield
            return
        ended = threading.Event()

        def heard(what: str) -> None:
            if not ended.is_set():
                anyio.from_thread.run_sync(self.tell, what)

        async def listen() -> None:
            own = anyio.CapacityLimiter(1)
            await anyio.to_thread.run_sync(changes.listen, heard, ended, abandon_on_cancel=True, limiter=own)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(listen)
            try:
                yield
            finally:
                ended.set()
                tasks.cancel_scope.cancel()
