"""Calls through a gateway whose servers exit, hang, garble and flood at random.

    python -m benchmarks.chaos [--calls 200000] [--seed 1] [--clients 64]

Every call has a unique id that it carries as its text; the server counts the ids that it received and the client
compares the answer. The run counts answered, refused, wrong, lost and duplicated calls, and compares the latency of
healthy servers with that of the same calls before the faults begin. The seed decides who calls what, when a client
disconnects, and what each server does wrong; a run with the same seed replays the same decisions.
"""

import argparse
import asyncio
import json
import os
import random
import signal
import sys
import tempfile
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter
from typing import Any

from benchmarks.measuring import machine, publish
from benchmarks.stress.client import Era, RawClient, Refused
from benchmarks.stress.processes import Gateway, children, gateway, stdio_server

from shortlist.evals.tables import Table, to_markdown

HEALTHY, FAULTY = 10, 20
CALL_SECONDS = 8.0
"""The deadline of a call at the client; the servers' own is shorter."""
SERVER_SECONDS = 3.0


@dataclass(slots=True)
class Tally:
    """What became of the calls."""

    outcomes: Counter[str] = field(default_factory=Counter)
    sent: list[str] = field(default_factory=list)
    healthy: list[float] = field(default_factory=list)
    examples: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Plan:
    """One client's part of the run, decided by the seed."""

    dice: random.Random
    era: Era
    calls: int
    faults: bool


async def run_client(running: Gateway, number: int, plan: Plan, tally: Tally) -> None:
    """Make one client's calls, one after the other."""
    client = RawClient(running.port, plan.era)
    for index in range(plan.calls):
        broken = plan.faults and plan.dice.random() < 2 / 3
        server = f"faulty{plan.dice.randrange(FAULTY)}" if broken else f"healthy{plan.dice.randrange(HEALTHY)}"
        call = f"{plan.era}-{number}-{index}-{plan.faults}"
        leaves = plan.faults and plan.dice.random() < 0.005
        started = perf_counter()
        outcome = await one_call(client, server, call, leaves, tally)
        tally.outcomes[outcome] += 1
        if not broken:
            tally.healthy.append(perf_counter() - started)
            if outcome not in ("answered", "left"):
                tally.examples.append(f"{server} {outcome}")
    client.close()


async def one_call(client: RawClient, server: str, call: str, leaves: bool, tally: Tally) -> str:
    """Make a call and say what became of it."""
    tally.sent.append(call)
    try:
        async with asyncio.timeout(CALL_SECONDS):
            if client._writer is None:
                client.session = ""
                await client.open()
            if leaves:
                await client.send("tools/call", _params(server, call))
                await asyncio.sleep(0)
                client.close()
                return "left"
            answer = await client.request("tools/call", _params(server, call))
    except TimeoutError:
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
        return "JSON-RPC error"
    texts = [block.get("text") for block in answer["result"].get("content", ())]
    if answer["result"].get("isError"):
        return "failed with a reason"
    if texts and texts[0] == call:
        return "answered"
    tally.examples.append(f"wrong answer to {call}: {texts}")
    return "wrong"


async def disturb(running: Gateway, dice: random.Random, stop: asyncio.Event) -> None:
    """Kill and stop server processes at random."""
    while not stop.is_set():
        await asyncio.sleep(dice.uniform(0.2, 1.0))
        faulty = [pid for pid in children(running.pid) if "--faults" in _command(pid)]
        if not faulty:
            continue
        victim = dice.choice(faulty)
        try:
            if dice.random() < 0.7:
                os.kill(victim, signal.SIGKILL)
            else:
                os.kill(victim, signal.SIGSTOP)
                await asyncio.sleep(dice.uniform(0.1, 1.0))
                os.kill(victim, signal.SIGCONT)
        except ProcessLookupError:
            continue


def _command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ")
    except OSError:
        return ""


async def phase(running: Gateway, seed: str, calls: int, clients: int, *, faults: bool) -> Tally:
    """Run all clients to the end."""
    tally, stop = Tally(), asyncio.Event()
    plans = [
        Plan(random.Random(f"{seed}-{n}"), "modern" if n % 2 else "legacy", calls // clients, faults)
        for n in range(clients)
    ]
    work = [run_client(running, number, plan, tally) for number, plan in enumerate(plans)]
    disturbing = asyncio.create_task(disturb(running, random.Random(f"{seed}-disturb"), stop)) if faults else None
    await asyncio.gather(*work)
    stop.set()
    if disturbing is not None:
        await disturbing
    return tally


def _p95(times: list[float]) -> float:
    return round(1000 * sorted(times)[int(len(times) * 0.95)], 1) if times else 0.0


def main() -> int:
    """Run, print the counts, and fail where a call was wrong, lost or done twice."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--calls", type=int, default=200_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--save", action="store_true", help="write benchmarks/results/chaos-COMMIT.json")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        seen = Path(folder) / "seen"
        seen.touch()
        servers = {f"healthy{n}": stdio_server(SEEN_FILE=str(seen)) for n in range(HEALTHY)}
        servers |= {
            f"faulty{n}": stdio_server("--faults", f"{arguments.seed}{n:03}", SEEN_FILE=str(seen))
            for n in range(FAULTY)
        }
        for settings in servers.values():
            settings["shortlist"] = {"timeout": SERVER_SECONDS}
        with gateway(servers, {"limits": {"message_bytes": 1_000_000}}) as running:
            quiet = asyncio.run(
                phase(running, f"{arguments.seed}-quiet", arguments.calls // 10, arguments.clients, faults=False)
            )
            tally = asyncio.run(phase(running, str(arguments.seed), arguments.calls, arguments.clients, faults=True))
            alive = "ok" in running.get("/healthz")
        received = Counter(seen.read_text().split())
    twice = [call for call, times in received.items() if times > 1]
    strangers = set(received) - set(tally.sent) - set(quiet.sent)
    rows = [(outcome, f"{count:,}") for outcome, count in tally.outcomes.most_common()]
    rows += [("done twice", f"{len(twice):,}"), ("never sent, yet received", f"{len(strangers):,}")]
    rows += [("gateway alive at the end", str(alive))]
    rows += [("healthy p95 before, ms", str(_p95(quiet.healthy))), ("healthy p95 during, ms", str(_p95(tally.healthy)))]
    table = Table(f"{len(tally.sent):,} calls, seed {arguments.seed}", ("what", "count"), tuple(rows))
    print(to_markdown([table]))
    print(json.dumps(Counter(tally.examples).most_common(10), indent=1))
    if arguments.save:
        publish("chaos", [table], {"machine": machine(), "seed": arguments.seed, "outcomes": dict(tally.outcomes)})
    return int(bool(twice or strangers or tally.outcomes["wrong"] or tally.outcomes["lost"] or not alive))


if __name__ == "__main__":
    sys.exit(main())
