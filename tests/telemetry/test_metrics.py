"""`/metrics` of a real process, read with Prometheus' own parser; who may read it, and the probes beside it."""

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families

from shortlist.observability import metrics
from shortlist.observability.metrics import MAX_SERIES, MOST_UNCOUNTED, OTHER, Family, GatewayMetrics, Instruments
from shortlist.telemetry.events import Later, Searched
from tests.telemetry.support import SECRETS, get

PLAIN = Family(name="things", help="Things.", labels=("kind",))
TIMED = Family(name="thing.duration", help="Time.", kind="histogram", unit="s", buckets=(0.1, 1.0))


@pytest.fixture(scope="module")
def text(used_gateway: str) -> str:
    return get(f"{used_gateway}/metrics", SECRETS["ada"]).text


def families(text: str) -> dict[str, Metric]:
    return {family.name: family for family in text_string_to_metric_families(text)}


def value(text: str, sample: str, **labels: str) -> float:
    found = [
        s.value for f in families(text).values() for s in f.samples if s.name == sample and labels == dict(s.labels)
    ]
    assert len(found) == 1, f"{len(found)} samples {sample} {labels}"
    return found[0]


def test_outcomes_of_calls_are_counted_apart(text: str) -> None:
    for outcome in ("ok", "invalid_arguments", "error", "failed"):
        assert value(text, "shortlist_calls_total", server="fixture", outcome=outcome) == 1


def test_what_a_tool_calls_an_error_is_no_failure_of_the_protocol(text: str) -> None:
    sample = "mcp_client_operation_duration_seconds_count"
    labels = {"mcp_method_name": "tools/call", "server": "fixture"}
    assert value(text, sample, **labels) == 1
    assert value(text, sample, **labels, error_type="tool_error") == 1
    assert value(text, sample, **labels, error_type="-32050") == 1


def test_requests_are_timed_by_method_and_by_the_gateways_own_tools(text: str) -> None:
    sample = "mcp_server_operation_duration_seconds_count"
    assert value(text, sample, mcp_method_name="tools/list") == 1
    assert value(text, sample, mcp_method_name="tools/call", gen_ai_tool_name="search_tools") == 2


def test_searches_are_counted_by_confidence_and_timed_by_step(text: str) -> None:
    searches = families(text)["shortlist_searches"].samples
    steps = {s.labels["step"] for s in families(text)["shortlist_search_step_duration_seconds"].samples}
    assert sum(sample.value for sample in searches) == 2
    assert value(text, "shortlist_search_duration_seconds_count") == 2
    assert {"read", "lexical", "fuse"} <= steps
    assert value(text, "shortlist_search_tokens_total") > 10


def test_servers_have_a_state_and_tools(text: str) -> None:
    assert value(text, "shortlist_upstreams", state="ready") == 1
    assert value(text, "shortlist_upstream_ready", server="fixture") == 1
    assert value(text, "shortlist_tools", server="fixture") == 4


def test_what_clients_make_up_becomes_no_label(text: str) -> None:
    assert "made_up" not in text
    assert "say_back" not in text


def test_metrics_are_behind_the_token_of_the_front(used_gateway: str) -> None:
    assert get(f"{used_gateway}/metrics").status_code == 401
    assert get(f"{used_gateway}/metrics", "wrong").status_code == 401
    assert get(f"{used_gateway}/metrics", SECRETS["ada"]).status_code == 200


def test_a_caller_who_may_not_see_every_server_may_not_read_of_them(used_gateway: str) -> None:
    refused = get(f"{used_gateway}/metrics", SECRETS["bob"])
    assert refused.status_code == 403
    assert "shortlist_" not in refused.text


def test_probes_need_no_token_and_say_nothing_else(used_gateway: str) -> None:
    alive, ready = get(f"{used_gateway}/healthz"), get(f"{used_gateway}/readyz")
    assert (alive.status_code, alive.text) == (200, "ok\n")
    assert (ready.status_code, ready.text) == (200, "ready\n")


def test_a_family_stays_bounded_whatever_its_labels_hold() -> None:
    instruments = Instruments()
    for number in range(3 * MAX_SERIES):
        instruments.count(PLAIN, f"kind {number}")
    samples = families(instruments.exposition())["things"].samples
    assert len(samples) == MAX_SERIES + 1
    assert value(instruments.exposition(), "things_total", kind=OTHER) == 2 * MAX_SERIES


@given(st.text().filter(lambda text: "\r" not in text))
def test_any_label_comes_out_as_it_went_in(label: str) -> None:
    instruments = Instruments()
    instruments.count(PLAIN, label, by=2.5)
    (sample,) = families(instruments.exposition())["things"].samples
    assert (sample.labels.get("kind", ""), sample.value) == (label, 2.5)


@given(st.lists(st.floats(0, 10), min_size=1))
def test_a_histogram_counts_every_value_at_or_below_each_bound(values: list[float]) -> None:
    instruments = Instruments()
    for each in values:
        instruments.observe(TIMED, each)
    text = instruments.exposition()
    for bound in (0.1, 1.0):
        below = sum(each <= bound for each in values)
        assert value(text, "thing_duration_seconds_bucket", le=f"{bound:g}") == below
    assert value(text, "thing_duration_seconds_bucket", le="+Inf") == len(values)
    assert value(text, "thing_duration_seconds_sum") == pytest.approx(sum(values))


def test_tokens_are_counted_when_somebody_reads_and_never_all_at_once_by_a_search() -> None:
    made, counted = GatewayMetrics(), []

    def tokens() -> int:
        counted.append(1)
        return 7

    searched = Searched(
        caller="c", workspace="w", query="q", hits=(), confidence="none", probability=0, tokens=Later(tokens)
    )
    for _ in range(MOST_UNCOUNTED):
        made.record(searched)
    assert not counted
    made.record(searched)
    assert len(counted) == 1
    assert value(made.instruments.exposition(), "shortlist_search_tokens_total") == 7 * (MOST_UNCOUNTED + 1)


def test_the_page_lists_every_metric_and_no_other() -> None:
    page = (Path(__file__).parents[2] / "docs" / "observability.md").read_text("utf-8")
    rows = [line.split("|") for line in page.splitlines() if line.startswith(("| `mcp_", "| `shortlist_"))]
    listed = {name: labels for _, names, _, labels, *_ in rows for name in re.findall(r"`(\w+)`", names)}
    own = [family for family in vars(metrics).values() if isinstance(family, Family)]
    known = {family.exposed_name: family for family in (*own, *metrics.EVENT_FAMILIES.values())}
    assert listed.keys() == known.keys()
    for name, labels in listed.items():
        exposed = [label.replace(".", "_") for label in known[name].labels]
        assert re.findall(r"`(\w+)`", labels) == exposed, name
