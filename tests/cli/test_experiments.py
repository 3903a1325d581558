"""`shortlist ab` over gateways that are real processes, each with a client of its own."""

import json
import os
import random
import sqlite3
import sys
from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import chain
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp import Client, StdioServerParameters

from shortlist.cli import main
from shortlist.paths import data_folder
from shortlist.storage.port import Batch
from shortlist.telemetry.events import Called, CallOutcome, Event, Exposed
from shortlist.telemetry.experiments.plan import AS_CONFIGURED, Experiment, Variant
from shortlist.telemetry.ledger import Ledger, Stamped
from shortlist.telemetry.redaction import Privacy
from tests.telemetry.happenings import events_in

SECONDS = 180
DYNAMIC = Variant(mode="dynamic")


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for kind in ("CONFIG", "DATA", "CACHE"):
        monkeypatch.setenv(f"XDG_{kind}_HOME", str(tmp_path / kind.lower()))
    return tmp_path


def ab(capsys: pytest.CaptureFixture[str], *arguments: str) -> Any:
    assert main(["ab", *arguments, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


@asynccontextmanager
async def gateway(*arguments: str) -> AsyncIterator[Client]:
    command = ["-m", "shortlist.cli", "serve", "--own", *arguments]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    server = StdioServerParameters(command=sys.executable, args=command, env=environment)
    with anyio.fail_after(SECONDS):
        async with Client(server, mode="legacy") as client:
            yield client


async def lists_loading(client: Client) -> bool:
    listed = (await client.list_tools(cache_mode="bypass")).tools
    return "load_tools" in {tool.name for tool in listed}


@pytest.mark.anyio
async def test_a_gateway_that_runs_takes_an_experiment_up_serves_its_variants_and_lets_go_of_it(
    capsys: pytest.CaptureFixture[str], home: Path
) -> None:
    async with gateway() as client:
        before = await lists_loading(client)
        # Compared with itself the treatment is what everybody gets, whatever the workspace.
        ab(capsys, "start", "all", "--variant", "mode=dynamic", "--variant", "mode=dynamic,limit=9")
        with anyio.fail_after(SECONDS):
            while not await lists_loading(client):
                await anyio.sleep(0.1)
        failed = await client.call_tool("call_tool", {"name": "weather__get_sun_times", "arguments": {}})
        with anyio.fail_after(SECONDS):
            while not sum(ab(capsys, "status")["workspaces"].values()):
                await anyio.sleep(0.1)
        ab(capsys, "stop")
        with anyio.fail_after(SECONDS):
            while await lists_loading(client):
                await anyio.sleep(0.1)
    assert not before
    assert failed.is_error
    report = ab(capsys, "report")
    assert sum(report["workspaces"].values()) == 1
    assert report["experiment"]["stopped"] is not None


@pytest.mark.anyio
async def test_exposure_and_outcome_of_a_served_workspace_are_in_the_report(
    capsys: pytest.CaptureFixture[str], home: Path
) -> None:
    started = ab(capsys, "start", "modes", "--variant", "mode=dynamic", "--minimum", "2")
    weather = {
        "command": sys.executable,
        "args": ["-m", "shortlist.demo.server", "weather"],
        "env": {"PYTHONPATH": os.pathsep.join(sys.path)},
    }
    config = home / "servers.json"
    config.write_text(json.dumps({"mcpServers": {"weather": weather}, "shortlist": {"telemetry": {"tools": True}}}))
    async with gateway("--config", str(config)) as client:
        dynamic = await lists_loading(client)
        while (await client.call_tool("describe_tools", {"names": ["weather__get_sun_times"]})).is_error:
            await anyio.sleep(0.1)
        await client.call_tool("call_tool", {"name": "weather__get_sun_times", "arguments": {"location": "Oslo"}})
        await client.call_tool("call_tool", {"name": "weather__get_sun_times", "arguments": {}})
        told = await client.call_tool("get_ab_test_report", {"experiment": "modes"})
    assert "Experiment 'modes' (running)" in str(told.content)
    assert ab(capsys, "status")["workspaces"] == {"as configured": int(not dynamic), "mode=dynamic": int(dynamic)}
    report = ab(capsys, "report", "modes")
    (errors,) = report["primary"]
    side = "treatment" if dynamic else "control"
    assert errors[f"{side}_value"] == 0.5
    assert errors["verdict"] == "too early"
    with sqlite3.connect(home / "data" / "shortlist" / "events.sqlite") as connection:
        ((workspace, variant),) = connection.execute("SELECT workspace, variant FROM exposures").fetchall()
    experiment = Experiment.from_data(started)
    assert experiment.variants == (AS_CONFIGURED, DYNAMIC)
    assert variant == ("mode=dynamic" if dynamic else "as configured")
    assert "process:" not in workspace


def test_a_planted_effect_in_what_gateways_recorded_is_found_and_no_effect_is_not(
    capsys: pytest.CaptureFixture[str],
) -> None:
    experiment = Experiment.from_data(ab(capsys, "start", "planted", "--variant", "mode=dynamic"))
    store, ledger, rng = events_in(data_folder() / "events.sqlite"), Ledger(Privacy(key=b"k")), random.Random(1)
    batch = Batch()
    split: defaultdict[str, list[str]] = defaultdict(list)  # as many of each variant, whenever the experiment starts
    for workspace in (f"session:{number}" for number in range(1_000)):
        split[experiment.assign(workspace).name].append(workspace)
    for number, workspace in enumerate(chain(*zip(*(split[name][:250] for name in sorted(split)), strict=True))):
        act: dict[str, Any] = {"caller": "local", "workspace": workspace}
        variant = experiment.assign(workspace)
        events: list[Event] = [Exposed(**act, experiment="planted", variant=variant.name)]
        for _ in range(8):
            failed = rng.random() < (0.25 if variant == DYNAMIC else 0.1)
            outcome: CallOutcome = "error" if failed else "ok"
            events.append(Called(**act, tool="a/b", outcome=outcome, milliseconds=1.0, native=True))
        for event in events:
            ledger.enter(batch, Stamped(1e9 + number, float(number), event))
    store.append(batch)
    report = ab(capsys, "report")
    (errors,) = report["primary"]
    calls = next(each for each in report["others"] if each["metric"] == "calls")
    assert (errors["verdict"], calls["verdict"]) == ("worse", "no difference shown")
    assert errors["low"] < 0.15 < errors["high"]
    assert not report["mismatched"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["start", "x", "--variant", "mode=fast"], "mode must be one of"),
        (["start", "x", "--variant", "as configured"], "Two variants are the same"),
        (["start", "x", "--variant", "preset=mine"], "No preset 'mine'. Known presets: default, full."),
        (["start", "x", "--variant", "pipeline=best"], "No pipeline 'best'."),
        (["start", "x", "--variant", "limit=3", "--alpha", "0.9"], "--alpha must be between 0 and 0.5"),
        (["start", "x", "--variant", "limit=3", "--minimum", "1"], "--minimum must be at least 2"),
        (["start", " ", "--variant", "limit=3"], "needs a name"),
    ],
)
def test_bad_input_is_refused_with_what_would_do(
    capsys: pytest.CaptureFixture[str], arguments: list[str], said: str
) -> None:
    assert main(["ab", *arguments]) == 2
    assert said in capsys.readouterr().err


def test_before_anything_was_recorded_a_report_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["ab", "report"]) == 1
    assert "Nothing has been recorded yet" in capsys.readouterr().err


def test_the_words_for_people(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["ab", "start", "limits", "--variant", "limit=3", "--variant", "limit=10", "--metric", "tokens"]) == 0
    assert "Started 'limits': 'limit=3' against 'limit=10'" in capsys.readouterr().out
    assert main(["ab", "status"]) == 0
    assert "too early" in capsys.readouterr().out
    assert main(["ab", "stop"]) == 0
    assert main(["ab", "status"]) == 0
    assert "No experiment is running" in capsys.readouterr().out
    assert main(["ab", "stop"]) == 2
