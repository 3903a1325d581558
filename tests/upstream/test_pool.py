"""What the pool relays and supervises, over real servers of both eras and every transport."""

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import httpx2
import pytest

from shortlist.config import HttpTransport, Limits, ServerSettings, SseTransport, StdioTransport, ToolOverride
from shortlist.upstream.errors import UpstreamRefused, UpstreamUnavailable
from shortlist.upstream.events import CallOptions, Notified, UpstreamEvent
from shortlist.upstream.pool import Reloaded, UpstreamPool
from shortlist.upstream.stderr import FILE_BYTES, StderrLog, log_path
from tests.upstream.support import (
    DEADLINE_SECONDS,
    QUICK,
    http_server,
    pool_of,
    script,
    text_of,
    web,
)

pytestmark = pytest.mark.anyio


@pytest.fixture
def modern(open_url: str) -> ServerSettings:
    return web("modern", open_url)


async def test_a_legacy_server_is_met_with_the_handshake() -> None:
    async with pool_of(script("old", "none")) as (pool, _):
        peer = pool.status()["old"].peer
        assert peer is not None
        assert (peer.era, peer.protocol_version) == ("legacy", "2025-06-18")
        assert (peer.info["name"], peer.instructions) == ("misbehaving", "Handle with care.")


async def test_a_modern_server_is_met_with_an_envelope_per_request() -> None:
    async with pool_of(script("modern", file="modern.py")) as (pool, _):
        peer = pool.status()["modern"].peer
        assert peer is not None
        assert (peer.era, peer.protocol_version, peer.instructions) == ("modern", "2026-07-28", "Be kind.")
        assert text_of(await pool.call_tool("modern", "echo", {"text": "hi"})) == "echo: hi"


async def test_streamable_http_is_spoken_to_a_modern_server(modern: ServerSettings) -> None:
    async with pool_of(modern) as (pool, _):
        assert pool.status()["modern"].era == "modern"
        assert text_of(await pool.call_tool("modern", "echo", {"text": "hi"})) == "echo: hi"


async def test_sse_is_spoken_by_name_and_found_out_without() -> None:
    with http_server("sse") as url:
        named = ServerSettings(name="named", transport=SseTransport(url=f"{url}/sse"))
        plain = ServerSettings(name="plain", transport=HttpTransport(url=f"{url}/sse", sse_fallback=True))
        async with pool_of(named, plain) as (pool, recorder):
            assert recorder.states("plain") == ["ready"]
            for name in ("named", "plain"):
                assert pool.status()[name].era == "legacy"
                assert text_of(await pool.call_tool(name, "echo", {"text": "hi"})) == "echo: hi"


async def test_a_modern_server_announces_its_new_tool(modern: ServerSettings) -> None:
    async with pool_of(modern) as (pool, recorder):
        await pool.call_tool("modern", "grow", {})
        await recorder.until(lambda event: any(tool.name.startswith("grown") for tool in getattr(event, "tools", ())))


async def test_changes_are_polled_where_they_are_not_announced() -> None:
    cadence = replace(QUICK, poll_seconds=0.01)
    async with pool_of(script("quiet", "silent-changes"), cadence=cadence) as (pool, _):
        with anyio.fail_after(DEADLINE_SECONDS):
            while json.loads(text_of(await pool.call_tool("quiet", "seen", {})))["lists"] < 3:
                await anyio.sleep(0)


async def test_a_refresh_lists_again() -> None:
    async with pool_of(script("old", "none")) as (pool, _):
        pool.refresh("old")
        with anyio.fail_after(DEADLINE_SECONDS):
            while json.loads(text_of(await pool.call_tool("old", "seen", {})))["lists"] < 2:
                await anyio.sleep(0)


async def test_input_that_a_modern_server_requires_is_relayed_both_ways(modern: ServerSettings) -> None:
    async with pool_of(modern) as (pool, _):
        first = await pool.call_tool("modern", "confirm", {"text": "x"})
        assert first["resultType"] == "input_required"
        assert first["inputRequests"]["sure"]["method"] == "elicitation/create"
        retry = {
            "name": "confirm",
            "arguments": {"text": "x"},
            "inputResponses": {"sure": {"action": "accept", "content": {}}},
            "requestState": first["requestState"],
        }
        assert text_of(await pool.request("modern", "tools/call", retry)) == "confirm: x"


