"""What an experiment shows so far: valid at every look, silent before its minimum, loud when sizes do not fit."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Literal, TypeAlias

import numpy as np

from shortlist.models import Json
from shortlist.telemetry.experiments.hypotheses import HYPOTHESES, Finding, judge
from shortlist.telemetry.experiments.outcomes import METRICS, Counts, Metric, Outcome
from shortlist.telemetry.experiments.plan import Experiment, Variant
from shortlist.telemetry.experiments.sequential import UNKNOWN, Estimate, Sample, difference, mean, mismatch

_COUNTED = tuple(field.name for field in fields(Outcome) if field.name != "variant")
MISMATCH_ALPHA = 0.01
"""Below this the variants' sizes are no chance, and nothing else in the report is to be trusted."""

Verdict: TypeAlias = Literal["too early", "no difference shown", "better", "worse"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """One metric of a treatment against the control's."""

    metric: Metric
    treatment: str
    control: Sample
    treated: Sample
    effect: Estimate
    verdict: Verdict

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
    """A hypothesis about one treatment, and what is known of it."""

    name: str
    claim: str
    treatment: str
    estimate: Estimate
    finding: Finding

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
class Report:
    """An experiment's variants and what they show."""

    experiment: Experiment
    workspaces: Mapping[str, int]
    mismatch_p_value: float
    primary: tuple[Comparison, ...]
    guardrails: tuple[Comparison, ...]
    others: tuple[Comparison, ...]
    hypotheses: tuple[Tested, ...]

    @property
    def mismatched(self) -> bool:
        return self.mismatch_p_value < MISMATCH_ALPHA

    @property
    def broken(self) -> tuple[Comparison, ...]:
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


def build_report(experiment: Experiment, outcomes: Sequence[Outcome]) -> Report:
    """Compare the variants; `outcomes` come in the order of first exposure."""
    names = [variant.name for variant in experiment.variants]
    outcomes = [outcome for outcome in outcomes if outcome.variant in names]
    by_variant = {name: _columns([outcome for outcome in outcomes if outcome.variant == name]) for name in names}

    def compared(metrics: Sequence[str]) -> tuple[Comparison, ...]:
        return tuple(
            _compare(experiment, METRICS[metric], by_variant, treatment)
            for metric in metrics
            for treatment in experiment.treatments
        )

    watched = tuple(name for name in experiment.guardrails if name != experiment.metric)
    return Report(
        experiment=experiment,
        workspaces={name: len(counts["calls"]) for name, counts in by_variant.items()},
        mismatch_p_value=mismatch([names.index(o.variant) for o in outcomes], [1 / len(names)] * len(names)),
        primary=compared([experiment.metric]),
        guardrails=compared(watched),
        others=compared([name for name in METRICS if name not in (experiment.metric, *watched)]),
        hypotheses=tuple(_tested(experiment, by_variant)),
    )


def _compare(
    experiment: Experiment, metric: Metric, by_variant: Mapping[str, Counts], treatment: Variant
) -> Comparison:
    control, treated = (
        Sample.of(*metric.share(by_variant[variant.name])) for variant in (experiment.control, treatment)
    )
    enough = min(control.units, treated.units) >= experiment.minimum
    effect = difference(treated, control, _level(experiment)) if enough else UNKNOWN
    return Comparison(
        metric=metric,
        treatment=treatment.name,
        control=control,
        treated=treated,
        effect=effect,
        verdict=_verdict(effect, metric) if enough else "too early",
    )


def _verdict(effect: Estimate, metric: Metric) -> Verdict:
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
    treated = Sample.of(*METRICS[metric].share(by_variant[treatment.name]))
    return mean(treated, _level(experiment)) if treated.units >= experiment.minimum else UNKNOWN


def _columns(outcomes: Sequence[Outcome]) -> Counts:
    return {name: np.array([getattr(outcome, name) for outcome in outcomes], np.float64) for name in _COUNTED}


def _level(experiment: Experiment) -> float:
    """Divide the level among the treatments, so that all of them together keep to it."""
    return experiment.alpha / len(experiment.treatments)


def _number(value: float) -> float | None:
    return value if math.isfinite(value) else None
