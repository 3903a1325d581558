from pathlib import Path

from shortlist.telemetry.experiments.metrics import DEFAULT_GUARDRAILS, DEFAULT_METRIC, METRICS
from shortlist.telemetry.experiments.plan import MINIMUM
from shortlist.telemetry.experiments.report import HYPOTHESES

PAGE = (Path(__file__).parents[3] / "docs" / "experiments.md").read_text("utf-8")


def test_every_metric_is_on_the_page_with_its_meaning() -> None:
    rows = [line.split(" | ") for line in PAGE.splitlines() if line.startswith("| `")]
    told = {cells[0].split("`")[1]: (cells[1], cells[2].strip(" |")) for cells in rows if len(cells) == 3}
    defined = {name: (metric.meaning, metric.better) for name, metric in METRICS.items()}
    assert {name: told.get(name, ("", ""))[1] for name in defined} == {
        name: side for name, (_, side) in defined.items()
    }
    assert all(told[name][0].replace(" (`report_task`)", "") == meaning for name, (meaning, _) in defined.items())


def test_defaults_and_hypotheses_are_what_the_page_says() -> None:
    assert f"| `{DEFAULT_METRIC}` (default)" in PAGE
    assert f"(default: {' and '.join(f'`{name}`' for name in DEFAULT_GUARDRAILS)})" in PAGE
    assert f"Below {MINIMUM} workspaces" in PAGE
    assert all(f"({hypothesis.name})" in PAGE for hypothesis in HYPOTHESES)
