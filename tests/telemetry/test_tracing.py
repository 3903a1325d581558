"""Spans and metrics arrive at a real OTLP receiver, a process of its own."""

import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio
import pytest

from shortlist.observability.otlp import wants
from tests.telemetry.support import (
    INITIALIZE,
    PROGRAM,
    SECONDS,
    Receiver,
    config_in,
    environment_in,
    receiving,
    stdio_client,
)

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
CALLER = "00f067aa0ba902b7"
META: Any = {"traceparent": f"00-{TRACE}-{CALLER}-01", "tracestate": "congo=t61rcWkgMzE"}
OFTEN = {"OTEL_BSP_SCHEDULE_DELAY": "100", "OTEL_METRIC_EXPORT_INTERVAL": "500"}
"""Milliseconds."""
LAST = {"tools/call fixture__refuse", "retrieval tools"}
"""What the test waits for: spans of the same batch arrive together."""
SERVER, CLIENT = 2, 3
ERROR = 2


@dataclass(frozen=True)
class Arrived:
    """What one gateway sent to the receiver, and what its upstream server was sent."""

    spans: list[dict[str, Any]]
    metrics: dict[str, dict[str, Any]]
    upstream_meta: dict[str, Any]

    def one(self, name: str, **more: Any) -> dict[str, Any]:
        found = [span for span in self.spans if span["name"] == name and all(span[key] == more[key] for key in more)]
        assert len(found) == 1, f"{len(found)} spans {name!r} in {[span['name'] for span in self.spans]}"
        return found[0]


@pytest.fixture(scope="module")
def arrived(tmp_path_factory: pytest.TempPathFactory) -> Arrived:
    folder = tmp_path_factory.mktemp("gateway")
    with receiving() as receiver:
        otel = {"OTEL_EXPORTER_OTLP_ENDPOINT": receiver.endpoint, **OFTEN}
        meta = anyio.run(_everything, environment_in(folder) | otel, config_in(folder), receiver)
        found = receiver.arrived()
    return Arrived(found["spans"], {metric["name"]: metric for metric in found["metrics"]}, meta)


async def _everything(environment: dict[str, str], config: Path, receiver: Receiver) -> dict[str, Any]:
    async with stdio_client(environment, config) as client:
        await client.call_tool("search_tools", {"query": "say a secret text back", "limit": 3}, meta=META)
        shown = await client.call_tool("call_tool", {"name": "fixture__show_meta", "arguments": {}}, meta=META)
        await client.call_tool("fixture__go_wrong", {})
        await client.call_tool("fixture__say_back", {"text": 7})
        with pytest.raises(Exception, match="Refused on purpose"):
            await client.call_tool("fixture__refuse", {})
        while '"-32050"' not in json.dumps(receiver.arrived()["metrics"]) or not _names(receiver) >= LAST:
            await anyio.sleep(0.05)
    meta: dict[str, Any] = json.loads(shown.content[0].text)  # type: ignore[union-attr]
    return meta


def _names(receiver: Receiver) -> set[str]:
    return {span["name"] for span in receiver.arrived()["spans"]}


def test_a_search_and_its_steps_are_spans_below_the_callers_own(arrived: Arrived) -> None:
    request = arrived.one("tools/call search_tools", kind=SERVER)
    search = arrived.one("retrieval tools")
    steps = [span for span in arrived.spans if span["parent"] == search["id"]]
    assert (request["trace"], request["parent"]) == (TRACE, CALLER)
    assert request["service"] == "shortlist"
    assert search["parent"] == request["id"]
    assert search["attributes"]["gen_ai.operation.name"] == "retrieval"
    assert search["attributes"]["gen_ai.retrieval.top_k"] == 3
    assert search["attributes"]["shortlist.search.hits"] == 3
    assert {"search read", "search lexical", "search fuse"} <= {step["name"] for step in steps}
    assert all(search["start"] <= step["start"] <= step["end"] <= search["end"] for step in steps)


def test_a_call_is_traced_through_to_the_upstream_server(arrived: Arrived) -> None:
    request = arrived.one("tools/call call_tool", kind=SERVER)
    call = arrived.one("tools/call show_meta", kind=CLIENT)
    assert request["attributes"]["shortlist.outcome"] == "ok"
    assert request["attributes"]["shortlist.tool"] == "fixture/show_meta"
    assert call["parent"] == request["id"]
    assert call["attributes"]["mcp.method.name"] == "tools/call"
    assert call["attributes"]["gen_ai.tool.name"] == "show_meta"
    assert call["attributes"]["shortlist.server"] == "fixture"
    assert call["attributes"]["mcp.protocol.version"] == "2026-07-28"
    assert arrived.upstream_meta["traceparent"] == f"00-{TRACE}-{call['id']}-01"
    assert arrived.upstream_meta["tracestate"] == META["tracestate"]


