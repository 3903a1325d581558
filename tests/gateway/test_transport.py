"""Idle legacy sessions, and the event streams on which their clients listen."""

import asyncio
from contextlib import AsyncExitStack
from typing import Any

import anyio
import pytest

from shortlist.front import transport
from tests.gateway.support import Fixture
from tests.gateway.test_shared_sessions import KnownSessions, gateway

pytestmark = [pytest.mark.anyio, pytest.mark.filterwarnings("ignore::mcp.MCPDeprecationWarning")]
SESSIONS = 5


async def tasks_beside(before: set["asyncio.Task[Any]"], count: int) -> None:
    while len(asyncio.all_tasks() - before) != count:
        await anyio.sleep(0.01)


async def test_an_idle_session_runs_one_task_and_a_client_that_listens_only_that_of_its_request() -> None:
    async with gateway(KnownSessions(), Fixture("alpha")) as (_, clients), AsyncExitStack() as stack:
        await clients.open(1)
        before = asyncio.all_tasks()
        opened = await clients.open(SESSIONS)
        await tasks_beside(before, SESSIONS)
        for session in opened:
            await stack.enter_async_context(session.listening())
        await tasks_beside(before, 2 * SESSIONS)


async def test_a_stream_is_kept_open_by_pings_refuses_a_second_one_and_ends_with_its_session(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(transport, "PING_SECONDS", 0.01)
    async with gateway(KnownSessions(), Fixture("alpha")) as (_, clients):
        (session,) = await clients.open(1)
        async with session.listening() as response:
            parts = response.aiter_bytes()
            assert response.status_code == 200
            assert response.headers["mcp-session-id"] == session.headers["Mcp-Session-Id"]
            assert await anext(parts) == b": ping\r\n\r\n"
            async with session.listening() as second:
                assert second.status_code == 409
            await session.end()
            assert b"".join([part async for part in parts]).replace(b": ping\r\n\r\n", b"") == b""
