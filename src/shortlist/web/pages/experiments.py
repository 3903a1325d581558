"""Experiments: what is compared, and what may be concluded so far."""

from dataclasses import dataclass

from shortlist.errors import InvalidInput
from shortlist.telemetry.experiments.report import Comparison, build_report
from shortlist.telemetry.experiments.store import ExperimentStore
from shortlist.telemetry.experiments.text import conclusion, value_text
from shortlist.web.charts import Interval
from shortlist.web.page import NoSuchPage, Page, Visit


@dataclass(frozen=True, slots=True)
class Row:
    """One comparison as it is shown."""

    found: Comparison

    @property
    def control(self) -> str:
        return self._text(self.found.control.value)

    @property
    def treated(self) -> str:
        return self._text(self.found.treated.value)

    @property
    def effect(self) -> str:
        return self._text(self.found.effect.value)

    @property
    def low(self) -> str:
        return self._text(self.found.effect.low)

    @property
    def high(self) -> str:
        return self._text(self.found.effect.high)

    @property
    def interval(self) -> Interval:
        effect = self.found.effect
        return Interval(effect.value, effect.low, effect.high)

    def _text(self, value: float) -> str:
        return value_text(self.found.metric, value)


def listing(visit: Visit) -> Page:
    """Show all experiments, the latest first."""
    with visit.record() as record:
        store = ExperimentStore(record.file)
        reports = [build_report(each, store.outcomes(each)) for each in store.experiments()]
    return Page("experiments.html", "Experiments", {"reports": reports, "conclusion": conclusion})


def page(visit: Visit) -> Page:
    """Show one experiment."""
    with visit.record() as record:
        store = ExperimentStore(record.file)
        try:
            experiment = store.get(visit.path["experiment"])
        except InvalidInput as error:
            raise NoSuchPage(str(error)) from None
        report = build_report(experiment, store.outcomes(experiment))
    sections = [
        ("Metric", "What the experiment is decided by.", report.primary),
        ("Guardrails", "What must not get worse.", report.guardrails),
        ("Other figures", "Each judged alone.", report.others),
    ]
    return Page(
        "experiment.html",
        experiment.name,
        {
            "report": report,
            "conclusion": conclusion(report),
            "sections": [(heading, note, [Row(found) for found in rows]) for heading, note, rows in sections],
        },
    )
