"""Every row of "Bad input" that concerns a server, against a real process that does it."""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import anyio
import pytest

from shortlist.config import Limits, ServerSettings, StdioTransport
from shortlist.upstream.errors import UpstreamNeedsAuth, UpstreamRefused, UpstreamTimeout, UpstreamUnavailable
from shortlist.upstream.events import CallOptions
from shortlist.upstream.offers import MOST_BYTES, offered_items
from shortlist.upstream.pool import UpstreamPool
from tests.upstream.support import (
    DEADLINE_SECONDS,
    ENVIRONMENT,
    SMALL,
    pool_of,
    script,
    text_of,
    web,
)

pytestmark = pytest.mark.anyio
SHORT = CallOptions(timeout_seconds=0.2)


async def test_garbage_on_stdout_is_kept_for_the_log_and_disturbs_nothing() -> None:
    async with pool_of(script("noisy", "garbage")) as (pool, _):
        result = await pool.call_tool("noisy", "echo", {"a": 1})
        assert json.loads(text_of(result)) == {"a": 1}
        assert "[stdout, not a message] Welcome!" in pool.status()["noisy"].stderr


async def test_a_server_that_hangs_on_start_blocks_nobody() -> None:
    async with pool_of(script("hung", "hang-on-start"), script("fine"), wait=False) as (pool, recorder):
        await recorder.state("fine", "ready")
        assert text_of(await pool.call_tool("fine", "echo", {})) == "{}"
        assert pool.status()["hung"].state == "connecting"
        with pytest.raises(UpstreamUnavailable, match=r"'hung'.*still starting"):
            await pool.call_tool("hung", "echo", {}, options=SHORT)


async def test_a_start_that_takes_too_long_fails_and_says_so() -> None:
    async with pool_of(script("hung", "hang-on-start", start_seconds=0.2)) as (_, recorder):
        failed = await recorder.state("hung", "failed")
        assert "did not get ready in 0.2 s" in str(failed.status.error)


async def test_a_server_that_never_lists_its_tools_fails_and_says_so() -> None:
    async with pool_of(script("mute", "hang-on-list", start_seconds=0.3)) as (_, recorder):
        failed = await recorder.state("mute", "failed")
        assert "did not get ready" in str(failed.status.error)


async def test_a_timed_out_call_names_its_tool_and_is_cancelled_upstream_once() -> None:
    async with pool_of(script("lazy")) as (pool, _):
        with pytest.raises(UpstreamTimeout, match=r"'lazy': tool 'hang' did not answer within 0\.\d+ s"):
            await pool.call_tool("lazy", "hang", {}, options=SHORT)
        seen = json.loads(text_of(await pool.call_tool("lazy", "seen", {})))
        assert seen["calls"] == 2  # the hanging one and this one: nothing was repeated
        assert len(seen["cancelled"]) == 1


async def test_a_call_that_the_server_does_not_read_ends_in_its_time_and_is_cancelled_when_it_reads(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    reads_again = tmp_path / "again"
    async with pool_of(script("deaf", "deaf", str(reads_again))) as (pool, _):
        for tool, argument in (("hang", ""), ("echo", "x" * 1_000_000)):
            with pytest.raises(UpstreamTimeout):
                await pool.call_tool("deaf", tool, {"text": argument}, options=SHORT)
        reads_again.touch()
        seen = json.loads(text_of(await pool.call_tool("deaf", "seen", {})))
        assert len(seen["cancelled"]) == 2
    assert "write blocked" not in caplog.text  # nobody waited for it to read


async def test_a_cancelled_caller_cancels_upstream() -> None:
    async with pool_of(script("lazy")) as (pool, _):
        with anyio.move_on_after(0.2):
            await pool.call_tool("lazy", "hang", {})
        seen = json.loads(text_of(await pool.call_tool("lazy", "seen", {})))
        assert len(seen["cancelled"]) == 1


async def test_a_server_that_dies_in_a_call_fails_that_call_and_comes_back() -> None:
    async with pool_of(script("frail"), script("other")) as (pool, recorder):
        with pytest.raises(UpstreamUnavailable, match="'frail': the connection ended"):
            await pool.call_tool("frail", "die", {})
        assert text_of(await pool.call_tool("other", "echo", {})) == "{}"
        assert text_of(await pool.call_tool("frail", "echo", {})) == "{}"
        assert recorder.states("frail") == ["ready", "stale", "stale", "ready"]
        reason = [e.status.error for e in recorder.events if e.server == "frail" and hasattr(e, "status")][2]
        assert "dying on request" in str(reason)
        assert "exited with code 3" in str(reason)


async def test_a_result_over_the_limit_fails_its_call_alone() -> None:
    async with pool_of(script("big"), limits=Limits(message_bytes=8_000_000)) as (pool, recorder):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_refused_as_too_big, pool, 50_000_000)
            for _ in range(5):
                assert text_of(await pool.call_tool("big", "echo", {})) == "{}"
        assert recorder.states("big") == ["ready"]


