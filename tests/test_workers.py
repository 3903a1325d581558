"""Work in other processes: who waits for whom, what is killed, and how many processes there are."""

import errno
import os
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest

from shortlist import workers
from shortlist.workers import QUICK_PLACES, SLOW_PLACES, WorkerFailed, WorkerTimedOut, WorkOwner, run_apart

pytestmark = pytest.mark.anyio
LONG = 3600.0


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@asynccontextmanager
async def working(*owners: WorkOwner) -> AsyncIterator[list[str]]:
    """Begin work without an end for each owner, and wait until the slow places are taken that it may take."""
    ended: list[str] = []

    async def work(owner: WorkOwner) -> None:
        try:
            await run_apart(time.sleep, LONG, seconds=LONG, owner=owner)
        except WorkerFailed as error:
            ended.append(str(error))

    async with anyio.create_task_group() as tasks:
        for owner in owners:
            tasks.start_soon(work, owner)
        slow = min(len({owner.server for owner in owners}), SLOW_PLACES)
        with anyio.fail_after(60):
            while len(workers._places().slow) < slow:
                await anyio.sleep(0.01)
        yield ended
        tasks.cancel_scope.cancel()


async def test_work_whose_time_is_over_is_killed() -> None:
    with pytest.raises(WorkerTimedOut, match="longer than 1 s"):
        await run_apart(time.sleep, LONG, seconds=1.0, owner=WorkOwner("a"))


async def test_slow_work_keeps_nobody_waiting_neither_its_own_server_nor_its_own_caller() -> None:
    async with working(WorkOwner("bad", "mallory"), WorkOwner("worse", "mallory")) as ended:
        for owner in (WorkOwner("good", "alice"), WorkOwner("bad", "alice"), WorkOwner("good", "mallory"), WorkOwner()):
            assert await run_apart(abs, -1, seconds=LONG, owner=owner) == 1
        assert not ended


@pytest.mark.parametrize("good", [WorkOwner("good"), WorkOwner("server 0", "alice"), WorkOwner("good", "mallory")])
async def test_slow_work_that_finds_no_slow_place_ends_as_soon_as_somebody_else_waits(good: WorkOwner) -> None:
    servers = [WorkOwner(f"server {number}", "mallory") for number in range(SLOW_PLACES)]
    async with working(*servers, *servers):  # as many have no slow place
        assert await run_apart(abs, -1, seconds=LONG, owner=good) == 1


async def test_slow_work_ends_for_no_other_work_of_the_same_server_and_caller() -> None:
    async with working(*[WorkOwner("bad", "mallory")] * 3) as ended:
        assert await run_apart(abs, -1, seconds=LONG, owner=WorkOwner("good", "alice")) == 1
        assert not ended


async def test_nobody_has_two_quick_places_and_all_take_turns() -> None:
    places = workers._Places(anyio.CapacityLimiter(1))
    flood = [workers._Job(WorkOwner("bad", f"caller {number}")) for number in range(5)]
    other, good = workers._Job(WorkOwner("other", "caller 0")), workers._Job(WorkOwner("good", "alice"))
    async with anyio.create_task_group() as tasks:
        for job in (*flood, other, good):
            tasks.start_soon(places.enter, job)
        await anyio.wait_all_tasks_blocked()
        assert places.quick == [flood[0], good]
        places.leave(good)
        assert places.quick == [flood[0]]
        places.leave(flood[0])
        assert places.quick == [flood[1], other]
        tasks.cancel_scope.cancel()


async def test_there_are_never_more_processes_than_places_and_two_are_kept() -> None:
    async def work(number: int) -> None:
        found.add(await run_apart(os.getpid, seconds=60.0, owner=WorkOwner(f"server {number}")))

    found: set[int] = set()
    async with working(WorkOwner("bad"), WorkOwner("worse")), anyio.create_task_group() as tasks:
        for number in range(20):
            tasks.start_soon(work, number)
    assert 1 <= len(found) <= QUICK_PLACES
    assert len(workers._idle) <= QUICK_PLACES


async def test_a_process_that_needs_too_much_memory_fails_and_the_next_one_works() -> None:
    with pytest.raises(WorkerFailed, match="MemoryError"):
        await run_apart(bytearray, 2 * workers.MOST_BYTES, seconds=60.0, owner=WorkOwner("a"))
    assert await run_apart(abs, -1, seconds=60.0, owner=WorkOwner("a")) == 1


async def test_a_process_that_died_is_replaced() -> None:
    with pytest.raises(WorkerFailed, match="no worker process could do it"):
        await run_apart(os._exit, 1, seconds=60.0, owner=WorkOwner("a"))
    assert await run_apart(abs, -1, seconds=60.0, owner=WorkOwner("a")) == 1


async def test_whoever_waits_in_vain_is_told_that_others_were_working() -> None:
    places = workers._places()
    places.quick += [workers._Job(WorkOwner("a")), workers._Job(WorkOwner("b"))]
    with pytest.raises(WorkerFailed, match="other checks took more than"):
        await run_apart(abs, 1, seconds=0.1, owner=WorkOwner("c"))
    assert not places.waiting


async def test_a_process_that_cannot_be_started_fails_the_work(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object, **__: object) -> None:
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(workers, "_idle", [])
    monkeypatch.setattr(subprocess, "Popen", refused)
    with pytest.raises(WorkerFailed, match="could be started"):
        await run_apart(abs, -1, seconds=60.0, owner=WorkOwner("a"))
    places, job = workers._places(), workers._Job(WorkOwner("a"))
    places.quick.append(job)
    places.tire(job)
    assert places.slow == [job]


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
async def test_an_idle_process_keeps_nothing_of_its_last_work() -> None:
    await run_apart(abs, -1, seconds=60.0, owner=WorkOwner("a"))
    pid = await run_apart(os.getpid, seconds=60.0, owner=WorkOwner("a"))
    before = _resident_bytes(pid)
    await run_apart(len, bytes(100_000_000), seconds=60.0, owner=WorkOwner("a"))
    with anyio.fail_after(10):
        while _resident_bytes(pid) > before + 50_000_000:
            await anyio.sleep(0.01)


def _resident_bytes(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
