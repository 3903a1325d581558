"""Two gateways that share servers over stdio: one runs the process, the other reaches it through the first."""

import json
import socket
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import anyio
import httpx2
import pytest
import uvicorn
from starlette.applications import Starlette

from shortlist.config import ServerSettings
from shortlist.front import leases as renewing
from shortlist.front.leases import Lending, SharedLeases
from shortlist.front.peers import Peers
from shortlist.storage.shared import LEASE_SECONDS, Holder, ReplicaStore, SharedStores
from shortlist.upstream.errors import UpstreamNotSent, UpstreamRefused, UpstreamUnavailable
from shortlist.upstream.events import CallOptions, Notified
from shortlist.upstream.leases import ATTACH_PATH
from shortlist.upstream.pool import UpstreamPool
from tests.upstream.support import DEADLINE_SECONDS, Recorder, pool_of, script
from tests.upstream.test_pool import Person

pytestmark = pytest.mark.anyio
OLD, MODERN = script("old", "watchable"), script("modern", "stdio", file="modern.py")
ASKING = script("asking", file="../storage/asking_server.py")


@dataclass(slots=True)
class MemoryLeases:
    """Leases that expire when a test says so."""

    holders: dict[str, Holder] = field(default_factory=dict)

    def take(self, key: str, replica: str, url: str) -> Holder:
        return self.holders.setdefault(key, Holder(replica, url))

    def renew(self, replica: str, keys: Sequence[str]) -> dict[str, str]:  # noqa: ARG002
        return {key: self.holders[key].replica for key in keys if key in self.holders}

    def release(self, key: str, replica: str) -> None:
        if key in self.holders and self.holders[key].replica == replica:
            del self.holders[key]


@dataclass(slots=True)
class SharingGateway:
    """A pool whose servers another one can use."""

    pool: UpstreamPool
    recorder: Recorder
    peers: Peers
    is_closing: bool = False

    async def process(self) -> str:
        return text_of(await self.pool.call_tool("asking", "who", {}))

    @property
    def has_come_back(self) -> bool:
        states = self.recorder.states("asking")
        return "stale" in states and states[-1] == "ready"

    async def seen(self) -> dict[str, Any]:
        return cast("dict[str, Any]", json.loads(text_of(await self.pool.call_tool("old", "seen", {}))))


def text_of(result: dict[str, Any]) -> str:
    return str(result["content"][0]["text"])


@asynccontextmanager
async def gateway(
    store: MemoryLeases, *servers: ServerSettings, clock: Callable[[], float] = time.monotonic, **more: Any
) -> AsyncIterator[SharingGateway]:
    """Run a gateway that takes leases, and lends its servers over HTTP."""
    stores = SharedStores(
        sessions=cast("Any", None),
        replicas=cast("Any", None),
        leases=store,
        grants=cast("Any", None),
        changes=cast("Any", None),
        key=lambda _: b"k" * 32,
        spooled=lambda _: 0,
    )
    peers = Peers(cast("ReplicaStore", None))
    leases = SharedLeases(stores, peers, clock)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        peers.url = f"http://127.0.0.1:{listening.getsockname()[1]}"
        peers.has_joined.set()
        async with leases.renewed(), pool_of(*servers, leases=leases, **more) as (pool, recorder):
            running = SharingGateway(pool, recorder, peers)

            @contextmanager
            def admitted() -> Any:
                yield not running.is_closing

            app = Starlette(routes=[Lending(pool, leases, admitted).route()])
            server = uvicorn.Server(uvicorn.Config(app, lifespan="off", log_level="critical"))
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(server._serve, [listening])
                try:
                    yield running
                finally:
                    server.should_exit = server.force_exit = True


@asynccontextmanager
async def pair(*servers: ServerSettings, **more: Any) -> AsyncIterator[tuple[SharingGateway, SharingGateway]]:
    """Run two gateways; the first runs the servers."""
    store = MemoryLeases()
    async with gateway(store, *servers, **more) as one, gateway(store, *servers, **more) as two:
        yield one, two


async def until(condition: Callable[[], bool]) -> None:
    with anyio.fail_after(DEADLINE_SECONDS):
        while not condition():
            await anyio.sleep(0.005)


async def test_a_server_runs_once_and_both_gateways_use_it() -> None:
    async with pair(OLD) as (one, two):
        assert one.recorder.tools("old")[0].tools == two.recorder.tools("old")[0].tools
        await one.pool.call_tool("old", "echo", {})
        await two.pool.call_tool("old", "echo", {})
        assert (await one.seen())["calls"] == 3
        assert (await two.seen())["calls"] == 4
        with pytest.raises(UpstreamRefused, match="no such luck"):
            await two.pool.call_tool("old", "refuse", {})


