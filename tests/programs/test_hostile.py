"""Programs that try to get out, to stay, or to use more than they may: each is stopped, and the next one runs."""

import os
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import anyio
import pytest

from shortlist.code.report import ProgramReport
from shortlist.code.runner import MAX_PROGRAMS, CallWork, Sandbox
from shortlist.code.sandbox import NICENESS, Budget, Ended, ProgramSession, Script, Wanted, Workers
from shortlist.errors import InvalidInput
from shortlist.models import Json

pytestmark = pytest.mark.anyio

DEADLINE_SECONDS = 60.0


class Host:
    """Answers every call with its name, except `a.wait`, which never ends."""

    def __init__(self) -> None:
        self.made: list[str] = []
        self.waiting = anyio.Event()
        self.cancelled = anyio.Event()

    async def prepare(self, calls: Sequence[Wanted]) -> Sequence[CallWork | Exception]:
        return [self._work(wanted) for wanted in calls]

    def _work(self, wanted: Wanted) -> CallWork:
        async def work() -> Json:
            self.made.append(wanted.name)
            if wanted.name == "a.wait":
                self.waiting.set()
                try:
                    await anyio.sleep_forever()
                finally:
                    self.cancelled.set()
            return wanted.name

        return work


@asynccontextmanager
async def sandbox() -> AsyncIterator[Sandbox]:
    made = Sandbox()
    try:
        with anyio.fail_after(DEADLINE_SECONDS):
            yield made
    finally:
        await made.close()


async def run(code: str, **budget: float) -> tuple[ProgramReport, Host]:
    """Run a program, and then another one, which must not notice."""
    host = Host()
    async with sandbox() as programs:
        report = await programs.run(Script(source=code), host, Budget(**budget))  # type: ignore[arg-type]
        after = await programs.run(Script(source="1 + 1"), Host(), Budget())
    assert after.value == "2"
    return report, host


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        ("open('/etc/passwd').read()", "Permission denied"),
        ("from pathlib import Path\nPath('/etc/passwd').read_text()", "Permission denied"),
        ("import os\nos.listdir('/')", "Permission denied"),
        ("import os\nos.environ['HOME']", "not supported in this environment"),
        ("import os\nos.getenv('HOME')", "not supported in this environment"),
        ("import os\nos.system('true')", "no attribute"),
        ("import socket", "No module named 'socket'"),
        ("import subprocess", "No module named 'subprocess'"),
        ("import urllib.request", "No module named"),
        ("import ctypes", "No module named 'ctypes'"),
        ("import shortlist", "No module named 'shortlist'"),
        ("__import__('socket')", ""),
        ("exec('import socket')", "No module named 'socket'"),
        ("().__class__.__base__.__subclasses__()", ""),
        ("tools.__class__.__init__.__globals__", ""),
        ("tools.a.b.__globals__", ""),
        ("def f():\n    return f()\nf()", "RecursionError"),
        ("x = []\nwhile True:\n    x.append('y' * 100_000)", "MemoryError"),
        ("'x' * 10**12", "MemoryError"),
        ("10 ** 10 ** 10", ""),
        ("x = []\nfor _ in range(5000):\n    x = [x]\nx", "holds more than 100 levels"),
        ("x = [0] * 100\nfor _ in range(9):\n    x = [x] * 50\nx", "holds more than 100,000 values"),
        ("class A:\n    pass\na = A()\na.x = [[0] * 1_000] * 1_000\n[a] * 1_000", "holds more than 100,000 values"),
        ("'x' * 5_000_000", "holds more than 4,000,000 characters"),
        ("2 ** 1_000_000", "holds an integer of 1,000,001 bits"),
        ("tools.a.b.c.d()", ""),
        ("getattr(tools, 'x' * 1_000)", ""),
    ],
)
async def test_nothing_of_the_host_is_within_reach(code: str, reason: str) -> None:
    report, host = await run(code)
    assert report.failure is not None
    assert reason in report.failure.reason
    assert host.made == []


@pytest.mark.parametrize("caught", ["pass", "while True: pass"])
async def test_an_endless_loop_ends_with_the_time_even_where_every_exception_is_caught(caught: str) -> None:
    report, _ = await run(
        f"while True:\n    try:\n        pass\n    except BaseException:\n        {caught}", seconds=0.3
    )
    assert report.failure is not None
    assert "0.3" in report.failure.reason or "time limit" in report.failure.reason


async def test_a_flood_of_output_ends_at_the_budget() -> None:
    report, _ = await run("while True:\n    print('x' * 1000)", output=5_000)
    assert report.failure is not None
    assert "more than 5,000 characters, its budget of output" in report.failure.reason
    assert report.printed == ("x" * 1000 + "\n") * 4 + "x" * 996


