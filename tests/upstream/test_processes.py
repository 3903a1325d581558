"""Whatever ends the gateway, no process of a server is left, and no descriptor."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import anyio
import pytest
import uvloop

from shortlist.upstream.guardian import Guardian, pipe_file
from shortlist.upstream.isolation import IsolatedCommand
from tests.upstream.support import DEADLINE_SECONDS, ENVIRONMENT, QUICK, pool_of, script, text_of

linux = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
HOLDER = """
import anyio
from tests.upstream.support import pool_of, script

async def hold() -> None:
    async with pool_of(script("parent", "grandchild"), script("detached", "daemon"), script("deaf")) as (pool, _):
        lines = [line for status in pool.status().values() for line in status.stderr]
        print(*(line.split()[1] for line in lines if line.startswith(("grandchild", "daemon"))), flush=True)
        await anyio.sleep_forever()

anyio.run(hold)
"""


def _is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def _children(pid: int) -> list[int]:
    found: list[int] = []
    for child in map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split()):
        found += [child, *_children(child)]
    return found


@linux
def test_nothing_outlives_a_gateway_that_was_killed() -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen([sys.executable, "-c", HOLDER], stdout=subprocess.PIPE, text=True, env=environment) as holder:
        assert holder.stdout is not None
        named = [int(pid) for pid in holder.stdout.readline().split()]
        below = _children(holder.pid)
        assert len(named) == 2
        assert len(below) >= 5  # the guardian, three servers, and what they started
        holder.kill()
    deadline = time.monotonic() + DEADLINE_SECONDS
    while any(map(_is_running, (*named, *below))) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert [pid for pid in (*named, *below) if _is_running(pid)] == []


GUARDED = """
import asyncio, sys
from shortlist.upstream.guardian import Guardian
from shortlist.upstream.isolation import IsolatedCommand

async def hold() -> None:
    child = await Guardian().start(IsolatedCommand((sys.executable, "-c", sys.argv[1]), {}, None, {}))
    print((await child.stdout.readline()).decode().strip(), flush=True)
    await asyncio.sleep(600)

asyncio.run(hold())
"""
FROM_A_THREAD = """
import os, signal, threading, time
signal.signal(15, signal.SIG_IGN)

def leave():
    left = os.fork()
    if not left:
        os.setsid()
    else:
        print(left, flush=True)
    time.sleep(600)

threading.Thread(target=leave).start()
time.sleep(600)
"""
AT_THE_END_OF_A_CHAIN = """
import os, signal, time
signal.signal(15, signal.SIG_IGN)
for _ in range(1_050):
    if os.fork():
        time.sleep(600)
os.setsid()
print(os.getpid(), flush=True)
time.sleep(600)
"""


@linux
@pytest.mark.parametrize("program", [FROM_A_THREAD, AT_THE_END_OF_A_CHAIN], ids=["thread", "chain"])
def test_no_process_hides_from_the_guardian(program: str) -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    line = [sys.executable, "-c", GUARDED, program]
    with subprocess.Popen(line, stdout=subprocess.PIPE, text=True, env=environment) as holder:
        assert holder.stdout is not None
        hidden = int(holder.stdout.readline())
        holder.kill()
    deadline = time.monotonic() + DEADLINE_SECONDS
    while _is_running(hidden) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not _is_running(hidden)


@linux
@pytest.mark.anyio
async def test_servers_that_come_and_go_leave_no_descriptor_and_no_zombie() -> None:
    async def once() -> None:
        async with pool_of(script("one"), script("two"), script("mute", "fail-to-start")) as (pool, _):
            assert text_of(await pool.call_tool("one", "echo", {})) == "{}"

    await once()
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(3):
        await once()
    await anyio.lowlevel.checkpoint()
    assert len(os.listdir("/proc/self/fd")) <= before
    assert [pid for pid in _children(os.getpid()) if not _is_running(pid)] == []


def _guardians() -> set[int]:
    """Return the guardians of this process; pools of other tests may have left theirs."""
    found = set()
    for pid in _children(os.getpid()):
        with suppress(FileNotFoundError, ProcessLookupError):
            if "guardian" in Path(f"/proc/{pid}/cmdline").read_text():
                found.add(pid)
    return found


@linux
@pytest.mark.anyio
async def test_servers_start_again_when_the_guardian_itself_was_killed() -> None:
    patient = replace(QUICK, reconnect_seconds=DEADLINE_SECONDS)
    before = _guardians()
    async with pool_of(script("frail"), cadence=patient) as (pool, _):
        (guardian,) = _guardians() - before
        os.kill(guardian, 9)
        with pytest.raises(Exception, match="may have received"):
            await pool.call_tool("frail", "die", {})
        assert text_of(await pool.call_tool("frail", "echo", {})) == "{}"


@linux
@pytest.mark.anyio
async def test_a_start_that_was_given_up_is_not_taken_for_the_next_one() -> None:
    guardian, before = Guardian(), _guardians()
    first = await guardian.start(_printing_its_pid())
    (process,) = _guardians() - before
    os.kill(process, signal.SIGSTOP)
    with anyio.move_on_after(0.3):  # long enough to ask, and nobody answers
        await guardian.start(_printing_its_pid())
    os.kill(process, signal.SIGCONT)
    second = await guardian.start(_printing_its_pid())
    assert [int(await child.stdout.readline()) for child in (first, second)] == [first.pid, second.pid]
    with anyio.fail_after(DEADLINE_SECONDS):
        while set(_children(process)) != {first.pid, second.pid}:
            await anyio.sleep(0.01)
    await guardian.close()


@linux
@pytest.mark.anyio
async def test_a_guardian_that_is_closed_before_a_start_began_starts_again() -> None:
    guardian = Guardian()
    await guardian.start(_printing_its_pid())
    waiting = asyncio.create_task(guardian.start(_printing_its_pid()))
    await asyncio.sleep(0)
    await guardian.close()
    assert waiting.done()
    with anyio.fail_after(DEADLINE_SECONDS):
        await guardian.start(_printing_its_pid())
    await guardian.close()


def _printing_its_pid() -> IsolatedCommand:
    return IsolatedCommand(("/bin/sh", "-c", "trap '' PIPE HUP; echo $$; exec sleep 600"), ENVIRONMENT, None, {})


@pytest.mark.parametrize("new_loop", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_a_pipe_is_closed_once(new_loop: Callable[[], asyncio.AbstractEventLoop]) -> None:
    """Uvloop closes the descriptor itself; a second close would hit what another thread opened in the meantime."""

    async def closed_by_its_loop() -> None:
        loop = asyncio.get_running_loop()
        ours, theirs = os.pipe()
        file = pipe_file(loop, ours, "rb")
        transport, _ = await loop.connect_read_pipe(asyncio.Protocol, file)
        assert getattr(file, "closefd") is isinstance(loop, asyncio.BaseEventLoop)  # noqa: B009 - not in the type
        transport.close()
        while not file.closed:
            await asyncio.sleep(0)
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.fstat(ours)
        os.close(theirs)

    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(closed_by_its_loop())
