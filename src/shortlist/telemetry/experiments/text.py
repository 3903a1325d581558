"""A report as text, for a terminal and for a model."""

import math
from collections.abc import Sequence

from shortlist.telemetry.experiments.outcomes import METRICS, Metric
from shortlist.telemetry.experiments.report import Comparison, Report, Tested

_SCALE = {"": 1.0, "%": 100.0, "ms": 1.0}


def report_text(report: Report) -> str:
    """Write a report: what to conclude first, then the figures."""
    experiment = report.experiment
    state = "stopped" if experiment.stopped is not None else "running"
    sizes = ", ".join(f"{name}: {count}" for name, count in report.workspaces.items())
    parts = [
        f"Experiment {experiment.name!r} ({state}): {METRICS[experiment.metric].meaning}",
        f"Workspaces: {sizes}",
        conclusion(report),
        _section("Metric", report.primary),
        _section("Guardrails", report.guardrails),
        _section("Other figures (each judged alone)", report.others),
        "\n".join(["Hypotheses", *(_hypothesis(each) for each in report.hypotheses)]),
        f"Intervals hold at every look together with probability {1 - experiment.alpha:.0%}, for each metric.",
    ]
    return "\n\n".join(part for part in parts if part)


def conclusion(report: Report) -> str:
    """Say in a sentence what may be concluded now."""
    if report.mismatched:
        return (
            f"DO NOT TRUST THIS: the variants' sizes differ more than by chance (p = {report.mismatch_p_value:.2g}). "
            "Exposures of one of them are lost; find out why and start again."
        )
    sentences = [_sentence(report, each) for each in report.primary]
    sentences += [
        f"GUARDRAIL BROKEN: {each.metric.meaning} got worse under {each.treatment!r}." for each in report.broken
    ]
    return "\n".join(sentences)


def _sentence(report: Report, found: Comparison) -> str:
    if found.verdict == "too early":
        least = min(found.control.units, found.treated.units)
        minimum = report.experiment.minimum
        return f"{found.treatment!r}: too early, {least} of at least {minimum} workspaces of the smaller variant."
    said = {
        "better": "is better than the control",
        "worse": "is worse than the control",
        "no difference shown": "shows no difference yet",
    }
    return f"{found.treatment!r} {said[found.verdict]} (p = {found.effect.p_value:.2g})."


def _section(title: str, comparisons: Sequence[Comparison]) -> str:
    return "\n".join([title, *(_line(each) for each in comparisons)]) if comparisons else ""


def _line(found: Comparison) -> str:
    metric, effect = found.metric, found.effect
    control, treated = (value_text(metric, sample.value) for sample in (found.control, found.treated))
    values = f"  {metric.name:<14} {control} → {treated} under {found.treatment!r}"
    if found.verdict == "too early":
        return f"{values}  (too early: {found.control.units} and {found.treated.units} workspaces)"
    change = f", {found.relative:+.1%}" if math.isfinite(found.relative) else ""
    return f"{values}  effect {_bounds(metric, effect.value, effect.low, effect.high)}{change}: {found.verdict}"


def _hypothesis(tested: Tested) -> str:
    return f"  {tested.name} {tested.claim} ({tested.treatment!r}): {tested.finding}"


def _bounds(metric: Metric, value: float, low: float, high: float) -> str:
    return f"{value_text(metric, value)} [{value_text(metric, low)}, {value_text(metric, high)}]"


def value_text(metric: Metric, value: float) -> str:
    """Write a value in its metric's unit."""
    if not math.isfinite(value):
        return "–"
    unit = f" {metric.unit}" if metric.unit else ""
    return f"{value * _SCALE[metric.unit]:.3g}{unit}"
