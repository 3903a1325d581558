"""Experiments: variants, effects and conclusions."""

import math
from dataclasses import dataclass

from shortlist.errors import InvalidInput
from shortlist.telemetry.experiments.metrics import ExperimentMetric
from shortlist.telemetry.experiments.plan import find_experiment, read_experiments
from shortlist.telemetry.experiments.report import VariantComparison, build_report, conclusion
from shortlist.web.charts import EffectInterval
from shortlist.web.page import NoSuchPage, Page, Visit


@dataclass(frozen=True, slots=True)
class ComparisonRow:
    """One comparison, formatted."""

    found: VariantComparison

    @property
    def control(self) -> str:
        return _text(self.found.metric, self.found.control.value)

    @property
    def treated(self) -> str:
        return _text(self.found.metric, self.found.treated.value)

    @property
    def effect(self) -> str:
        return _text(self.found.metric, self.found.effect.value, sign="+")

    @property
    def low(self) -> str:
        return _text(self.found.metric, self.found.effect.low, sign="+")

    @property
    def high(self) -> str:
        return _text(self.found.metric, self.found.effect.high, sign="+")

    @property
    def interval(self) -> EffectInterval:
        effect = self.found.effect
        return EffectInterval(effect.value, effect.low, effect.high)


def listing(visit: Visit) -> Page:
    """Show all experiments, the latest first and with its conclusion."""
    store = visit.record().experiments
    experiments = read_experiments(store)
    latest = build_report(experiments[0], store.outcomes(experiments[0].name)) if experiments else None
    values = {"experiments": experiments, "latest": latest, "conclusion": conclusion(latest) if latest else ""}
    return Page("experiments.html", "Experiments", values)


def page(visit: Visit) -> Page:
    """Show one experiment."""
    store = visit.record().experiments
    try:
        experiment = find_experiment(store, visit.path["experiment"])
    except InvalidInput as error:
        raise NoSuchPage(str(error)) from None
    report = build_report(experiment, store.outcomes(experiment.name))
    sections = [
        ("Metric", "The metric that decides the experiment.", report.primary),
        ("Guardrails", "Metrics that must not get worse.", report.guardrails),
        ("Other metrics", "Each judged alone.", report.others),
    ]
    return Page(
        "experiment.html",
        experiment.name,
        {
            "report": report,
            "conclusion": conclusion(report),
            "sections": [(heading, note, [ComparisonRow(found) for found in rows]) for heading, note, rows in sections],
        },
    )


def _text(metric: ExperimentMetric, value: float, sign: str = "") -> str:
    if not math.isfinite(value):
        return "–"
    scaled = value * 100 if metric.unit == "%" else value
    size = abs(scaled)
    figures = 0 if size >= 100 or scaled == int(scaled) else 1 if size >= 10 else 2 if size >= 1 else 3
    return f"{scaled:{sign},.{figures}f} {metric.unit}".strip()
