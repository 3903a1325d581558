"""Servers that start on demand: they end when nobody uses them, and what they listed is served meanwhile."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import pytest

from shortlist.config.settings import NoTransport, ServerSettings
from shortlist.upstream.events import Survey, Surveyed
from shortlist.upstream.pool import UpstreamPool
from tests.upstream.support import DEADLINE_SECONDS, QUICK, Recorder, pool_of, script, text_of

pytestmark = pytest.mark.anyio
RESTLESS = replace(QUICK, idle_seconds=0.05, unused_seconds=0.05)
SERVER = script("modern", file="modern.py")


async def surveyed(recorder: Recorder) -> Survey:
    found = await recorder.until(lambda event: isinstance(event, Surveyed))
    assert isinstance(found, Surveyed)
    return found.survey


async def test_a_server_ends_when_nobody_uses_it_and_starts_with_the_next_call() -> None:
    async with pool_of(SERVER, cadence=RESTLESS, on_demand=True) as (pool, recorder):
        await recorder.state("modern", "idle")
        assert pool.states["modern"] == "idle"
        assert text_of(await pool.call_tool("modern", "echo", {"text": "hi"})) == "echo: hi"
        with anyio.fail_after(DEADLINE_SECONDS):
            while recorder.states("modern").count("idle") < 2:
                await anyio.sleep(0.01)
    assert recorder.states("modern")[:5] == ["ready", "idle", "connecting", "ready", "idle"]


async def test_a_call_that_runs_keeps_its_server(tmp_path: Path) -> None:
    late = script("late", "late", str(tmp_path / "now"))
    async with pool_of(late, SERVER, cadence=RESTLESS, on_demand=True) as (pool, recorder):
        answers: list[str] = []

        async def call() -> None:
            answers.append(text_of(await pool.call_tool("late", "late", {})))

        with anyio.fail_after(DEADLINE_SECONDS):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(call)
                while not (tmp_path / "now.1").exists():
                    await anyio.sleep(0.01)
                ended = recorder.states("modern").count("idle")
                await pool.call_tool("modern", "echo", {"text": "hi"})
                while recorder.states("modern").count("idle") <= ended:
                    await anyio.sleep(0.01)  # as long as an unused server takes to end
                assert pool.states["late"] == "ready"
                (tmp_path / "now").touch()
    assert answers == ["at last"]


async def test_what_a_server_offered_is_listed_without_starting_it() -> None:
    async with pool_of(SERVER, on_demand=True) as (_, recorder):
        survey = await surveyed(recorder)
    assert survey.lists == {"prompts/list": ({"name": "greet"},)}
    saved = Survey.read(json.loads(json.dumps(survey.document())))
    assert saved == survey
    later = Recorder()
    pool = UpstreamPool({"modern": SERVER}, on_event=later, cadence=RESTLESS, on_demand=True)
    pool.know({"modern": survey})
    async with pool:
        await pool.settled(DEADLINE_SECONDS)
        peer = pool.peer("modern")
        assert peer is not None
        assert peer.instructions == "Be kind."
        assert await pool.request("modern", "prompts/list") == {"prompts": [{"name": "greet"}]}
        assert (pool.states["modern"], later.events) == ("idle", [])
        assert text_of(await pool.call_tool("modern", "echo", {"text": "hi"})) == "echo: hi"
        assert later.states("modern")[:2] == ["connecting", "ready"]


async def test_a_server_that_is_to_run_always_stays() -> None:
    always = replace(SERVER, name="always", start="always")
    survey = Survey.read({"peer": {"protocol_version": "2025-11-25", "era": "legacy"}, "lists": {}})
    assert survey is not None
    recorder = Recorder()
    pool = UpstreamPool({"modern": SERVER, "always": always}, on_event=recorder, cadence=RESTLESS, on_demand=True)
    pool.know({"modern": survey, "always": survey})
    async with pool:
        await recorder.state("always", "ready")
        await pool.call_tool("modern", "echo", {"text": "hi"})
        await recorder.state("modern", "idle")
        assert pool.states == {"modern": "idle", "always": "ready"}


@pytest.mark.parametrize("damaged", [None, [], {}, {"peer": {}, "lists": {}}, {"peer": {"era": "x"}, "lists": [1]}])
def test_what_cannot_be_read_is_listed_again(damaged: Any) -> None:
    assert Survey.read(damaged) is None


async def test_a_server_without_a_value_for_its_variable_fails_alone() -> None:
    unset = ServerSettings(name="unset", transport=NoTransport(reason="environment variable 'NOPE' is not set"))
    async with pool_of(unset, SERVER) as (pool, _):
        assert pool.states == {"unset": "failed", "modern": "ready"}
        assert "environment variable 'NOPE' is not set" in str(pool.status()["unset"].error)