async def test_other_requests_and_their_refusals_are_relayed(modern: ServerSettings) -> None:
    async with pool_of(modern, script("old", "none")) as (pool, _):
        assert (await pool.request("modern", "prompts/list"))["prompts"][0]["name"] == "greet"
        with pytest.raises(UpstreamRefused, match="Method not found"):
            await pool.request("old", "prompts/list")


async def test_watched_resources_of_a_modern_server_are_notified(modern: ServerSettings) -> None:
    async with pool_of(modern) as (pool, recorder):
        await pool.watch("modern", ["file:///a"])

        def updated(event: UpstreamEvent) -> bool:
            return isinstance(event, Notified) and event.params.get("uri") == "file:///a"

        with anyio.fail_after(DEADLINE_SECONDS):
            while not any(map(updated, recorder.events)):  # the new subscription opens in the background
                await pool.call_tool("modern", "touch", {"text": "file:///a"})
        event = next(filter(updated, recorder.events))
        assert isinstance(event, Notified)
        assert event.method == "notifications/resources/updated"


async def test_a_change_stream_that_breaks_is_opened_again(modern: ServerSettings) -> None:
    async with pool_of(modern) as (pool, recorder):
        await pool.call_tool("modern", "hush", {})  # closes every stream of the server
        listed = len(recorder.tools("modern"))
        with anyio.fail_after(DEADLINE_SECONDS):
            while len(recorder.tools("modern")) == listed:
                await pool.call_tool("modern", "grow", {})


async def test_watched_resources_are_watched_again_after_a_reconnect() -> None:
    async with pool_of(script("old", "watchable")) as (pool, recorder):
        await pool.watch("old", ["file:///a", "file:///b"])
        await pool.watch("old", ["file:///a"])
        seen = json.loads(text_of(await pool.call_tool("old", "seen", {})))
        assert seen["watched"] == ["file:///a"]
        with pytest.raises(UpstreamUnavailable):
            await pool.call_tool("old", "die", {})
        with anyio.fail_after(DEADLINE_SECONDS):
            while json.loads(text_of(await pool.call_tool("old", "seen", {})))["watched"] != ["file:///a"]:
                await anyio.sleep(0)
        assert recorder.states("old")[-1] == "ready"


async def test_progress_reaches_the_caller() -> None:
    heard: list[tuple[float, float | None, str | None]] = []

    async def on_progress(progress: float, total: float | None, message: str | None) -> None:
        heard.append((progress, total, message))

    async with pool_of(script("old", "none")) as (pool, _):
        options = CallOptions(on_progress=on_progress, meta={"progressToken": "theirs", "trace": "t"})
        await pool.call_tool("old", "slow", {}, options=options)
        assert heard == [(1.0, 2.0, "half")]