async def _refused_as_too_big(pool: UpstreamPool, size: int) -> None:
    with pytest.raises(UpstreamRefused, match=r"50,0\d\d,\d\d\d bytes is over the limit of 8,000,000"):
        await pool.call_tool("big", "huge", {"bytes": size})


async def test_a_large_result_below_the_limit_arrives_whole() -> None:
    async with pool_of(script("big")) as (pool, _):
        assert len(text_of(await pool.call_tool("big", "huge", {"bytes": 20_000_000}))) == 20_000_000


async def test_ten_thousand_tools_are_listed_page_by_page() -> None:
    async with pool_of(script("wide", "many", "10000")) as (pool, recorder):
        assert pool.status()["wide"].tools == 10_000
        assert recorder.tools("wide")[0].tools[9_999].id == "wide/tool_09999"


async def test_more_tools_than_the_limit_are_cut_and_named() -> None:
    async with pool_of(script("wide", "many", "2500"), limits=Limits(tools_per_server=1500)) as (pool, recorder):
        assert pool.status()["wide"].tools == 1_500
        assert "only the first 1,500 tools are kept" in recorder.tools("wide")[0].problems


async def test_a_cursor_that_repeats_ends_the_listing() -> None:
    async with pool_of(script("loop", "endless-cursor")) as (pool, _):
        assert pool.status()["loop"].tools == 1


async def test_a_long_cursor_ends_the_listing_because_all_of_them_are_kept() -> None:
    async with pool_of(script("wordy", "long-cursors")) as (pool, recorder):
        assert pool.status()["wordy"].tools == 1
        assert "its cursor has 10,001 characters" in str(recorder.tools("wordy")[0].problems)


async def test_cursors_count_as_what_a_list_of_prompts_may_take() -> None:
    asked = []

    async def page(params: Mapping[str, Any]) -> Mapping[str, Any]:
        asked.append(params)
        return {"prompts": [{"name": f"p{len(asked)}"}], "nextCursor": f"{len(asked)}" + "x" * MOST_BYTES}

    assert [prompt["name"] for prompt in await offered_items(page, "prompts")] == ["p1"]


async def test_of_two_tools_with_one_name_the_first_is_kept() -> None:
    async with pool_of(script("twins", "same-name-twice")) as (_, recorder):
        (listed,) = recorder.tools("twins")
        assert [(tool.name, tool.title) for tool in listed.tools] == [("twin", "first"), ("other", "")]
        assert listed.problems == ("tool 'twin' is left out: the server lists this name twice; the first is kept",)


async def test_tools_that_are_nested_too_deeply_are_left_out_alone_and_status_names_them() -> None:
    async with pool_of(script("deep", "deep", "300")) as (pool, recorder):
        (listed,) = recorder.tools("deep")
        assert [tool.name for tool in listed.tools] == ["echo", "shallow", "huge"]
        assert pool.status()["deep"].problems == listed.problems
        names = ("schema", "icons", "extra", "")
        reason = "it is nested too deeply; a message has 200 levels at most"
        assert listed.problems == tuple(f"tool {name!r} is left out: {reason}" for name in names)
        assert json.loads(text_of(await pool.call_tool("deep", "echo", {"a": 1}))) == {"a": 1}
        with pytest.raises(UpstreamRefused, match="the answer is nested more than 200 levels deep"):
            await pool.call_tool("deep", "huge", {"bytes": 1})


async def test_a_tool_as_deep_as_a_message_may_be_is_served() -> None:
    deepest = 200 - len(("message", "result", "tools", "tool", "inputSchema", "properties", "a"))
    for levels, is_served in ((deepest, True), (deepest + 2, False)):
        async with pool_of(script("deep", "deep", str(levels))) as (_, recorder):
            assert ("schema" in {tool.name for tool in recorder.tools("deep")[0].tools}) is is_served


async def test_a_tool_without_an_object_schema_is_left_out_alone() -> None:
    async with pool_of(script("partly", "empty-schema")) as (_, recorder):
        (listed,) = recorder.tools("partly")
        assert [tool.name for tool in listed.tools] == ["good"]
        assert len(listed.problems) == 3
        assert "tool 'bad' is left out: its inputSchema" in listed.problems[0]


async def test_a_tool_that_changes_under_a_running_call_lets_the_call_end() -> None:
    async with pool_of(script("shifty", "changing")) as (pool, recorder):
        assert text_of(await pool.call_tool("shifty", "shifty", {})) == "survived"
        await recorder.until(lambda _: len(recorder.tools("shifty")) == 2)
        before, after = recorder.tools("shifty")
        assert (before.tools[0].description, after.tools[0].description) == ("before", "after")
        assert before.tools[0].content_hash != after.tools[0].content_hash


