"""Pools over real server processes, and a way to wait for what they do."""

import os
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from subprocess import PIPE, Popen
from typing import Any

import anyio

from shortlist.config import HttpTransport, Limits, ServerSettings, StdioTransport
from shortlist.upstream.events import State, StateChanged, ToolsChanged, UpstreamEvent
from shortlist.upstream.grants import LoginKey, TokenGrant
from shortlist.upstream.host import Cadence
from shortlist.upstream.pool import UpstreamPool

SERVERS = Path(__file__).parent.parent / "servers"
DEADLINE_SECONDS = 60.0
QUICK = Cadence(first_retry_seconds=0.02, longest_retry_seconds=0.1, relist_gap_seconds=0.01, ping_seconds=600)
ENVIRONMENT = {"PATH": os.environ["PATH"]}


class Recorder:
    """Keeps every event and wakes whoever waits for one."""

    def __init__(self) -> None:
        self.events: list[UpstreamEvent] = []
        self._pulse = anyio.Event()

    def __call__(self, event: UpstreamEvent) -> None:
        self.events.append(event)
        self._pulse.set()
        self._pulse = anyio.Event()

    async def until(self, matches: Callable[[UpstreamEvent], bool]) -> UpstreamEvent:
        """Return the first event, past or future, that matches; fail past the deadline."""
        with anyio.fail_after(DEADLINE_SECONDS):
            while not (found := [event for event in self.events if matches(event)]):
                await self._pulse.wait()
        return found[0]

    async def state(self, server: str, state: State) -> StateChanged:
        def matches(event: UpstreamEvent) -> bool:
            return isinstance(event, StateChanged) and (event.server, event.status.state) == (server, state)

        found = await self.until(matches)
        assert isinstance(found, StateChanged)
        return found

    def states(self, server: str) -> list[State]:
        return [e.status.state for e in self.events if isinstance(e, StateChanged) and e.server == server]

    def tools(self, server: str) -> list[ToolsChanged]:
        return [event for event in self.events if isinstance(event, ToolsChanged) and event.server == server]


def script(name: str, *args: str, file: str = "misbehaving.py", **more: Any) -> ServerSettings:
    """Settings of a server that runs one of the scripts in tests/servers."""
    transport = StdioTransport(command=sys.executable, args=(str(SERVERS / file), *args), environment=ENVIRONMENT)
    return ServerSettings(name=name, transport=transport, **more)


def web(name: str, url: str, headers: Mapping[str, str] | None = None, **more: Any) -> ServerSettings:
    return ServerSettings(name=name, transport=HttpTransport(url=url, headers=headers or {}), **more)


@asynccontextmanager
async def pool_of(
    *servers: ServerSettings, cadence: Cadence = QUICK, wait: bool = True, **more: Any
) -> AsyncIterator[tuple[UpstreamPool, Recorder]]:
    """Start a pool and wait until every server is ready or has failed."""
    recorder = Recorder()
    named = {settings.name: settings for settings in servers}
    async with UpstreamPool(named, on_event=recorder, cadence=cadence, **more) as pool:
        if wait:
            await pool.settled(DEADLINE_SECONDS)
        yield pool, recorder


@contextmanager
def http_server(kind: str = "http", *args: str) -> Iterator[str]:
    """Run tests/servers/modern.py over HTTP and give its base address."""
    command = [sys.executable, str(SERVERS / "modern.py"), kind, *args]
    with Popen(command, stdout=PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield f"http://127.0.0.1:{int(process.stdout.readline())}"
        finally:
            process.terminate()


def text_of(result: Mapping[str, Any]) -> str:
    text: str = result["content"][0]["text"]
    return text


SMALL = Limits(message_bytes=1_000_000)


class MemoryLogins:
    """Grants that end with the process."""

    def __init__(self, kept: Mapping[LoginKey, TokenGrant] | None = None) -> None:
        self._kept = dict(kept or {})

    async def get(self, key: LoginKey) -> TokenGrant | None:
        return self._kept.get(key)

    async def put(self, key: LoginKey, grant: TokenGrant) -> None:
        self._kept[key] = grant

    async def remove(self, key: LoginKey) -> None:
        self._kept.pop(key, None)

    @asynccontextmanager
    async def refreshing(self, _: LoginKey) -> AsyncIterator[None]:
        yield
