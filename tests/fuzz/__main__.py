"""Fuzz by command, longer than the tests do.

python -m tests.fuzz --inputs 5000000            every parser in process, so many inputs together
python -m tests.fuzz --gateway 200000            a running gateway, over HTTP and stdio
"""

import argparse
import resource
from time import perf_counter

from hypothesis import HealthCheck, Phase, given, seed, settings

from tests.fuzz.mutation import Mutator
from tests.fuzz.running import over_http, over_stdio
from tests.fuzz.targets import TARGETS, Target

BATCH = 20_000
VARIANTS = 99
"""How often each drawn input is varied, one change after the other."""
SLOW_SECONDS = 5.0


def run_target(name: str, count: int, first_seed: int) -> tuple[int, float]:
    """Feed a target so many inputs; return how many there were and the longest time that one took."""
    done, longest = 0, 0.0
    while done < count:
        batch = min(BATCH, count - done)
        longest = max(longest, _run_batch(TARGETS[name], batch, first_seed + done))
        done += batch
        if longest > SLOW_SECONDS:
            raise AssertionError(f"{name}: an input took {longest:.1f} s")
    return done, longest


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
            started = perf_counter()
            try:
                target.check(value)
            except Exception:
                print(f"this input failed: {value!r}", flush=True)
                raise
            took[0] = max(took[0], perf_counter() - started)
            value = mutator.vary(value)

    check()
    return took[0]


def main() -> None:
    """Run what was asked for and print the counts."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--inputs", type=int, default=0, help="inputs in process, divided among the targets")
    parser.add_argument("--gateway", type=int, default=0, help="inputs to a running gateway")
    parser.add_argument("--target", choices=sorted(TARGETS), help="only this parser")
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    names = [arguments.target] if arguments.target else list(TARGETS)
    for name in names if arguments.inputs else ():
        done, longest = run_target(name, arguments.inputs // len(names), arguments.seed)
        memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1000
        print(f"{name:<20} {done:>10,} inputs, longest {1000 * longest:7.1f} ms, {memory:,.0f} MB", flush=True)
    if arguments.gateway:
        print("over HTTP ", dict(over_http(arguments.gateway * 9 // 10, arguments.seed)), flush=True)
        print("over stdio", dict(over_stdio(arguments.gateway // 10, arguments.seed)), flush=True)


if __name__ == "__main__":
    main()
