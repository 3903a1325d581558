import math
from dataclasses import asdict, replace

import numpy as np
import pytest

from shortlist.storage.port import WorkspaceOutcome
from shortlist.telemetry.experiments.metrics import METRICS
from shortlist.telemetry.experiments.plan import AS_CONFIGURED, Experiment, Variant
from shortlist.telemetry.experiments.report import ExperimentReport, build_report, conclusion, report_text

DYNAMIC = Variant(mode="dynamic")
EXPERIMENT = Experiment(
    name="modes", variants=(AS_CONFIGURED, DYNAMIC), metric="errors", guardrails=("errors", "tokens"), minimum=20
)


def simulated(
    experiment: Experiment = EXPERIMENT, workspaces: int = 600, errors: float = 0.1, worse: float = 0.0
) -> list[WorkspaceOutcome]:
    rng = np.random.default_rng(7)
    outcomes = []
    for number in range(workspaces):
        variant = experiment.assign(f"w{number}")
        treated = variant != experiment.control
        calls = int(rng.poisson(8))
        outcomes.append(
            WorkspaceOutcome(
                variant=variant.name,
                tools=8 if treated else 60,
                calls=calls,
                errors=int(rng.binomial(calls, errors + worse * treated)),
                loads=int(treated),
                load_milliseconds=4.0 * treated,
                tokens=int(rng.poisson(900)) + 3_000 * (not treated),
            )
        )
    return outcomes


def test_every_metric_is_what_its_meaning_says() -> None:
    outcome = WorkspaceOutcome(
        variant="x",
        tools=12,
        searches=6,
        calls=4,
        errors=1,
        misses=2,
        loads=2,
        load_milliseconds=30.0,
        tokens=700,
        completed=3,
        abandoned=1,
    )
    shares = {name: metric.share(asdict(outcome)) for name, metric in METRICS.items()}
    assert shares == {
        "errors": (1, 4),
        "misses": (2, 4),
        "searches": (6, 4),
        "tokens": (700, 1),
        "active_tools": (12, 1),
        "load_latency": (30.0, 2),
        "organic_loads": (True, 1),
        "calls": (4, 1),
        "completion": (3, 4),
    }


def test_a_planted_effect_is_found_with_its_size_and_interval() -> None:
    (found,) = build_report(EXPERIMENT, simulated(worse=0.1)).primary
    assert found.verdict == "worse"
    assert found.effect.low < 0.1 < found.effect.high
    assert found.effect.low > 0
    assert found.effect.value == pytest.approx(found.treated.value - found.control.value)
    assert found.effect.p_value < EXPERIMENT.alpha


def test_no_effect_is_called_none() -> None:
    report = build_report(EXPERIMENT, simulated())
    assert [found.verdict for found in report.primary] == ["no difference shown"]
    assert "shows no difference yet" in conclusion(report)


def test_below_the_minimum_nothing_is_concluded_however_large_the_effect() -> None:
    patient = replace(EXPERIMENT, minimum=1_000)
    report = build_report(patient, simulated(worse=0.5))
    (found,) = report.primary
    assert found.verdict == "too early"
    assert (found.effect.low, found.effect.high) == (-math.inf, math.inf)
    assert "too early" in conclusion(report)
    assert {tested.finding for tested in report.hypotheses} == {"open"}


def test_a_guardrail_that_gets_worse_is_named() -> None:
    costly = [replace(o, tokens=o.tokens + 9_000 * (o.variant == DYNAMIC.name)) for o in simulated()]
    report = build_report(EXPERIMENT, costly)
    assert [broken.metric.name for broken in report.broken] == ["tokens"]
    assert "GUARDRAIL BROKEN: tokens" in conclusion(report)


def test_arms_of_unlikely_sizes_spoil_the_report() -> None:
    outcomes = simulated()
    lost = [o for number, o in enumerate(outcomes) if o.variant == AS_CONFIGURED.name or number % 2]
    assert not build_report(EXPERIMENT, outcomes).mismatched
    report = build_report(EXPERIMENT, lost)
    assert report.mismatched
    assert conclusion(report).startswith("DO NOT TRUST THIS")


def test_the_four_hypotheses_are_answered() -> None:
    fine = simulated(workspaces=2_000, errors=0.02)
    findings = {each.name: each.finding for each in build_report(EXPERIMENT, fine).hypotheses}
    assert findings == {"H1": "supported", "H2": "supported", "H3": "supported", "H4": "supported"}
    slow = [replace(o, tools=99, load_milliseconds=300.0 * o.loads, loads=o.loads) for o in simulated(worse=0.2)]
    slow = [replace(o, loads=0) if n % 50 else o for n, o in enumerate(slow)]
    refuted = {each.name: each.finding for each in build_report(EXPERIMENT, slow).hypotheses}
    assert refuted["H2"] == "refuted"
    assert refuted["H4"] == "refuted"


def test_several_treatments_share_the_level() -> None:
    three = replace(EXPERIMENT, variants=(AS_CONFIGURED, DYNAMIC, Variant(mode="static")))
    wide = build_report(three, simulated(three)).primary[0]
    alone = build_report(replace(three, alpha=three.alpha / 2, variants=three.variants[:2]), simulated(three)).primary[
        0
    ]
    assert wide.effect.high - wide.effect.low == pytest.approx(alone.effect.high - alone.effect.low)


def test_outcomes_of_variants_that_are_not_compared_are_left_out() -> None:
    strangers = [WorkspaceOutcome(variant="mode=gone", calls=1, errors=1)] * 50
    assert (
        build_report(EXPERIMENT, [*simulated(), *strangers]).workspaces
        == build_report(EXPERIMENT, simulated()).workspaces
    )


def test_a_report_before_anybody_came_says_so() -> None:
    report = build_report(EXPERIMENT, [])
    assert report.workspaces == {"as configured": 0, "mode=dynamic": 0}
    assert "0 of at least 20 workspaces" in report_text(report)
    assert report.data()["primary"][0]["effect"] is None


def test_the_text_gives_the_conclusion_every_metric_and_every_hypothesis() -> None:
    report: ExperimentReport = build_report(EXPERIMENT, simulated(worse=0.1))
    said = report_text(report)
    assert conclusion(report) in said
    assert all(name in said for name in (*METRICS, "H1", "H2", "H3", "H4"))
    assert "10" in said
    assert "active_tools   60 → 8" in said
