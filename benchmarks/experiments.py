"""Experiments that are looked at twenty times: how often they claim an effect that is not there, and one that is.

python -m benchmarks.experiments: 1,000 simulated A/A experiments for each kind of outcome, assigned as the gateway
assigns them, and A/B experiments with a planted effect. Beside them the usual fixed-sample test at the same looks.
"""

import argparse
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from benchmarks.measuring import publish
from numpy.typing import NDArray

from shortlist.evals.tables import Table
from shortlist.telemetry.experiments.metrics import DEFAULT_METRIC
from shortlist.telemetry.experiments.plan import ALPHA, AS_CONFIGURED, MINIMUM, Experiment, Variant
from shortlist.telemetry.experiments.report import MISMATCH_ALPHA
from shortlist.telemetry.experiments.sequential import RatioSample, difference, estimate, mismatch

EXPERIMENTS = 1_000
PLANTED = 200
LOOKS = 20
WORKSPACES = 1_000
FIXED_SAMPLE_Z = 1.96
SEED = 20_261_115

Values: TypeAlias = NDArray[np.float64]
Treated: TypeAlias = NDArray[np.bool_]
"""Which workspaces have the treatment, in the order of their arrival."""


@dataclass(frozen=True, slots=True)
class World:
    """What every workspace has done by every look: (workspaces, looks) above and below the line of a metric."""

    above: Values
    below: Values


Simulate: TypeAlias = Callable[[np.random.Generator, Treated], World]


def arrived() -> NDArray[np.bool_]:
    """Return which workspaces exist at each look; the same number is added before each."""
    return np.arange(WORKSPACES)[:, np.newaxis] < np.linspace(WORKSPACES / LOOKS, WORKSPACES, LOOKS)


def at_once(above: Values, below: Values) -> World:
    """Let each workspace do everything when it arrives."""
    there = arrived()
    return World(above[:, np.newaxis] * there, below[:, np.newaxis] * there)


def errors(control: float, treatment: float) -> Simulate:
    """Fail some calls; workspaces differ in how many they make and in how often theirs fail."""

    def simulate(rng: np.random.Generator, treated: Treated) -> World:
        rates = np.where(treated, treatment, control)
        calls = rng.poisson(rng.gamma(1.0, 8.0, len(treated)))
        return at_once(rng.binomial(calls, rng.beta(10 * rates, 10 * (1 - rates))).astype(float), calls.astype(float))

    return simulate


def growing(control: float, treatment: float) -> Simulate:
    """Likewise, by workspaces that go on working for five looks: what is known of each changes between looks."""

    def simulate(rng: np.random.Generator, treated: Treated) -> World:
        rates = np.where(treated, treatment, control)
        there = arrived()
        works = there & (np.cumsum(there, axis=1) <= 5)
        calls = rng.poisson(rng.gamma(1.0, 2.0, len(treated))[:, np.newaxis] * works)
        failed = rng.binomial(calls, rng.beta(10 * rates, 10 * (1 - rates))[:, np.newaxis])
        return World(failed.cumsum(axis=1).astype(float), calls.cumsum(axis=1).astype(float))

    return simulate


def shares(control: float, treatment: float) -> Simulate:
    """Something that a workspace does or does not do, such as loading a toolset."""

    def simulate(rng: np.random.Generator, treated: Treated) -> World:
        did = rng.random(len(treated)) < np.where(treated, treatment, control)
        return at_once(did.astype(float), np.ones(len(treated)))

    return simulate


def latencies(control: float, treatment: float) -> Simulate:
    """Milliseconds with a heavy tail, over a few loads of each workspace."""

    def simulate(rng: np.random.Generator, treated: Treated) -> World:
        loads = rng.poisson(1.5, len(treated))
        medians = np.where(treated, treatment, control)[:, np.newaxis]
        drawn = rng.lognormal(0.0, 1.2, (len(treated), 12)) * medians
        counted = np.arange(12) < loads[:, np.newaxis]
        return at_once((drawn * counted).sum(axis=1), counted.sum(axis=1).astype(float))

    return simulate


def tokens(control: float, treatment: float) -> Simulate:
    """Tokens shown in a workspace."""

    def simulate(rng: np.random.Generator, treated: Treated) -> World:
        drawn = rng.lognormal(0.0, 0.8, len(treated)) * np.where(treated, treatment, control)
        return at_once(np.round(drawn), np.ones(len(treated)))

    return simulate