@pytest.mark.parametrize(
    "code",
    [
        "import asyncio\nawait asyncio.gather(*[tools.a.b() for _ in range(10_000)])",
        "for _ in range(10_000):\n    try:\n        await tools.a.b()\n    except BaseException:\n        pass",
        "for _ in range(10_000):\n    tools.a.b()",
    ],
)
async def test_ten_thousand_calls_end_at_the_budget(code: str) -> None:
    report, host = await run(code, calls=20)
    assert report.failure is not None
    assert "more than 20 calls, its budget of calls" in report.failure.reason
    done = sum(call.state == "done" for call in report.calls)
    assert len(host.made) == done <= 20


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ("list(range(6_000))", "more than 5,000 values"),
        ("[[0] * 1_000] * 1_000", "more than 5,000 values"),
        ("x='y' * 1_000_001", "more than 1,000,000 characters"),
        ("**{'y' * 1_000_001: 1}", "more than 1,000,000 characters"),
        ("2 ** 10_000_000", "an integer of 10,000,001 bits, where 10,000 are possible"),
    ],
)
async def test_arguments_that_are_too_large_are_not_sent(arguments: str, reason: str) -> None:
    report, host = await run(f"await tools.a.b({arguments})")
    assert report.failure is not None
    assert f"a.b was NOT invoked: its arguments hold {reason}" in report.failure.reason
    assert host.made == []


async def test_a_long_error_and_a_long_line_are_shown_in_part() -> None:
    report, _ = await run(f"raise ValueError('x' * 1_000_000 + '{'y' * 1_000}')")
    assert report.failure is not None
    assert len(str(report.failure)) < 3_000


@pytest.mark.skipif(sys.platform != "linux", reason="reads the threads of a worker in /proc")
def test_a_worker_that_is_slowed_down_yields_with_all_its_threads_and_ends_with_its_program() -> None:
    workers = Workers(1)
    workers.open()
    try:
        session = ProgramSession(workers, Script(source="await tools.a.b()"), Budget())
        session.start()
        threads = [int(thread) for thread in os.listdir(f"/proc/{session.pid}/task")]
        before = {os.getpriority(os.PRIO_PROCESS, thread) for thread in threads}
        session.slow_down()
        after = {os.getpriority(os.PRIO_PROCESS, thread) for thread in threads}
        session.close()
        again = ProgramSession(workers, Script(source="1"), Budget())
        assert again.start() == Ended("1")
        assert before == {os.getpriority(os.PRIO_PROCESS, 0)}
        assert after == {max(NICENESS, *before)}
        assert again.pid != session.pid
    finally:
        workers.close()


async def test_ten_thousand_lookups_of_names_end_too() -> None:
    report, _ = await run("while True:\n    tools.a\n    tools.b", calls=1)
    assert report.failure is not None
    assert "suspension limit" in report.failure.reason


async def test_a_program_cannot_catch_its_cancellation() -> None:
    host = Host()
    code = (
        "while True:\n    try:\n        await tools.a.wait()\n    except BaseException:\n        await tools.a.after()"
    )
    async with sandbox() as programs:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(programs.run, Script(source=code), host, Budget())
            await host.waiting.wait()
            tasks.cancel_scope.cancel()
        await host.cancelled.wait()
        assert (await programs.run(Script(source="1 + 1"), Host(), Budget())).value == "2"
    assert host.made == ["a.wait"]


async def test_a_program_that_computes_is_cancelled_too() -> None:
    async with sandbox() as programs:
        await programs.run(Script(source="1"), Host(), Budget())
        with anyio.move_on_after(0.05) as scope:
            await programs.run(Script(source="while True:\n    pass"), Host(), Budget())
        assert scope.cancelled_caught
        assert (await programs.run(Script(source="1 + 1"), Host(), Budget())).value == "2"


async def test_more_programs_than_workers_wait_for_their_turn() -> None:
    values: list[str | None] = []

    async def program(number: int) -> None:
        values.append((await programs.run(Script(source=f"await tools.a.b()\n{number}"), Host(), Budget())).value)

    async with sandbox() as programs, anyio.create_task_group() as tasks:
        for number in range(MAX_PROGRAMS * 2):
            tasks.start_soon(program, number)
    assert sorted(map(str, values)) == sorted(map(str, range(MAX_PROGRAMS * 2)))


async def test_calls_that_were_started_and_not_awaited_are_finished_before_the_report() -> None:
    report, host = await run("tools.a.first()\nawait tools.a.second()\ntools.a.third()\n'end'")
    assert sorted(host.made) == ["a.first", "a.second"]
    assert [(call.name, call.state) for call in report.calls] == [
        ("a.first", "done"),
        ("a.second", "done"),
        ("a.third", "not started"),
    ]


async def test_a_sandbox_that_is_not_installed_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MONTY_BIN", "/nowhere/monty")
    async with sandbox() as programs:
        with pytest.raises(InvalidInput, match=r"Programs cannot run: .*installed again"):
            await programs.run(Script(source="1"), Host(), Budget())
