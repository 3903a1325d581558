"""Fuzz by command, longer than the tests do.

python -m tests.fuzz --inputs 5000000            every parser in process; the inputs are divided among them
python -m tests.fuzz --gateway 200000            a running gateway, over HTTP and stdio

The command fails at the first input that raises, takes too long or makes a process grow. With --save the counts are
also written to benchmarks/results/fuzz-COMMIT.json. What a running gateway keeps within a bound is filled before the
first input. Then slopes of its memory are fitted, of all inputs and of the second half, with their 95 % confidence
intervals. Memory grows if both intervals are above zero: what still fills up shows in the first half alone.
"""

import argparse
import asyncio
import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from time import perf_counter, thread_time
from typing import TypeAlias

from benchmarks.measuring import publish
from benchmarks.stress.growth import Growth
from benchmarks.stress.processes import usage
from hypothesis import HealthCheck, Phase, given, seed, settings

from shortlist.evals.tables import Table, to_markdown
from tests.fuzz.mutation import Mutator
from tests.fuzz.running import over_http, over_stdio
from tests.fuzz.targets import TARGETS, Target

Row: TypeAlias = tuple[str, str, str]
BATCH = 20_000
VARIANTS = 99
"""How often each drawn input is varied, one change after the other."""
SLOW_SECONDS = 5.0
"""CPU seconds an input may take; a busy machine does not count."""
GROWTH_BYTES = 100_000_000
"""Caches fill up; a process that grows by more than this while it repeats itself has a leak."""


@dataclass(frozen=True, slots=True)
class Done:
    """What became of a batch of inputs."""

    inputs: int
    longest_seconds: float
    process: int
    memory_bytes: int


def run_target(name: str, count: int, first_seed: int) -> Done:
    """Feed a target so many inputs; raise AssertionError for one that takes too long."""
    longest = _run_batch(TARGETS[name], count, first_seed)
    if longest > SLOW_SECONDS:
        raise AssertionError(f"{name}: an input took {longest:.1f} s")
    return Done(count, longest, os.getpid(), usage(os.getpid()).memory_bytes)


def _run_batch(target: Target, count: int, first_seed: int) -> float:
    """Draw inputs with hypothesis, and vary each of them; return the longest time that one took."""
    mutator, took = Mutator(first_seed), [0.0]
    variants = min(VARIANTS, count - 1)

    @seed(first_seed)
    @settings(
        max_examples=max(count // (variants + 1), 1),
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(target.inputs)
    def check(value: object) -> None:
        mutator.learn(value)
        for _ in range(variants + 1):
            started = thread_time()
            try:
                target.check(value)
            except Exception:
                print(f"this input failed: {value!r}", flush=True)
                raise
            took[0] = max(took[0], thread_time() - started)
            value = mutator.vary(value)

    check()
    return took[0]


def run_targets(names: Sequence[str], inputs: int, first_seed: int) -> list[Row]:
    """Divide inputs among the targets, on every core; print and return a row for each target, and the growth."""
    grown: dict[int, list[int]] = {}
    rows: list[Row] = []
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        for name in names:
            each = -(-inputs // len(names))
            batches = [min(BATCH, each - start) for start in range(0, each, BATCH)]
            began = perf_counter()
            seeds = range(first_seed, first_seed + len(batches))
            done = list(pool.map(run_target, [name] * len(batches), batches, seeds))
            for batch in done:
                grown.setdefault(batch.process, []).append(batch.memory_bytes)
            longest, count = max(batch.longest_seconds for batch in done), sum(batch.inputs for batch in done)
            rows.append((name, f"{count:,}", f"longest {1000 * longest:.1f} ms"))
            print(*rows[-1], f"{count / (perf_counter() - began):,.0f}/s", sep=" | ", flush=True)
    growth = max(sizes[-1] - sizes[len(sizes) // 4] for sizes in grown.values())
    if growth > GROWTH_BYTES:
        raise AssertionError(f"a process grew by {growth / 1e6:.0f} MB")
    return [*rows, ("all targets", f"{sum(_number(row[1]) for row in rows):,}", _growth(growth))]


def run_gateway(inputs: int, first_seed: int) -> Iterator[Row]:
    """Send three fifths of the inputs over HTTP and the others over stdio; print and yield a row for each."""
    for name, share, leg in (("HTTP", 0.6, over_http), ("stdio", 0.4, over_stdio)):
        began, count = perf_counter(), int(inputs * share)
        report = asyncio.run(leg(count, first_seed))
        outcomes = ", ".join(f"{kind} {times:,}" for kind, times in report.outcomes.most_common())
        row = (f"gateway over {name}", f"{count:,}", f"{_verdict(report.growths)}; {outcomes}")
        print(*row, f"{count / (perf_counter() - began):,.0f}/s", sep=" | ", flush=True)
        if any(each.is_beyond_noise for each in report.growths):
            raise AssertionError(f"the gateway over {name} grows: {_verdict(report.growths)}")
        yield row


def _growth(count: int) -> str:
    return f"memory grew by {count / 1e6:.1f} MB"


def _verdict(growths: Sequence[Growth]) -> str:
    if not growths:
        return "too few inputs to tell growth"
    says = "yes" if any(each.is_beyond_noise for each in growths) else "no"
    slopes = " and ".join(f"{each.whole} (second half {each.second_half})" for each in growths)
    return f"memory grows: {says}, {slopes} MB for 100,000 inputs"


def _number(count: str) -> int:
    return int(count.replace(",", ""))


def main() -> None:
    """Run what was asked for and print the counts."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--inputs", type=int, default=0, help="inputs in process, divided among the targets")
    parser.add_argument("--gateway", type=int, default=0, help="inputs to a running gateway")
    parser.add_argument("--target", choices=sorted(TARGETS), help="only this parser")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--save", action="store_true", help="write benchmarks/results/fuzz-COMMIT.json")
    arguments = parser.parse_args()
    names = [arguments.target] if arguments.target else list(TARGETS)
    rows = run_targets(names, arguments.inputs, arguments.seed) if arguments.inputs else []
    if arguments.gateway:
        rows += run_gateway(arguments.gateway, arguments.seed)
    table = Table(f"Inputs that broke nothing, seed {arguments.seed}", ("target", "inputs", "notes"), tuple(rows))
    if arguments.save:
        publish("fuzz", [table], {"seed": arguments.seed, "tables": [table]})
    else:
        print(to_markdown([table]))


if __name__ == "__main__":
    main()
