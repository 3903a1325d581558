"""The overhead of a program, and the event loop under hostile ones: python -m benchmarks.code_speed.

A call and programs are timed in turns, through a real client, over a server that answers at once. Then each hostile
program runs while a timer measures how late the event loop of the gateway runs it. The model of the search and the
process that pages large results are started before.
"""

import argparse
import os
import statistics
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from time import perf_counter
from typing import Any

import anyio
from benchmarks.code import CODE, served, text_of
from benchmarks.measuring import publish
from mcp import Client

from shortlist.config.settings import ServerSettings, Settings, StdioTransport
from shortlist.evals.tables import Table
from shortlist.gateway.view import ServeOptions

SAMPLE_SECONDS = 0.001
LAG_MILLISECONDS = 25.0
ONE_CALL_MILLISECONDS = 5.0
PARALLEL_MILLISECONDS = 10.0
WARM_UP = "await search('send a message')\n'x ' * 50_000"
HOSTILE: Mapping[str, str] = {
    "endless loop": "while True:\n    pass",
    "memory": "x = []\nwhile True:\n    x.append('y' * 10_000)",
    "large value": "[{'a': n} for n in range(100_000)]",
    "large argument": "await tools.bench.quick(text=['y' * 10 for _ in range(100_000)])",
    "output flood": "while True:\n    print('x' * 1_000)",
    "10,000 calls": "import asyncio\nawait asyncio.gather(*[tools.bench.quick() for _ in range(10_000)])",
    "10,000 names": "while True:\n    tools.bench\n    tools.nowhere",
    "recursion": "def f():\n    return f()\nf()",
    "shared lists": "x = [0] * 100\nfor _ in range(9):\n    x = [x] * 50\nx",
    "long integer": "await tools.bench.quick(text=2 ** 10_000_000)",
    "long query": "await search('y ' * 400_000)",
    "many sleeps": "import asyncio\nawait asyncio.gather(*[asyncio.sleep(0.1) for _ in range(900)])",
    "exceptions": "while True:\n    try:\n        await tools.nowhere.x()\n    except BaseException:\n        pass",
}


def _own() -> Settings:
    transport = StdioTransport(command=sys.executable, args=(str(Path(__file__).with_name("code_server.py")),))
    return Settings(servers={"bench": ServerSettings(name="bench", transport=transport)}, code=CODE)


async def overhead(client: Client, times: int) -> dict[str, float]:
    """Time one call by itself and in a program, and ten parallel ones, in turns; medians in milliseconds."""
    programs: dict[str, tuple[str, dict[str, Any]]] = {
        "one call": ("call_tool", {"name": "bench__quick", "arguments": {}}),
        "program with one call": ("run_code", {"code": "await tools.bench.quick()"}),
        "slow call": ("call_tool", {"name": "bench__slow", "arguments": {}}),
        "program with ten parallel slow calls": (
            "run_code",
            {"code": "import asyncio\nawait asyncio.gather(*[tools.bench.slow() for _ in range(10)])"},
        ),
    }
    taken: dict[str, list[float]] = {name: [] for name in programs}
    for _ in range(times + 3):
        for name, (tool, arguments) in programs.items():
            started = perf_counter()
            result = await client.call_tool(tool, arguments)
            taken[name].append((perf_counter() - started) * 1000)
            if result.is_error:
                raise RuntimeError(f"{name} failed, so its time says nothing: {text_of(result)}")
    return {name: statistics.median(values[3:]) for name, values in taken.items()}


async def lag_under(client: Client, code: str) -> tuple[float, float]:
    """Run a program and return the p99 and the largest delay of the event loop meanwhile, in milliseconds."""
    delays: list[float] = []
    async with anyio.create_task_group() as tasks:

        async def sample() -> None:
            while True:
                started = perf_counter()
                await anyio.sleep(SAMPLE_SECONDS)
                delays.append((perf_counter() - started - SAMPLE_SECONDS) * 1000)

        tasks.start_soon(sample)
        await anyio.sleep(0.02)
        delays.clear()
        await client.call_tool("run_code", {"code": code})
        tasks.cancel_scope.cancel()
    ordered = sorted(delays) or [0.0]
    return ordered[int(len(ordered) * 0.99)], ordered[-1]


def _speed_tables(times: Mapping[str, float], lags: Mapping[str, tuple[float, float]]) -> list[Table]:
    one = times["program with one call"] - times["one call"]
    ten = times["program with ten parallel slow calls"] - times["slow call"]
    targets = (("one call, over the call itself", one, ONE_CALL_MILLISECONDS),
               ("ten parallel calls, over the slowest", ten, PARALLEL_MILLISECONDS))  # fmt: skip
    return [
        Table(
            "Overhead of a program, ms (medians)",
            ("program", "overhead", "target", "met"),
            tuple(
                (name, f"{value:.1f}", f"≤ {most:g}", "yes" if value <= most else "NO") for name, value, most in targets
            ),
        ),
        Table(
            "Event-loop lag under hostile programs, ms",
            ("program", "p99", "max", f"max < {LAG_MILLISECONDS:g}"),
            tuple(
                (name, f"{p99:.1f}", f"{most:.1f}", "yes" if most < LAG_MILLISECONDS else "NO")
                for name, (p99, most) in lags.items()
            ),
        ),
    ]


async def measure(arguments: argparse.Namespace) -> None:
    async with served(_own(), ServeOptions(menu="code")) as (client, _):
        times = await overhead(client, arguments.times)
        await client.call_tool("run_code", {"code": WARM_UP})
        lags = {name: await lag_under(client, code) for name, code in HOSTILE.items()}
    publish(
        "code-speed",
        _speed_tables(times, lags),
        {"overhead_ms": dict(times), "lag_ms": {name: list(lag) for name, lag in lags.items()}},
    )


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.code_speed", description=__doc__)
    parser.add_argument("--times", type=int, default=100, help="how often each call is timed")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        os.environ["XDG_DATA_HOME"] = folder  # nothing of the user's is read or written
        anyio.run(measure, arguments)


if __name__ == "__main__":
    main()