async def test_a_result_that_violates_its_own_output_schema_is_relayed_untouched() -> None:
    async with pool_of(script("liar", "violates-output-schema")) as (pool, _):
        assert await pool.call_tool("liar", "liar", {}) == {
            "content": [{"type": "text", "text": "wrong"}],
            "structuredContent": {"n": "not a number"},
            "surprise": [1, None],
        }


async def test_a_protocol_error_keeps_its_code_message_and_data() -> None:
    async with pool_of(script("strict")) as (pool, _):
        with pytest.raises(UpstreamRefused) as caught:
            await pool.call_tool("strict", "refuse", {})
        error = caught.value
        assert (error.server, error.code, error.reason, error.data) == (
            "strict",
            -32050,
            "no such luck",
            {"why": "because"},
        )


async def test_a_name_the_server_does_not_list_costs_no_listing() -> None:
    async with pool_of(script("plain")) as (pool, _):
        for _ in range(3):
            await pool.call_tool("plain", "never_listed", {})
        seen = json.loads(text_of(await pool.call_tool("plain", "seen", {})))
        assert seen["lists"] == 1


async def test_a_command_that_is_not_on_the_path_is_named_with_the_remedy() -> None:
    missing = ServerSettings(name="gone", transport=StdioTransport(command="no-such-command", environment=ENVIRONMENT))
    async with pool_of(missing) as (pool, _):
        status = pool.status()["gone"]
        assert status.state == "failed"
        assert "command 'no-such-command' is not on PATH; install it" in str(status.error)
        with pytest.raises(UpstreamUnavailable, match="'gone': it is failed: command 'no-such-command'"):
            await pool.call_tool("gone", "echo", {})


async def test_a_server_that_fails_to_start_says_its_last_words() -> None:
    async with pool_of(script("keyless", "fail-to-start")) as (pool, _):
        error = str(pool.status()["keyless"].error)
        assert "Traceback: the key is missing | set KEY first | [exited with code 7]" in error


async def test_a_failing_server_is_tried_again_with_growing_pauses() -> None:
    async with pool_of(script("keyless", "fail-to-start")) as (_, recorder):
        await recorder.until(lambda e: getattr(getattr(e, "status", None), "attempts", 0) >= 3)
        assert set(recorder.states("keyless")) == {"failed"}


async def test_a_server_that_dies_when_probed_is_started_without_a_probe() -> None:
    async with pool_of(script("touchy", "dies-on-probe")) as (pool, recorder):
        assert recorder.states("touchy") == ["ready"]
        assert pool.status()["touchy"].era == "legacy"


async def test_401_asks_for_credentials_without_a_retry(locked_url: str) -> None:
    async with pool_of(web("locked", locked_url)) as (pool, recorder):
        status = pool.status()["locked"]
        assert status.state == "needs_auth"
        assert status.attempts == 1
        assert 'it answered 401 and wants credentials (Bearer realm="tests")' in str(status.error)
        assert "Authorization" in str(status.error)
        with pytest.raises(UpstreamNeedsAuth, match="'locked'"):
            await pool.call_tool("locked", "echo", {})
        assert recorder.states("locked") == ["needs_auth"]


async def test_credentials_in_the_headers_open_the_door(locked_url: str) -> None:
    async with pool_of(web("locked", locked_url, {"Authorization": "Bearer sesame"})) as (pool, _):
        assert text_of(await pool.call_tool("locked", "echo", {"text": "hi"})) == "echo: hi"


async def test_an_http_server_that_is_not_there_fails_by_name() -> None:
    async with pool_of(web("absent", "http://127.0.0.1:9/mcp")) as (pool, _):
        status = pool.status()["absent"]
        assert status.state == "failed"
        assert status.error


async def test_an_http_result_over_the_limit_fails_its_call_alone(open_url: str) -> None:
    async with pool_of(web("big", open_url), limits=SMALL) as (pool, recorder):
        with pytest.raises(UpstreamRefused):
            await pool.call_tool("big", "huge", {"text": "3000000"})
        assert text_of(await pool.call_tool("big", "echo", {"text": "hi"})) == "echo: hi"
        assert recorder.states("big") == ["ready"]


async def test_no_process_is_left_when_the_pool_closes() -> None:
    stubborn = (script("parent", "grandchild"), script("deaf", "ignores-signals"))
    async with pool_of(*stubborn, wait=False) as (pool, recorder):
        await recorder.state("parent", "ready")
        (line,) = [line for line in pool.status()["parent"].stderr if line.startswith("grandchild")]
        grandchild = int(line.split()[1])
    assert recorder.states("parent")[-1] == recorder.states("deaf")[-1] == "stopped"
    with anyio.fail_after(DEADLINE_SECONDS):
        while _is_running(grandchild):
            await anyio.sleep(0.01)


def _is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    with open(f"/proc/{pid}/stat") as file:
        return file.read().rpartition(")")[2].split()[0] != "Z"
