"""The report of an experiment: valid at every look, silent before the minimum, loud on a sample-ratio mismatch.

The four hypotheses are those of NodeBench's A/B test; every experiment answers them besides its own metric.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Literal, TypeAlias

import numpy as np

from shortlist.models import Json
from shortlist.storage.port import WorkspaceOutcome
from shortlist.telemetry.experiments.metrics import METRICS, Counts, ExperimentMetric
from shortlist.telemetry.experiments.plan import Experiment, Variant
from shortlist.telemetry.experiments.sequential import UNKNOWN, Estimate, RatioSample, difference, mean, mismatch

_COUNTED = tuple(field.name for field in fields(WorkspaceOutcome) if field.name != "variant")
_SCALE = {"": 1.0, "%": 100.0, "ms": 1.0}
MISMATCH_ALPHA = 0.01
"""Below this p-value there is a sample-ratio mismatch, and the report must not be trusted."""

EffectVerdict: TypeAlias = Literal["too early", "no difference shown", "better", "worse"]
HypothesisFinding: TypeAlias = Literal["supported", "refuted", "open"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Hypothesis:
    """Claims on which side of a bound a metric lies: the treatment's own, or its difference from the control."""

    name: str
    claim: str
    metric: str
    side: Literal["below", "above"]
    bound: float
    alone: bool = False


HYPOTHESES = (
    Hypothesis(
        name="H1", claim="fewer tools are active than in the control", metric="active_tools", side="below", bound=0
    ),
    Hypothesis(
        name="H2",
        claim="the error rate rises by at most 2 percentage points",
        metric="errors",
        side="below",
        bound=0.02,
    ),
    Hypothesis(
        name="H3", claim="a load takes less than 100 ms", metric="load_latency", side="below", bound=100, alone=True
    ),
    Hypothesis(
        name="H4",
        claim="at least 10 % of the workspaces load tools unprompted",
        metric="organic_loads",
        side="above",
        bound=0.1,
        alone=True,
    ),
)


def judge(hypothesis: Hypothesis, estimate: Estimate) -> HypothesisFinding:
    """Judge a hypothesis by an estimate; open while the bound lies inside the interval."""
    if estimate.low <= hypothesis.bound <= estimate.high:
        return "open"
    return "supported" if (estimate.high < hypothesis.bound) == (hypothesis.side == "below") else "refuted"