class Person:
    """A client role that says yes and remembers who was asked."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, str, Any, tuple[Any, ...]]] = []
        self.capabilities: Mapping[str, Any] = {"elicitation": {}}

    async def answer(
        self, server: str, method: str, params: Mapping[str, Any], callers: tuple[Any, ...]
    ) -> dict[str, Any]:
        self.asked.append((server, method, params["message"], callers))
        return {"action": "accept", "content": {"ok": True}}


async def test_a_servers_question_goes_to_the_client_with_the_caller_of_the_running_call() -> None:
    person = Person()
    async with pool_of(script("old", "none"), client=person) as (pool, _):
        result = await pool.call_tool("old", "ask", {}, options=CallOptions(caller="alice"))
        assert json.loads(text_of(result)) == {"action": "accept", "content": {"ok": True}}
        assert person.asked == [("old", "elicitation/create", "sure?", ("alice",))]
        seen = json.loads(text_of(await pool.call_tool("old", "seen", {})))
        assert seen["client"] == {"elicitation": {}}


async def test_a_question_without_a_client_is_refused() -> None:
    async with pool_of(script("old", "none")) as (pool, _):
        result = await pool.call_tool("old", "ask", {})
        assert json.loads(text_of(result))["message"] == "Method not found"


async def test_a_child_gets_exactly_its_environment() -> None:
    transport = script("old", "none").transport
    assert isinstance(transport, StdioTransport)
    bare = replace(transport, environment={"PATH": "/bin:/usr/bin", "MINE": "1"})
    async with pool_of(ServerSettings(name="old", transport=bare)) as (pool, _):
        environment = json.loads(text_of(await pool.call_tool("old", "env", {})))
        assert environment["MINE"] == "1"
        assert set(environment) <= {"PATH", "MINE", "LC_CTYPE", "PWD", "SHLVL", "_"}


async def test_a_server_that_does_not_answer_a_ping_is_started_again() -> None:
    cadence = replace(QUICK, ping_seconds=0.05, pong_seconds=0.05)
    async with pool_of(script("deaf", "no-pong"), cadence=cadence) as (_, recorder):
        stale = await recorder.state("deaf", "stale")
        assert "did not answer a ping" in str(stale.status.error)


async def test_a_server_that_answers_pings_is_left_alone() -> None:
    cadence = replace(QUICK, ping_seconds=0.01)
    async with pool_of(script("old", "none"), cadence=cadence) as (pool, recorder):
        with anyio.fail_after(DEADLINE_SECONDS):
            while json.loads(text_of(await pool.call_tool("old", "seen", {})))["pings"] < 2:
                await anyio.sleep(cadence.ping_seconds)
        assert recorder.states("old") == ["ready"]
        assert text_of(await pool.call_tool("old", "echo", {})) == "{}"


async def test_calls_beyond_the_concurrency_of_a_server_wait_for_room() -> None:
    async with pool_of(script("narrow", "none", max_concurrency=1)) as (pool, _):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_hangs, pool)
            await anyio.wait_all_tasks_blocked()
            with pytest.raises(UpstreamUnavailable, match="1 calls are running and none ended in time"):
                await pool.call_tool("narrow", "echo", {}, options=CallOptions(timeout_seconds=0.1))
            tasks.cancel_scope.cancel()
        assert text_of(await pool.call_tool("narrow", "echo", {})) == "{}"


async def _hangs(pool: UpstreamPool) -> None:
    await pool.call_tool("narrow", "hang", {})


async def test_the_users_choices_shape_the_tools() -> None:
    override = ToolOverride(description="Say it again", keywords=("repeat",))
    chosen = script("old", "none", include=("e*",), exclude=("env",), tags=("mine",), tools={"echo": override})
    async with pool_of(chosen) as (_, recorder):
        (tool,) = recorder.tools("old")[0].tools
        assert (tool.id, tool.description, tool.tags, tool.keywords) == (
            "old/echo",
            "Say it again",
            ("mine",),
            ("repeat", "mine"),
        )
        assert tool.mcp()["description"] == "Say it again"


async def test_a_reload_touches_only_what_changed() -> None:
    same, gone, moved = script("same", "none"), script("gone", "none"), script("moved", "none")
    edited, new = script("edited", "none"), script("new", "none")
    async with pool_of(same, gone, moved, edited) as (pool, recorder):
        wanted = (same, script("moved", "garbage"), replace(edited, include=("echo",)), new)
        changes = await pool.reload({settings.name: settings for settings in wanted})
        assert changes == Reloaded(started=("new",), stopped=("gone",), restarted=("moved",), updated=("edited",))
        assert list(pool.status()) == ["same", "moved", "edited", "new"]
        await recorder.state("new", "ready")
        await recorder.until(lambda event: event.server == "edited" and len(getattr(event, "tools", ())) == 1)
        assert recorder.states("same") == recorder.states("edited") == ["ready"]
        assert recorder.states("gone") == ["ready", "stopped"]
        with pytest.raises(UpstreamUnavailable, match="no such server"):
            await pool.call_tool("gone", "echo", {})
        assert not await pool.reload({settings.name: settings for settings in wanted})


async def test_new_credentials_in_a_reload_open_a_server_that_wanted_them(locked_url: str) -> None:
    async with pool_of(web("locked", locked_url)) as (pool, recorder):
        assert pool.status()["locked"].state == "needs_auth"
        await pool.reload({"locked": web("locked", locked_url, {"Authorization": "Bearer sesame"})})
        await recorder.state("locked", "ready")


async def test_a_call_that_meets_a_forgotten_http_session_is_sent_in_a_new_one() -> None:
    with http_server("http", "--legacy") as url:
        async with pool_of(web("web", f"{url}/mcp")) as (pool, recorder):
            assert pool.status()["web"].era == "legacy"
            async with httpx2.AsyncClient() as client:
                assert (await client.post(f"{url}/forget")).status_code == 410
            assert text_of(await pool.call_tool("web", "echo", {"text": "again"})) == "echo: again"
            assert recorder.states("web") == ["ready", "stale", "stale", "ready"]


async def test_many_servers_start_without_waiting_for_a_hanging_one() -> None:
    many = [script(f"s{n}", "none") for n in range(12)]
    async with pool_of(script("hung", "hang-on-start"), *many, wait=False) as (_, recorder):
        for settings in many:
            await recorder.state(settings.name, "ready")


async def test_an_event_handler_that_raises_disturbs_nothing() -> None:
    def broken(_: UpstreamEvent) -> None:
        raise RuntimeError("a listener's mistake")

    async with UpstreamPool({"old": script("old", "none")}, on_event=broken, cadence=QUICK) as pool:
        await pool.settled(DEADLINE_SECONDS)
        assert text_of(await pool.call_tool("old", "echo", {})) == "{}"


async def test_the_callers_own_error_leaves_the_pool_as_it_is() -> None:
    with pytest.raises(KeyError, match="mine"):
        async with pool_of(script("old", "none")):
            raise KeyError("mine")


async def test_stderr_is_written_to_a_file_for_each_server(tmp_path: Path) -> None:
    async with pool_of(script("keyless", "fail-to-start"), log_directory=tmp_path):
        pass
    assert "set KEY first" in log_path(tmp_path, "keyless").read_text()


def test_a_log_file_stays_bounded(tmp_path: Path) -> None:
    log = StderrLog(tmp_path / "x.log")
    for _ in range(3):
        log.write(b"0123456789" * 100_000 + b"\n" * 600_000)
        assert (tmp_path / "x.log").stat().st_size <= FILE_BYTES
    assert len(log.last()) == 200


def test_a_server_that_floods_its_stderr_is_slowed_and_its_last_lines_are_kept(tmp_path: Path) -> None:
    log = StderrLog(tmp_path / "x.log")
    paces = [log.write(b"noise\n" * 10_000 + b"piece %d\n" % number) for number in range(200)]
    assert (paces[0], paces[-1]) == (True, False)
    assert log.last()[-1] == "piece 199"
    assert any("lines left out" in line for line in log.last())
    assert len((tmp_path / "x.log").read_text().splitlines()) < 20_000, "of two million"


def test_a_line_on_stderr_without_an_end_is_slowed_as_well() -> None:
    log = StderrLog()
    assert log.write(b"loading .")
    assert not log.write(b"." * 64_000)
    assert log.write(b"\n")


SECRETS = (
    *("ghp_abcdefghij1234567890ABCDEF", "sk-proj-abcdefg1234567", "AKIAIOSFODNN7EXAMPLE", "slt_abcDEF123456789012"),
    *("eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiJhZGEifQ.c2lnbmVk", "a configured value", "xoxb-1234567890-abcdef"),
)


@pytest.mark.parametrize(
    "line",
    [
        *SECRETS,
        *("Authorization: Bearer opaque-secret", "https://bob:opaque-secret@db/x", "password=opaque-secret"),
        *("x" * 1_990 + " " + SECRETS[0], "x" * 3_990 + " " + SECRETS[0]),
    ],
)
@pytest.mark.parametrize("piece", [7, 10_000])
def test_a_secret_that_a_server_writes_is_masked_in_memory_and_in_the_file(
    line: str, piece: int, tmp_path: Path
) -> None:
    log = StderrLog(tmp_path / "x.log")
    log.hide(["a configured value"])
    sent = f"started {line}".encode()
    for start in range(0, len(sent), piece):
        log.write(sent[start : start + piece])
    log.end()
    kept = "".join(log.last()) + (tmp_path / "x.log").read_text()
    assert "started" in kept
    assert not any(secret[:12] in kept for secret in (*SECRETS, "opaque-secret"))


def test_a_server_name_cannot_leave_the_log_directory(tmp_path: Path) -> None:
    assert log_path(tmp_path, "../../etc/x").parent == tmp_path


async def test_a_server_that_starts_later_starts_at_once_when_it_is_wanted() -> None:
    patient = replace(QUICK, head_start_seconds=DEADLINE_SECONDS * 10)
    server = script("modern", file="modern.py")
    pool = UpstreamPool({"modern": server}, on_event=lambda _: None, cadence=patient)
    pool.start_later(["modern"])
    async with pool:
        await anyio.wait_all_tasks_blocked()
        assert pool.status()["modern"].state == "connecting"
        with anyio.fail_after(DEADLINE_SECONDS):
            assert text_of(await pool.call_tool("modern", "echo", {"text": "hi"})) == "echo: hi"


async def test_a_reload_with_other_limits_lists_within_them() -> None:
    wide = script("wide", "many", "30")
    async with pool_of(wide) as (pool, recorder):
        assert pool.status()["wide"].tools == 30
        await pool.reload({"wide": wide}, Limits(tools_per_server=12))
        await recorder.until(lambda _: pool.status()["wide"].tools == 12)