def test_a_tools_own_error_a_refusal_and_wrong_arguments_are_told_apart(arrived: Arrived) -> None:
    names = ("go_wrong", "say_back", "refuse")
    outcomes = {name: arrived.one(f"tools/call fixture__{name}")["attributes"]["shortlist.outcome"] for name in names}
    assert outcomes == {"go_wrong": "error", "say_back": "invalid_arguments", "refuse": "failed"}
    wrong, refused = arrived.one("tools/call go_wrong"), arrived.one("tools/call refuse")
    assert (wrong["attributes"]["error.type"], wrong["status"]) == ("tool_error", ERROR)
    assert (refused["attributes"]["error.type"], refused["status"]) == ("-32050", ERROR)
    assert not [span for span in arrived.spans if span["name"] == "tools/call say_back"]


def test_no_text_of_a_query_is_in_a_span(arrived: Arrived) -> None:
    assert "secret" not in json.dumps(arrived.spans)


def test_metrics_are_pushed_too(arrived: Arrived) -> None:
    served = arrived.metrics["mcp.server.operation.duration"]
    assert served["kind"] == "histogram"
    assert {"mcp.method.name": "tools/call", "gen_ai.tool.name": "search_tools"} in served["points"]
    assert {"mcp.method.name": "tools/call", "error.type": "tool_error"} in served["points"]
    assert {"mcp.method.name": "tools/call", "error.type": "-32050"} in served["points"]
    assert {"server": "fixture", "outcome": "error"} in arrived.metrics["shortlist.calls"]["points"]
    assert arrived.metrics["shortlist.tools"]["points"] == [{"server": "fixture"}]


@pytest.mark.anyio
async def test_without_a_collector_the_callers_trace_still_reaches_the_server(
    environment: dict[str, str], config: Path
) -> None:
    async with stdio_client(environment, config) as client:
        shown = await client.call_tool("call_tool", {"name": "fixture__show_meta", "arguments": {}}, meta=META)
    arrived = json.loads(shown.content[0].text)  # type: ignore[union-attr]
    assert arrived["traceparent"] == META["traceparent"]


@pytest.mark.anyio
async def test_a_collector_that_is_not_there_disturbs_no_call(environment: dict[str, str], config: Path) -> None:
    environment["OTEL_EXPORTER_OTLP_ENDPOINT"] = "http://127.0.0.1:9"
    async with stdio_client(environment, config) as client:
        said = await client.call_tool("fixture__say_back", {"text": "here"})
    assert said.content[0].text == "here"  # type: ignore[union-attr]


def test_what_is_left_is_sent_when_the_client_leaves(environment: dict[str, str], config: Path) -> None:
    with receiving() as receiver:
        environment["OTEL_EXPORTER_OTLP_ENDPOINT"] = receiver.endpoint
        line = json.dumps(INITIALIZE) + "\n"
        command = [*PROGRAM, "serve", "--own", "--config", str(config)]
        done = subprocess.run(
            command, env=environment, input=line, capture_output=True, text=True, timeout=SECONDS, check=True
        )
        found = receiver.arrived()
    assert json.loads(done.stdout)["id"] == 1
    assert "initialize" in {span["name"] for span in found["spans"]}
    assert "mcp.server.operation.duration" in {metric["name"] for metric in found["metrics"]}


@pytest.mark.parametrize(
    ("environment", "wanted"),
    [
        ({}, False),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:4318"}, True),
        ({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://c:4318/v1/traces"}, True),
        ({"OTEL_EXPORTER_OTLP_METRICS_ENDPOINT": "http://c:4318/v1/metrics"}, False),
        ({"OTEL_TRACES_EXPORTER": "otlp"}, True),
        ({"OTEL_TRACES_EXPORTER": "none", "OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:4318"}, False),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:4318", "OTEL_SDK_DISABLED": "true"}, False),
    ],
)
def test_the_standard_variables_decide_what_is_sent(environment: dict[str, str], wanted: bool) -> None:
    assert wants("traces", environment) is wanted


def python(code: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=SECONDS, check=True)


def test_nothing_of_the_sdk_is_imported_unless_it_is_asked_for() -> None:
    done = python(
        "import sys, shortlist.cli.hosting as serving\n"
        "with serving.exporting({}, serving.GatewayMetrics().instruments, '1') as export: print(export.signals)\n"
        "print([name for name in sys.modules if name.startswith(('opentelemetry.sdk', 'opentelemetry.exporter'))])"
    )
    assert done.stdout.splitlines() == ["()", "[]"]


def test_without_the_extra_the_remedy_is_said_and_serving_goes_on() -> None:
    done = python(
        "import sys; sys.modules['opentelemetry.sdk'] = None\n"
        "import shortlist.cli.hosting as serving\n"
        "asked = {'OTEL_EXPORTER_OTLP_ENDPOINT': 'http://127.0.0.1:9'}\n"
        "with serving.exporting(asked, serving.GatewayMetrics().instruments, '1') as export: print(export.signals)"
    )
    assert done.stdout.strip() == "()"
    assert "pip install 'shortlist-mcp[otel]'" in done.stderr