WITHOUT_EFFECT: dict[str, Simulate] = {
    "errors of calls (10 %)": errors(0.1, 0.1),
    "errors of calls, workspaces go on working": growing(0.1, 0.1),
    "rare: 2 % of workspaces": shares(0.02, 0.02),
    "every third workspace": shares(1 / 3, 1 / 3),
    "load latency, heavy tail": latencies(3.0, 3.0),
    "tokens of a workspace": tokens(2_000.0, 2_000.0),
}
WITH_EFFECT: dict[str, Simulate] = {
    "errors 10 % → 13 %": errors(0.1, 0.13),
    "errors 10 % → 15 %": errors(0.1, 0.15),
    "errors 10 % → 20 %": errors(0.1, 0.2),
    "errors 10 % → 15 %, workspaces go on working": growing(0.1, 0.15),
    "workspaces 33 % → 45 %": shares(1 / 3, 0.45),
    "tokens 2,000 → 1,500": tokens(2_000.0, 1_500.0),
    "active tools 60 → 8": tokens(60.0, 8.0),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One simulated experiment: at which look each test first raised its alarm; None for never."""

    sequential: int | None
    fixed: int | None
    mismatch: bool


def run(experiment: Experiment, simulate: Simulate, rng: np.random.Generator) -> Run:
    assigned = (experiment.assign(f"{experiment.name}/{number}") for number in range(WORKSPACES))
    treated = np.array([variant is not experiment.control for variant in assigned])
    world = simulate(rng, treated)
    sequential = fixed = None
    for look in range(LOOKS):
        treatment, control = (
            RatioSample.of(world.above[chosen, look], world.below[chosen, look]) for chosen in (treated, ~treated)
        )
        if min(treatment.units, control.units) < MINIMUM:
            continue
        effect = difference(treatment, control, ALPHA)
        if sequential is None and effect.excludes_zero:
            sequential = look
        if fixed is None and effect.value**2 > FIXED_SAMPLE_Z**2 * (treatment.variance + control.variance):
            fixed = look
    p_value = mismatch(treated.astype(int).tolist(), (0.5, 0.5))  # of the whole course: it keeps its highest look
    return Run(sequential=sequential, fixed=fixed, mismatch=p_value < MISMATCH_ALPHA)


def runs(name: str, simulate: Simulate, count: int) -> list[Run]:
    rng = np.random.default_rng(SEED)
    variants = (AS_CONFIGURED, Variant(mode="dynamic"))
    return [
        run(Experiment(name=f"{name} {i}", variants=variants, metric=DEFAULT_METRIC), simulate, rng)
        for i in range(count)
    ]


def wilson(found: int, of: int, z: float = 1.96) -> tuple[float, float]:
    """Bound a rate between 95 % limits."""
    middle = (found + z * z / 2) / (of + z * z)
    radius = z / (of + z * z) * (found * (of - found) / of + z * z / 4) ** 0.5
    return max(middle - radius, 0.0), min(middle + radius, 1.0)


def rate(found: int, of: int) -> str:
    low, high = wilson(found, of)
    return f"{found / of:.1%} ({low:.1%} to {high:.1%})"


def without_effect(name: str, found: Sequence[Run]) -> tuple[str, ...]:
    claimed = sum(each.sequential is not None for each in found)
    fixed = sum(each.fixed is not None for each in found)
    mismatched = sum(each.mismatch for each in found)
    holds = wilson(claimed, len(found))[0] <= ALPHA and wilson(mismatched, len(found))[0] <= MISMATCH_ALPHA
    return (
        name,
        rate(claimed, len(found)),
        rate(mismatched, len(found)),
        rate(fixed, len(found)),
        "holds" if holds else "DOES NOT HOLD",
    )


def with_effect(name: str, found: Sequence[Run]) -> tuple[str, ...]:
    when = [each.sequential for each in found if each.sequential is not None]
    median = f"{(np.median(when) + 1) * WORKSPACES / LOOKS:,.0f}" if when else "–"
    return name, rate(len(when), len(found)), median


def width() -> float:
    """Compare an interval that holds at every look with one that holds at a single one."""
    return estimate(0.0, 1.0, WORKSPACES, ALPHA).high / FIXED_SAMPLE_Z


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--experiments", type=int, default=EXPERIMENTS, help="A/A experiments of each kind")
    options = parser.parse_args()
    nothing = {name: runs(name, simulate, options.experiments) for name, simulate in WITHOUT_EFFECT.items()}
    planted = {name: runs(name, simulate, PLANTED) for name, simulate in WITH_EFFECT.items()}
    tables = [
        Table(
            f"{options.experiments:,} A/A experiments of {WORKSPACES:,} workspaces, looked at {LOOKS} times",
            (
                "outcome",
                f"claims an effect (stated: at most {ALPHA:.0%})",
                f"mismatch alarm (at most {MISMATCH_ALPHA:.0%})",
                "a fixed-sample test",
                "",
            ),
            tuple(without_effect(name, found) for name, found in nothing.items()),
            (f"At {WORKSPACES:,} workspaces an interval is {width():.2f} times as wide as that of a single look.",),
        ),
        Table(
            f"{PLANTED} A/B experiments with a planted effect, likewise",
            ("effect", "found by the last look", "workspaces when it was found (median)"),
            tuple(with_effect(name, found) for name, found in planted.items()),
        ),
    ]
    publish("experiments", tables, {"tables": tables})


if __name__ == "__main__":
    main()
