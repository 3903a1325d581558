"""Calls through a gateway whose servers exit, hang, garble and flood at random.

    python -m benchmarks.chaos [--calls 200000] [--seed 1] [--clients 64] [--save]

Every call has a unique id that begins with the name of its server and is also its text. Each server writes down the
ids that it receives, and the client compares the answer with the id: the run counts answered, refused, wrong, lost and
duplicated calls. Afterwards the same clients make the same choices of servers without any fault, while another process
uses the CPU that faulty servers and their restarts used; the latency of healthy servers is compared with that of this
control run.

The seed decides which client calls what, when it disconnects, which fault each call meets, and which server is killed
or stopped when. The run prints a digest of this plan; a run with the same seed and number of calls has the same plan.
How many calls fail because others met a fault depends on timing: those that were in flight when their server exited,
and those that its circuit breaker refused.
"""

import argparse
import asyncio
import hashlib
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from time import perf_counter
from typing import Any

from benchmarks.measuring import machine, publish
from benchmarks.stress.client import Era, RawClient, Refused
from benchmarks.stress.processes import (
    READY_SECONDS,
    Gateway,
    children,
    gateway,
    http_upstream,
    stdio_server,
    tree_cpu_seconds,
    usage,
)
from benchmarks.stress.upstream import fault_of

from shortlist.evals.tables import Table, to_markdown

HEALTHY, FAULTY, FAULTY_HTTP = 10, 20, 5
"""Healthy servers, faulty ones, and how many of the faulty ones are reached over HTTP."""
CALL_SECONDS = 8.0
"""The deadline of a call at the client; the servers' own is shorter."""
SERVER_SECONDS = 3.0
MOST_RATIO = 2.0
"""How much slower healthy servers may be at the 95th percentile while others misbehave."""
RATIO_CALLS = 20_000
"""With fewer calls the ratio would be noise, and there is no control run."""
PLANNED_DISTURBANCES = 1_000
ADJUST_SECONDS = 0.5
BURN = """
import sys, time
for line in sys.stdin:  # the share of a core to use, until the next line comes
    share, until = float(line), time.monotonic() + %s
    while time.monotonic() < until:
        began = time.process_time()
        while time.process_time() - began < 0.01 * share:
            pass
        time.sleep(max(0.0, 0.01 * (1 - share)))
"""


@dataclass(slots=True)
class Tally:
    """What became of the calls."""

    outcomes: Counter[str] = field(default_factory=Counter)
    sent: set[str] = field(default_factory=set)
    healthy: list[float] = field(default_factory=list)
    seconds: float = 0.0
    gateway: float = 0.0
    servers: float = 0.0
    """How many cores the gateway and its servers used, on average."""
    examples: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class PlannedCall:
    """A call, its server, the fault that it will meet, and whether its client disconnects without waiting."""

    id: str
    server: str
    fault: str
    leaves: bool


@dataclass(frozen=True, slots=True)
class Disturbance:
    """A faulty server that is killed, or stopped for some seconds, so long after the one before."""

    after_seconds: float
    server: str
    stopped_seconds: float | None


@dataclass(frozen=True, slots=True)
class Plan:
    """All that the seed decides."""

    clients: tuple[tuple[PlannedCall, ...], ...]
    disturbances: tuple[Disturbance, ...]

    @property
    def digest(self) -> str:
        return hashlib.sha256(repr(self).encode()).hexdigest()[:16]

    @property
    def faults(self) -> Counter[str]:
        return Counter(call.fault for calls in self.clients for call in calls if call.fault)


