"""The Grafana dashboard asks only for metrics and labels that a real gateway has."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.telemetry.support import SECRETS, get

DASHBOARD = Path(__file__).parents[2] / "deploy" / "grafana" / "shortlist.json"
METRIC = re.compile(r"\b(?:shortlist|mcp)_[a-z_]+\b(?=\s*[{\[),]|$)")
GROUPED = re.compile(r"by \(([^)]*)\)")


def metrics_of(query: str) -> list[str]:
    return METRIC.findall(GROUPED.sub("", query))


def queries(node: Any) -> Iterator[str]:
    """Find every PromQL text of a dashboard, in panels and in variables."""
    if isinstance(node, dict):
        for key, value in node.items():
            if key in ("expr", "query") and isinstance(value, str) and value != "prometheus":
                yield value
            else:
                yield from queries(value)
    elif isinstance(node, list):
        for item in node:
            yield from queries(item)


@pytest.fixture(scope="module")
def exposed(used_gateway: str) -> dict[str, set[str]]:
    """Return the samples of a gateway, with their labels."""
    text = get(f"{used_gateway}/metrics", SECRETS["ada"]).text
    found: dict[str, set[str]] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            found.setdefault(sample.name, set()).update(sample.labels)
    return found


def test_every_metric_of_the_dashboard_is_there(exposed: dict[str, set[str]]) -> None:
    asked = {name for query in queries(json.loads(DASHBOARD.read_text())) for name in metrics_of(query)}
    assert len(asked) > 10
    assert asked <= exposed.keys()


def test_every_label_that_is_grouped_by_is_there(exposed: dict[str, set[str]]) -> None:
    for query in queries(json.loads(DASHBOARD.read_text())):
        labels = {label for name in metrics_of(query) for label in exposed[name]}
        grouped = {label.strip() for group in GROUPED.findall(query) for label in group.split(",")}
        assert grouped <= labels, query


def test_every_panel_has_a_title_and_a_query() -> None:
    panels = [panel for panel in json.loads(DASHBOARD.read_text())["panels"] if panel["type"] != "row"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    assert all(panel["title"] and panel["targets"] for panel in panels)