async def test_progress_and_questions_reach_the_gateway_of_the_caller() -> None:
    heard: list[tuple[float, float | None, str | None]] = []

    async def on_progress(progress: float, total: float | None, message: str | None) -> None:
        heard.append((progress, total, message))

    person = Person()
    async with pair(OLD, client=person) as (_, two):
        await two.pool.call_tool("old", "slow", {}, options=CallOptions(on_progress=on_progress))
        await until(lambda: heard == [(1.0, 2.0, "half")])
        answered = await two.pool.call_tool("old", "ask", {}, options=CallOptions(caller="alice"))
        assert json.loads(text_of(answered))["action"] == "accept"
        assert person.asked[0][3] == ("alice",)


async def test_a_call_that_is_cancelled_is_cancelled_at_the_server(tmp_path: Path) -> None:
    file = tmp_path / "never"
    async with pair(ASKING) as (_, two), anyio.create_task_group() as tasks:
        tasks.start_soon(two.pool.call_tool, "asking", "wait", {"file": str(file)})
        await until(Path(f"{file}.calls").exists)
        tasks.cancel_scope.cancel()
        with anyio.CancelScope(shield=True):
            await until(Path(f"{file}.cancelled").exists)


async def test_a_modern_server_is_modern_through_another_gateway_and_announces_its_changes() -> None:
    async with pair(MODERN) as (one, two):
        assert two.pool.status()["modern"].era == "modern"
        first = await two.pool.call_tool("modern", "confirm", {"text": "x"})
        assert first["resultType"] == "input_required"
        await one.pool.call_tool("modern", "grow", {})
        await two.recorder.until(lambda event: any("grown" in tool.name for tool in getattr(event, "tools", ())))
        await two.pool.watch("modern", ["file:///a"])
        heard = two.recorder.events
        with anyio.fail_after(DEADLINE_SECONDS):
            while not any(isinstance(event, Notified) and event.params.get("uri") == "file:///a" for event in heard):
                await one.pool.call_tool("modern", "touch", {"text": "file:///a"})


async def test_the_other_gateway_starts_the_server_when_the_first_one_leaves() -> None:
    store, runs, leaves = MemoryLeases(), anyio.Event(), anyio.Event()

    async def first() -> None:
        async with gateway(store, OLD):
            runs.set()
            await leaves.wait()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(first)
        await runs.wait()
        async with gateway(store, OLD) as two:
            await two.pool.call_tool("old", "echo", {})
            leaves.set()
            await until(lambda: [each.replica for each in store.holders.values()] == [str(two.peers.number)])
            assert (await two.seen())["calls"] == 1


async def test_a_gateway_that_lost_its_lease_ends_its_process_and_a_running_call_fails_with_a_reason(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(renewing, "RENEW_SECONDS", 0.02)
    store, file = MemoryLeases(), tmp_path / "never"
    async with gateway(store, ASKING) as one, gateway(store, ASKING) as two:
        before = await one.process()
        assert await two.process() == before

        async def wait() -> None:
            with pytest.raises(UpstreamUnavailable, match="may have received the request"):
                await two.pool.call_tool("asking", "wait", {"file": str(file)})

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(wait)
            await until(Path(f"{file}.calls").exists)
            key = next(iter(store.holders))
            store.holders[key] = Holder(str(two.peers.number), two.peers.url)
        await until(lambda: all(each.has_come_back for each in (one, two)))
        after = await two.process()
        assert after != before
        assert await one.process() == after
        assert Path(f"{file}.calls").read_text() == "called\n"


async def test_a_gateway_that_was_stopped_and_goes_on_sends_nothing_to_a_server_that_another_one_runs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(renewing, "RENEW_SECONDS", 3_600.0)
    store, stopped = MemoryLeases(), [0.0]
    async with (
        gateway(store, ASKING, clock=lambda: time.monotonic() + stopped[0]) as one,
        gateway(store, ASKING) as two,
    ):
        before = await one.process()
        assert await two.process() == before
        key = next(iter(store.holders))
        store.holders[key] = Holder(str(two.peers.number), two.peers.url)
        stopped[0] = LEASE_SECONDS + 1
        with suppress(UpstreamNotSent):  # where the new connection is not there yet
            assert await one.process() != before
        await until(lambda: all(each.has_come_back for each in (one, two)))
        after = await one.process()
        assert after != before
        assert await two.process() == after


async def test_a_request_to_a_gateway_that_is_stopping_is_not_sent() -> None:
    async with pair(OLD) as (one, two):
        one.is_closing = True
        with pytest.raises(UpstreamUnavailable, match="was not sent"):
            await two.pool.call_tool("old", "echo", {})
        assert (await one.seen())["calls"] == 1


@pytest.mark.parametrize("authorization", ["", "Bearer nonsense", f"Bearer {(b'x' * 32).hex()}"])
async def test_only_gateways_on_the_same_store_reach_a_server(authorization: str) -> None:
    async with gateway(MemoryLeases(), OLD) as one, httpx2.AsyncClient() as client:
        headers = {"Authorization": authorization} if authorization else {}
        answer = await client.post(f"{one.peers.url}{ATTACH_PATH}", content=b"{}\n", headers=headers)
        assert answer.status_code == 404
