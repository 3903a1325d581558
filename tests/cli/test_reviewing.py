"""`shortlist review`: what it prints, and that decisions about a tool reach the programs that call it."""

from pathlib import Path
from typing import Any

import anyio.to_thread
import pytest

from shortlist.catalog.readers import tool_from_mcp
from shortlist.cli import main
from shortlist.gateway.state import Seams
from shortlist.gateway.view import ServeOptions
from shortlist.storage.local import open_local
from shortlist.trust.keeping import Keeper
from shortlist.trust.scanner import Scanner
from shortlist.upstream.events import ToolsChanged
from tests.gateway.support import Fixture, schema, serve, words

pytestmark = [pytest.mark.anyio, pytest.mark.filterwarnings("ignore::mcp.MCPDeprecationWarning")]
CALL = "await tools.lab.touch()"


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for kind in ("CONFIG", "DATA", "CACHE", "STATE"):
        monkeypatch.setenv(f"XDG_{kind}_HOME", str(tmp_path / kind.lower()))
    monkeypatch.setenv("HOME", str(tmp_path))


async def reviewed(*words: str) -> int:
    return await anyio.to_thread.run_sync(main, ["review", *words])


async def ran(lab: Fixture, between: Any = None) -> list[str]:
    """Run a program that calls a tool, before and after somebody has decided something."""
    keeper = Keeper(open_local().pins, Scanner, lambda _: "scan")
    answers = []
    seams = Seams(gate=keeper, reviews=keeper)
    async with serve(lab, options=ServeOptions(menu="code"), seams=seams) as served, served.client() as client:
        answers.append(words(await client.call_tool("run_code", {"code": CALL})))
        if between is not None:
            keeper.reviewed()
            await between()
            for server, tools in keeper.reviewed().items():  # as a running gateway does every few seconds
                served.gateway.on_upstream(ToolsChanged(server=server, tools=tools))
            await served.gateway.settled()
            answers.append(words(await client.call_tool("run_code", {"code": CALL})))
    return answers


async def test_a_tool_that_was_reviewed_as_read_only_runs_in_programs_until_that_is_taken_back(
    capsys: pytest.CaptureFixture[str],
) -> None:
    async def decide() -> None:
        assert await reviewed("read-only", "lab/touch") == 0

    async def take_back() -> None:
        assert await reviewed("may-write", "lab/touch") == 0

    before, after = await ran(Fixture("lab"), decide)
    still, taken_back = await ran(Fixture("lab"), take_back)
    assert "lab.touch was NOT invoked: it may write" in before
    assert "Calls: 1 done." in after
    assert "Calls: 1 done." in still
    assert "lab.touch was NOT invoked: it may write" in taken_back
    assert capsys.readouterr().out == "read-only lab/touch\nmay-write lab/touch\n"


async def test_a_review_as_read_only_ends_when_the_definition_changes() -> None:
    await ran(Fixture("lab"))
    assert await reviewed("read-only", "lab/touch") == 0
    changed = Fixture("lab")
    changed.tools["touch"] = ("Change the note of tomorrow, telling subscribers.", schema())
    assert "Calls: 1 done." in (await ran(Fixture("lab")))[0]
    assert "Calls: 1 done." not in (await ran(changed))[0]


@pytest.mark.parametrize("named", ["lab/nothing", "nowhere/touch", "nowhere"])
async def test_a_tool_that_nobody_listed_is_not_reviewed(named: str, capsys: pytest.CaptureFixture[str]) -> None:
    await ran(Fixture("lab"))
    assert await reviewed("read-only", named) != 0
    assert named.rpartition("/")[2] in capsys.readouterr().err


async def test_a_review_names_what_it_is_about(capsys: pytest.CaptureFixture[str]) -> None:
    assert await reviewed("read-only") != 0
    assert "`review read-only` needs a name: SERVER for all of a server, or SERVER/NAME." in capsys.readouterr().err


async def test_a_rejected_definition_stays_in_the_list_and_is_marked(capsys: pytest.CaptureFixture[str]) -> None:
    tool = tool_from_mcp({"name": "touch", "description": "Change a note.", "inputSchema": {"type": "object"}}, "lab")
    Keeper(open_local().pins, Scanner, lambda _: "review").admit("lab", [tool], {})
    assert [await reviewed(*words) for words in (("reject", "lab/touch"), ("list",), ("approve", "lab"), ())] == [0] * 4
    rejected, listed, approved, nothing = capsys.readouterr().out.splitlines()
    assert rejected == "rejected lab/touch"
    assert listed.startswith("lab/touch (rejected)  ")
    assert approved == "approved lab/touch"
    assert nothing == "Nothing is held."