def plan_of(seed: int, calls: int, clients: int) -> Plan:
    """Decide a run."""
    dice = random.Random(f"{seed}-disturb")
    return Plan(
        tuple(tuple(islice(planned_calls(seed, number), calls // clients)) for number in range(clients)),
        tuple(planned_disturbance(dice) for _ in range(PLANNED_DISTURBANCES)),
    )


def planned_calls(seed: int, number: int) -> Iterator[PlannedCall]:
    dice, index = random.Random(f"{seed}-{number}"), 0
    while True:
        broken = dice.random() < 2 / 3
        which = dice.randrange(FAULTY if broken else HEALTHY)
        server = f"faulty{which}" if broken else f"healthy{which}"
        call = f"{server}-{era_of(number)}-{number}-{index}"
        kind = "http" if which >= FAULTY - FAULTY_HTTP else "stdio"
        fault, _ = fault_of(seed if broken else None, call, kind)
        yield PlannedCall(call, server, fault, leaves=dice.random() < 0.005)
        index += 1


def planned_disturbance(dice: random.Random) -> Disturbance:
    is_killed, seconds = dice.random() < 0.7, dice.uniform(0.1, 1.0)
    server = f"faulty{dice.randrange(FAULTY - FAULTY_HTTP)}"
    return Disturbance(dice.uniform(0.2, 1.0), server, None if is_killed else seconds)


def era_of(number: int) -> Era:
    return "modern" if number % 2 else "legacy"


async def run_client(running: Gateway, number: int, calls: Sequence[PlannedCall], tally: Tally) -> None:
    """Make one client's calls, one after the other."""
    client = RawClient(running.port, era_of(number))
    for planned in calls:
        started = perf_counter()
        outcome = await one_call(client, planned, tally)
        tally.outcomes[outcome] += 1
        if planned.server.startswith("healthy"):
            tally.healthy.append(perf_counter() - started)
    client.close()


async def one_call(client: RawClient, planned: PlannedCall, tally: Tally) -> str:
    """Make a call and say what became of it."""
    server, call = planned.server, planned.id
    tally.sent.add(call)
    try:
        async with asyncio.timeout(CALL_SECONDS):
            if client._writer is None:
                client.session = ""
                await client.open()
            if planned.leaves:
                await client.send("tools/call", _params(server, call))
                await asyncio.sleep(0)
                client.close()
                return "left"
            answer = await client.request("tools/call", _params(server, call))
    except TimeoutError:
        step = "opening a session" if client.era == "legacy" and not client.session else "calling"
        tally.examples.append(f"lost while {step}: {call}, fault {planned.fault or 'none'}")
        client.close()
        return "lost"
    except Refused as error:
        client.close()
        tally.examples.append(str(error)[:160])
        return "refused"
    except (OSError, asyncio.IncompleteReadError) as error:
        client.close()
        tally.examples.append(repr(error)[:160])
        return "connection error"
    return _judged(answer, call, tally)


def _params(server: str, call: str) -> dict[str, Any]:
    return {"name": "call_tool", "arguments": {"name": f"{server}__echo", "arguments": {"text": call, "id": call}}}


def _judged(answer: dict[str, Any], call: str, tally: Tally) -> str:
    if "error" in answer:
        if call.startswith("healthy"):
            tally.examples.append(f"a healthy server failed: {answer['error']}")
        return "JSON-RPC error"
    texts = [block.get("text") for block in answer["result"].get("content", ())]
    if answer["result"].get("isError"):
        if call.startswith("healthy"):
            tally.examples.append(f"a healthy server failed: {str(texts)[:160]}")
        return "failed with a reason"
    if texts and texts[0] == call:
        return "answered"
    tally.examples.append(f"wrong answer to {call}: {texts}")
    return "wrong"


async def disturb(running: Gateway, disturbances: Sequence[Disturbance]) -> None:
    """Kill and stop server processes as planned; begin again where the run outlasts the plan."""
    while True:
        for planned in disturbances:
            await asyncio.sleep(planned.after_seconds)
            for victim in (pid for pid in children(running.pid) if _is_server(pid, planned.server)):
                with suppress(ProcessLookupError):
                    if planned.stopped_seconds is None:
                        os.kill(victim, signal.SIGKILL)
                    else:
                        os.kill(victim, signal.SIGSTOP)
                        await asyncio.sleep(planned.stopped_seconds)
                        os.kill(victim, signal.SIGCONT)


def _is_server(pid: int, name: str) -> bool:
    try:
        return f"SERVER_NAME={name}" in Path(f"/proc/{pid}/environ").read_text().split("\0")
    except OSError:
        return False


async def phase(running: Gateway, plan: Plan, burn: float | None) -> Tally:
    """Run all clients to the end, with faults, or without them and with `burn` cores used beside the gateway."""
    await until_served(running)
    tally = Tally()
    work = [run_client(running, number, calls, tally) for number, calls in enumerate(plan.clients)]
    beside = disturb(running, plan.disturbances) if burn is None else keep_busy(running, burn)
    task = asyncio.create_task(beside)
    began, cpu, own = perf_counter(), tree_cpu_seconds(running.pid), usage(running.pid).cpu_seconds
    await asyncio.gather(*work)
    tally.seconds = perf_counter() - began
    tally.servers = (tree_cpu_seconds(running.pid) - cpu) / tally.seconds
    tally.gateway = (usage(running.pid).cpu_seconds - own) / tally.seconds
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    return tally


async def until_served(running: Gateway) -> None:
    """Wait until every server's tool can be called."""
    client = RawClient(running.port, "modern")
    for server in [f"healthy{n}" for n in range(HEALTHY)] + [f"faulty{n}" for n in range(FAULTY)]:
        async with asyncio.timeout(READY_SECONDS):
            call = {"name": f"{server}__echo", "arguments": {"text": "hello"}}
            while (await client.call("call_tool", call)).get("result", {"isError": True}).get("isError"):
                await asyncio.sleep(0.1)
    client.close()


async def keep_busy(running: Gateway, cores: float) -> None:
    """Use as much CPU as is missing until the servers and this process together use so many cores."""
    burner = subprocess.Popen([sys.executable, "-c", BURN % ADJUST_SECONDS], stdin=subprocess.PIPE, text=True)
    used = 0.0
    try:
        while burner.stdin is not None:
            burner.stdin.write(f"{min(1.0, max(0.0, cores - used))}\n")
            burner.stdin.flush()
            before, began = tree_cpu_seconds(running.pid), perf_counter()
            await asyncio.sleep(ADJUST_SECONDS)
            used = (tree_cpu_seconds(running.pid) - before) / (perf_counter() - began)
    finally:
        burner.kill()
        burner.wait()


@contextmanager
def gateway_of(seen: Path, seed: int | None) -> Iterator[Gateway]:
    """Serve healthy and faulty servers; without a seed all of them are healthy."""
    with ExitStack() as stack:
        servers: dict[str, dict[str, Any]] = {}
        for number in range(HEALTHY + FAULTY):
            name = f"healthy{number}" if number < HEALTHY else f"faulty{number - HEALTHY}"
            faults = () if seed is None or number < HEALTHY else ("--faults", str(seed))
            noted = {"SEEN_FILE": str(seen), "SERVER_NAME": name}
            if number >= HEALTHY + FAULTY - FAULTY_HTTP:
                _, url = stack.enter_context(http_upstream(*faults, **noted))
                servers[name] = {"type": "http", "url": url}
            else:
                servers[name] = stdio_server(*faults, **noted)
            servers[name]["shortlist"] = {"timeout": SERVER_SECONDS}
        yield stack.enter_context(gateway(servers, {"limits": {"message_bytes": 1_000_000}}))


def _p95(times: list[float]) -> float:
    return round(1000 * sorted(times)[int(len(times) * 0.95)], 1) if times else 0.0


def main() -> int:
    """Run, print the counts, and fail where a call was wrong, lost or done twice, or healthy servers were slow."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--calls", type=int, default=200_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--save", action="store_true", help="write benchmarks/results/chaos-COMMIT.json")
    arguments = parser.parse_args()
    plan = plan_of(arguments.seed, arguments.calls, arguments.clients)
    with tempfile.TemporaryDirectory() as folder:
        seen = Path(folder) / "seen"
        seen.touch()
        with gateway_of(seen, arguments.seed) as running:
            tally = asyncio.run(phase(running, plan, None))
            alive = "ok" in running.get("/healthz")
        received = [line.split() for line in seen.read_text().splitlines()]
        compared: list[tuple[str, str]] = []
        ratio = 0.0
        if arguments.calls >= RATIO_CALLS:
            calm = plan_of(arguments.seed, arguments.calls // 10, arguments.clients)
            with gateway_of(Path(folder) / "control", None) as running:
                control = asyncio.run(phase(running, calm, tally.servers))
            ratio = _p95(tally.healthy) / max(_p95(control.healthy), 0.1)
            compared = _compared(tally, control, ratio)
    times = Counter(call for _, call in received)
    twice = [call for call, count in times.items() if count > 1]
    misplaced = [call for server, call in received if call.partition("-")[0] != server or call not in tally.sent]
    rows = [(outcome, f"{count:,}") for outcome, count in tally.outcomes.most_common()]
    rows += [(f"{kind} calls", f"{tally.outcomes[kind]:,}") for kind in ("wrong", "lost") if not tally.outcomes[kind]]
    rows += [
        ("digest of the plan", plan.digest),
        ("faults planned", ", ".join(f"{fault} {count:,}" for fault, count in sorted(plan.faults.items()))),
        ("received by the servers", f"{len(times):,}"),
        ("received twice", f"{len(twice):,}"),
        ("received by another server, or never sent", f"{len(misplaced):,}"),
        ("gateway alive at the end", str(alive)),
        *compared,
    ]
    table = Table(f"{len(tally.sent):,} calls, seed {arguments.seed}", ("what", "count"), tuple(rows))
    print(to_markdown([table]))
    print(json.dumps(Counter(tally.examples).most_common(10), indent=1))
    if arguments.save:
        publish("chaos", [table], {"machine": machine(), "seed": arguments.seed, "tables": [table]})
    bad = twice or misplaced or tally.outcomes["wrong"] or tally.outcomes["lost"] or ratio > MOST_RATIO
    return int(bool(bad or not alive))


def _compared(tally: Tally, control: Tally, ratio: float) -> list[tuple[str, str]]:
    """Return the rows that compare a run with its control run."""
    return [
        ("calls/s, and without faults", f"{_rate(tally):.0f}, {_rate(control):.0f}"),
        ("cores used by the gateway, and without faults", f"{tally.gateway:.2f}, {control.gateway:.2f}"),
        ("cores used by servers, and as many without faults", f"{tally.servers:.2f}"),
        ("healthy p95 ms, and without faults", f"{_p95(tally.healthy)}, {_p95(control.healthy)}"),
        (f"ratio (at most {MOST_RATIO:g})", f"{ratio:.2f}"),
    ]


def _rate(tally: Tally) -> float:
    return sum(tally.outcomes.values()) / max(tally.seconds, 0.001)


if __name__ == "__main__":
    sys.exit(main())