@dataclass(frozen=True, slots=True, kw_only=True)
class VariantComparison:
    """One metric of a treatment compared with the control."""

    metric: ExperimentMetric
    treatment: str
    control: RatioSample
    treated: RatioSample
    effect: Estimate
    verdict: EffectVerdict

    @property
    def relative(self) -> float:
        return self.effect.value / self.control.value if self.control.value else math.nan

    def data(self) -> dict[str, Json]:
        return {
            "metric": self.metric.name,
            "treatment": self.treatment,
            "control_value": _number(self.control.value),
            "treatment_value": _number(self.treated.value),
            "control_workspaces": self.control.units,
            "treatment_workspaces": self.treated.units,
            "effect": _number(self.effect.value),
            "relative_effect": _number(self.relative),
            "low": _number(self.effect.low),
            "high": _number(self.effect.high),
            "p_value": self.effect.p_value,
            "verdict": self.verdict,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Tested:
    """A hypothesis about one treatment, and what the data says about it."""

    name: str
    claim: str
    treatment: str
    estimate: Estimate
    finding: HypothesisFinding

    def data(self) -> dict[str, Json]:
        estimate = {"value": self.estimate.value, "low": self.estimate.low, "high": self.estimate.high}
        return {
            "hypothesis": self.name,
            "claim": self.claim,
            "treatment": self.treatment,
            **{key: _number(value) for key, value in estimate.items()},
            "finding": self.finding,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class ExperimentReport:
    """An experiment's variants and their effects."""

    experiment: Experiment
    workspaces: Mapping[str, int]
    mismatch_p_value: float
    primary: tuple[VariantComparison, ...]
    guardrails: tuple[VariantComparison, ...]
    others: tuple[VariantComparison, ...]
    hypotheses: tuple[Tested, ...]

    @property
    def mismatched(self) -> bool:
        return self.mismatch_p_value < MISMATCH_ALPHA

    @property
    def broken(self) -> tuple[VariantComparison, ...]:
        return tuple(guardrail for guardrail in self.guardrails if guardrail.verdict == "worse")

    def data(self) -> dict[str, Json]:
        return {
            "experiment": self.experiment.data(),
            "workspaces": dict(self.workspaces),
            "mismatch_p_value": self.mismatch_p_value,
            "mismatched": self.mismatched,
            "primary": [each.data() for each in self.primary],
            "guardrails": [each.data() for each in self.guardrails],
            "others": [each.data() for each in self.others],
            "hypotheses": [each.data() for each in self.hypotheses],
        }


def build_report(experiment: Experiment, outcomes: Sequence[WorkspaceOutcome]) -> ExperimentReport:
    """Compare the variants; `outcomes` are in the order of first exposure."""
    names = [variant.name for variant in experiment.variants]
    outcomes = [outcome for outcome in outcomes if outcome.variant in names]
    by_variant = {name: _columns([outcome for outcome in outcomes if outcome.variant == name]) for name in names}

    def compared(metrics: Sequence[str]) -> tuple[VariantComparison, ...]:
        return tuple(
            _compare(experiment, METRICS[metric], by_variant, treatment)
            for metric in metrics
            for treatment in experiment.treatments
        )

    watched = tuple(name for name in experiment.guardrails if name != experiment.metric)
    return ExperimentReport(
        experiment=experiment,
        workspaces={name: len(counts["calls"]) for name, counts in by_variant.items()},
        mismatch_p_value=mismatch([names.index(o.variant) for o in outcomes], [1 / len(names)] * len(names)),
        primary=compared([experiment.metric]),
        guardrails=compared(watched),
        others=compared([name for name in METRICS if name not in (experiment.metric, *watched)]),
        hypotheses=tuple(_tested(experiment, by_variant)),
    )


def _compare(
    experiment: Experiment, metric: ExperimentMetric, by_variant: Mapping[str, Counts], treatment: Variant
) -> VariantComparison:
    control, treated = (
        RatioSample.of(*metric.share(by_variant[variant.name])) for variant in (experiment.control, treatment)
    )
    enough = min(control.units, treated.units) >= experiment.minimum
    effect = difference(treated, control, _level(experiment)) if enough else UNKNOWN
    return VariantComparison(
        metric=metric,
        treatment=treatment.name,
        control=control,
        treated=treated,
        effect=effect,
        verdict=_verdict(effect, metric) if enough else "too early",
    )


def _verdict(effect: Estimate, metric: ExperimentMetric) -> EffectVerdict:
    if not effect.excludes_zero:
        return "no difference shown"
    return "better" if (effect.value < 0) == (metric.better == "lower") else "worse"


def _tested(experiment: Experiment, by_variant: Mapping[str, Counts]) -> list[Tested]:
    return [
        Tested(
            name=hypothesis.name,
            claim=hypothesis.claim,
            treatment=treatment.name,
            estimate=(found := _estimate(experiment, hypothesis.metric, by_variant, treatment, alone=hypothesis.alone)),
            finding=judge(hypothesis, found),
        )
        for hypothesis in HYPOTHESES
        for treatment in experiment.treatments
    ]


def _estimate(
    experiment: Experiment, metric: str, by_variant: Mapping[str, Counts], treatment: Variant, *, alone: bool
) -> Estimate:
    if not alone:
        return _compare(experiment, METRICS[metric], by_variant, treatment).effect
    treated = RatioSample.of(*METRICS[metric].share(by_variant[treatment.name]))
    return mean(treated, _level(experiment)) if treated.units >= experiment.minimum else UNKNOWN


def _columns(outcomes: Sequence[WorkspaceOutcome]) -> Counts:
    return {name: np.array([getattr(outcome, name) for outcome in outcomes], np.float64) for name in _COUNTED}


def _level(experiment: Experiment) -> float:
    """Return the significance level per treatment, so that all of them together keep to alpha."""
    return experiment.alpha / len(experiment.treatments)


def _number(value: float) -> float | None:
    return value if math.isfinite(value) else None


def report_text(report: ExperimentReport) -> str:
    """Format a report: the conclusion first, then the figures."""
    experiment = report.experiment
    state = "stopped" if experiment.stopped is not None else "running"
    sizes = ", ".join(f"{name}: {count}" for name, count in report.workspaces.items())
    parts = [
        f"Experiment {experiment.name!r} ({state}): {METRICS[experiment.metric].meaning}",
        f"Workspaces: {sizes}",
        conclusion(report),
        _section("Metric", report.primary),
        _section("Guardrails", report.guardrails),
        _section("Other metrics (each judged alone)", report.others),
        "\n".join(["Hypotheses", *(_hypothesis(each) for each in report.hypotheses)]),
        f"Confidence sequences: each metric's intervals hold at all looks together with {1 - experiment.alpha:.0%} "
        "probability.",
    ]
    return "\n\n".join(part for part in parts if part)


def conclusion(report: ExperimentReport) -> str:
    """State what may be concluded now."""
    if report.mismatched:
        return (
            f"DO NOT TRUST THIS: sample-ratio mismatch (p = {report.mismatch_p_value:.2g}). The variants' sizes differ "
            "by more than chance, so exposures of one of them are lost. Find the cause and start again."
        )
    sentences = [_sentence(report, each) for each in report.primary]
    sentences += [
        f"GUARDRAIL BROKEN: {each.metric.meaning} got worse under {each.treatment!r}." for each in report.broken
    ]
    return "\n".join(sentences)


def _sentence(report: ExperimentReport, found: VariantComparison) -> str:
    if found.verdict == "too early":
        least = min(found.control.units, found.treated.units)
        minimum = report.experiment.minimum
        return f"{found.treatment!r}: too early, {least} of at least {minimum} workspaces in the smaller variant."
    said = {
        "better": "is better than the control",
        "worse": "is worse than the control",
        "no difference shown": "shows no difference yet",
    }
    return f"{found.treatment!r} {said[found.verdict]} (p = {found.effect.p_value:.2g})."


def _section(title: str, comparisons: Sequence[VariantComparison]) -> str:
    return "\n".join([title, *(_line(each) for each in comparisons)]) if comparisons else ""


def _line(found: VariantComparison) -> str:
    metric, effect = found.metric, found.effect
    control, treated = (value_text(metric, sample.value) for sample in (found.control, found.treated))
    values = f"  {metric.name:<14} {control} → {treated} under {found.treatment!r}"
    if found.verdict == "too early":
        return f"{values}  (too early: {found.control.units} and {found.treated.units} workspaces)"
    change = f", {found.relative:+.1%}" if math.isfinite(found.relative) else ""
    return f"{values}  effect {_bounds(metric, effect.value, effect.low, effect.high)}{change}: {found.verdict}"


def _hypothesis(tested: Tested) -> str:
    return f"  {tested.name} {tested.claim} ({tested.treatment!r}): {tested.finding}"


def _bounds(metric: ExperimentMetric, value: float, low: float, high: float) -> str:
    return f"{value_text(metric, value)} [{value_text(metric, low)}, {value_text(metric, high)}]"


def value_text(metric: ExperimentMetric, value: float) -> str:
    """Format a value in its metric's unit."""
    if not math.isfinite(value):
        return "–"
    unit = f" {metric.unit}" if metric.unit else ""
    return f"{value * _SCALE[metric.unit]:.3g}{unit}"
