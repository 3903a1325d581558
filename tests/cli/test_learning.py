"""Learning from use: through gateways that are real processes, and by the commands that show and clear it."""

import json
import os
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from itertools import cycle
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp import Client, StdioServerParameters

from shortlist.catalog.naming import shown_name
from shortlist.cli import main
from shortlist.cli.teaching import Teacher, open_teacher
from shortlist.config.settings import Settings, TelemetrySettings, TokenSettings
from shortlist.models import Query
from shortlist.paths import data_folder
from shortlist.search.searcher import Searcher, SearchOptions
from shortlist.storage.local import open_local
from tests.fakes import WORKPLACE, catalog, ids
from tests.telemetry.test_exemplar_store import Log, call, search, used

SECONDS = 180
ASKED = "tell the team about the deploy"
CALLS = {
    "slack__slack_post_message": {"channel": "#general", "text": "deployed"},
    "ci__deploy_start": {"service": "shop", "version": "1", "environment": "staging"},
}
"""Two tools that may be meant, and how each is called."""
IDS = {"slack__slack_post_message": "slack/slack_post_message", "ci__deploy_start": "ci/deploy.start"}
TEAM = {name: TokenSettings(name=name, hash="", group="team") for name in ("anna", "ben", "eve")}
ALONE = {name: TokenSettings(name=name, hash="") for name in TEAM}
FIRST, LATER = "kubernetes/scale_deployment", "slack/send_message"


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for kind in ("CONFIG", "DATA", "CACHE"):
        monkeypatch.setenv(f"XDG_{kind}_HOME", str(tmp_path / kind.lower()))
    return tmp_path


@pytest.fixture
def log(home: Path) -> Log:
    """The log of this home, as a gateway writes it."""
    return Log(data_folder() / "events.sqlite")


@pytest.fixture
def two_servers(home: Path) -> str:
    """A configuration with two of the demo servers."""
    environment = {"PYTHONPATH": os.pathsep.join(sys.path)}
    servers: dict[str, dict[str, Any]] = {
        name: {"command": sys.executable, "args": ["-m", "shortlist.demo.server", name], "env": environment}
        for name in ("slack", "ci")
    }
    servers["slack"]["shortlist"] = {"tools": {"slack_post_message": {"keywords": ["notify", "team", "announce"]}}}
    path = home / "servers.json"
    path.write_text(json.dumps({"mcpServers": servers}))
    return str(path)


@asynccontextmanager
async def gateway(config: str) -> AsyncIterator[Client]:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = ["-m", "shortlist.cli", "serve", "--own", "--config", config]
    server = StdioServerParameters(command=sys.executable, args=command, env=environment)
    with anyio.fail_after(SECONDS):
        async with Client(server, mode="legacy") as client:
            yield client


async def answer(client: Client, **more: Any) -> str:
    result = await client.call_tool("search_tools", {"query": ASKED, **more})
    return str(result.content[0].text)  # type: ignore[union-attr]


async def answer_that(client: Client, fits: Callable[[str], bool], **more: Any) -> str:
    """Ask until the answer fits, each time for another number of tools: who asks the same again is told so."""
    for limit in cycle(range(5, 12)):
        if fits(text := await answer(client, limit=limit, **more)):
            return text
        await anyio.sleep(0.1)
    raise AssertionError


def complete(text: str) -> bool:
    """Return whether both tools are found, and by a model that is ready."""
    return all(tool in text for tool in CALLS) and "not ready" not in text and "wait for" not in text


def leading(text: str) -> str:
    return min(CALLS, key=text.index)


@pytest.mark.anyio
async def test_what_one_gateway_s_client_called_is_found_first_by_another_gateway_without_a_restart(
    two_servers: str, capsys: pytest.CaptureFixture[str]
) -> None:
    async with gateway(two_servers) as watching, gateway(two_servers) as using:
        before = await answer_that(watching, complete)
        await answer_that(using, complete)
        (called,) = CALLS.keys() - {leading(before)}
        result = await using.call_tool("call_tool", {"name": called, "arguments": CALLS[called]})
        assert not result.is_error
        after = await answer_that(watching, lambda text: complete(text) and leading(text) == called, explain=True)
    assert "earlier requests that led to this tool" in after
    assert main(["learned", "list"]) == 0
    assert f"local: '{ASKED}' → {shown_name(IDS[called])} (1 ok; counts 1.00)" in capsys.readouterr().out


@pytest.mark.anyio
async def test_a_gateway_whose_configuration_says_so_does_not_use_what_is_known(two_servers: str, log: Log) -> None:
    log.write(*used(ASKED, "slack/slack_post_message"))
    path = Path(two_servers)
    path.write_text(json.dumps({**json.loads(path.read_text()), "shortlist": {"telemetry": {"learning": False}}}))
    async with gateway(two_servers) as client:
        text = await answer_that(client, complete, explain=True)
    assert "score by words" in text
    assert "earlier requests" not in text


def taught(settings: Settings) -> tuple[Teacher, Searcher]:
    teacher = open_teacher(settings.telemetry, open_local().exemplars)
    assert teacher is not None
    made = Searcher(catalog(WORKPLACE), options=SearchOptions(memory=teacher.memory))
    teacher.refresh(settings)
    return teacher, made


def found(made: Searcher, settings: Settings, caller: str, text: str = "inform the crowd") -> list[str]:
    return ids(made.search(Query(text=text, limit=3, asker=settings.asker(caller))))


def test_a_hostile_caller_cannot_lift_a_tool_for_the_others_of_its_group_but_two_that_agree_can(log: Log) -> None:
    settings = Settings(tokens=TEAM)
    _, plain = taught(settings)
    before = found(plain, settings, "anna")
    assert before[0] != LATER
    for _ in range(50):
        log.write(*used("inform the crowd", LATER, caller="eve"))
    teacher, made = taught(settings)
    assert found(made, settings, "eve")[0] == LATER, "its own log counts for itself"
    assert found(made, settings, "anna") == before
    log.write(*used("inform the crowd", LATER, caller="ben"))
    teacher.refresh(settings)
    assert found(made, settings, "anna")[0] == LATER


def test_callers_without_a_group_learn_from_themselves_alone(log: Log) -> None:
    settings = Settings(tokens=ALONE)
    for caller in ("ben", "eve"):
        log.write(*used("inform the crowd", LATER, caller=caller))
    teacher, made = taught(settings)
    assert [found(made, settings, name)[0] == LATER for name in ("anna", "ben", "eve")] == [False, True, True]
    teacher.refresh(together := Settings(tokens=TEAM))
    assert found(made, together, "anna")[0] == LATER, "a changed configuration counts at once"


def test_a_tool_that_answers_with_errors_is_not_lifted(log: Log) -> None:
    settings = Settings()
    log.write(search("inform the crowd", LATER), *(call(LATER, "error") for _ in range(9)))
    _, made = taught(settings)
    assert found(made, settings, "local")[0] != LATER


def test_what_is_cleared_is_forgotten_by_a_gateway_that_runs(log: Log, capsys: pytest.CaptureFixture[str]) -> None:
    settings = Settings()
    log.write(*used("inform the crowd", LATER))
    teacher, made = taught(settings)
    assert found(made, settings, "local")[0] == LATER
    assert main(["learned", "clear", "--tool", LATER]) == 0
    assert "Cleared 1." in capsys.readouterr().out
    teacher.refresh(settings)
    assert found(made, settings, "local")[0] != LATER


@pytest.mark.parametrize(
    "telemetry",
    [TelemetrySettings(learning=False), TelemetrySettings(enabled=False), TelemetrySettings(queries="hash")],
    ids=["switched off", "nothing recorded", "queries not kept"],
)
def test_nothing_is_learned_where_it_is_not_wanted_or_not_possible(telemetry: TelemetrySettings) -> None:
    assert open_teacher(telemetry, open_local().exemplars) is None


def test_a_log_that_cannot_be_read_is_said_once_and_changes_nothing(
    home: Path, caplog: pytest.LogCaptureFixture
) -> None:
    data_folder().mkdir(parents=True)
    (data_folder() / "events.sqlite").write_text("no database at all, " * 100)
    settings = Settings()
    teacher, made = taught(settings)
    teacher.refresh(settings)
    assert len(found(made, settings, "local")) == 3
    assert caplog.text.count("searches cannot learn from use at the moment") == 1


def test_exported_exemplars_lift_in_rank_and_eval_only_when_asked_for(
    home: Path, log: Log, capsys: pytest.CaptureFixture[str]
) -> None:
    log.write(*used("inform the crowd", LATER))
    exported = home / "exemplars.jsonl"
    assert main(["learned", "export", str(exported)]) == 0
    tools, queries = _files(home, {"id": "1", "query": "inform the crowd now", "gold": [LATER]})
    plain, with_use, as_another = (
        _first_ranked(home, tools, queries, *options)
        for options in ([], ["--exemplars", str(exported)], ["--exemplars", str(exported), "--as", "anna"])
    )
    assert plain != LATER
    assert with_use == LATER
    assert as_another == plain, "one caller's log lifts nothing for another"
    capsys.readouterr()
    measured = ["eval", "--catalog", tools, "--cases", queries, "--embedder", "none", "--json"]
    assert main(measured) == 0
    assert json.loads(capsys.readouterr().out)["summaries"][0]["metrics"]["lenient_top1"]["mean"] == 0
    assert main([*measured, "--exemplars", str(exported)]) == 0
    assert json.loads(capsys.readouterr().out)["summaries"][0]["metrics"]["lenient_top1"]["mean"] == 1


def test_an_exemplar_that_asks_what_a_case_asks_is_left_out_of_eval(
    home: Path, log: Log, capsys: pytest.CaptureFixture[str]
) -> None:
    log.write(*used("inform the crowd", LATER))
    exported = home / "exemplars.jsonl"
    main(["learned", "export", str(exported)])
    tools, queries = _files(home, {"id": "1", "query": "Inform  the crowd", "gold": [LATER]})
    options = ["--embedder", "none", "--exemplars", str(exported)]
    assert main(["eval", "--catalog", tools, "--cases", queries, *options]) == 0
    assert "0 exemplars, 1 left out" in capsys.readouterr().err


def test_mined_cases_are_refused_by_eval_until_they_are_reviewed(
    home: Path, log: Log, capsys: pytest.CaptureFixture[str]
) -> None:
    log.write(*used("list the pods", "kubernetes/list_pods"))
    tools, _ = _files(home)
    mined = home / "mined.jsonl"
    assert main(["mine", str(mined)]) == 0
    measured = ["eval", "--catalog", tools, "--cases", str(mined), "--embedder", "none"]
    assert main(measured) == 2
    assert "mined.jsonl, line 1: nobody has reviewed this case" in capsys.readouterr().err
    mined.write_text(mined.read_text().replace('"reviewed": false', '"reviewed": true'))
    assert main(measured) == 0
    assert "100.0" in capsys.readouterr().out


def test_the_list_is_data_too_and_narrows_by_caller_and_tool(log: Log, capsys: pytest.CaptureFixture[str]) -> None:
    log.write(*used("inform the crowd", LATER, "ok", "error", caller="anna"), *used("scale it", FIRST, caller="ben"))
    assert main(["learned", "list", "--json", "--caller", "anna"]) == 0
    (listed,) = json.loads(capsys.readouterr().out)
    assert (listed["query"], listed["tool"], listed["successes"], listed["errors"]) == ("inform the crowd", LATER, 1, 1)
    assert main(["learned", "list", "--tool", FIRST, "--limit", "0"]) == 0
    assert "1 queries led to a call of 1 tools" in capsys.readouterr().out


@pytest.mark.parametrize("command", [["learned", "list"], ["learned", "clear"], ["mine", "cases.jsonl"]])
def test_before_anything_was_recorded_it_says_so(command: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(command) == 1
    assert "Nothing has been recorded yet" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ('{"query": "inform the crowd"}', "line 1: 'tool' is None"),
        ('{"query": "inform the crowd", "tool": "x/y", "weight": 7}', "'weight' is 7; it must be between 0 and 1"),
        ("inform the crowd", "not JSON"),
    ],
)
def test_a_bad_file_of_exemplars_is_named_with_its_line(
    home: Path, line: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (home / "exemplars.jsonl").write_text(line)
    tools, queries = _files(home, {"id": "1", "query": "inform the crowd", "gold": [LATER]})
    options = ["--embedder", "none", "--exemplars", str(home / "exemplars.jsonl")]
    assert main(["eval", "--catalog", tools, "--cases", queries, *options]) == 2
    assert said in capsys.readouterr().err


def _files(home: Path, *cases: dict[str, Any]) -> tuple[str, str]:
    tools, queries = home / "tools.jsonl", home / "queries.jsonl"
    shapes = [
        {"id": tool_id, "name": tool_id.partition("/")[2], "server": tool_id.partition("/")[0], "description": text}
        for tool_id, text in WORKPLACE.items()
    ]
    tools.write_text("".join(json.dumps(shape) + "\n" for shape in shapes))
    queries.write_text("".join(json.dumps(case) + "\n" for case in cases))
    return str(tools), str(queries)


def _first_ranked(home: Path, tools: str, queries: str, *options: str) -> str:
    ranked = home / "ranked.jsonl"
    command = ["rank", "--catalog", tools, "--queries", queries, "--embedder", "none", "--out", str(ranked), *options]
    assert main(command) == 0
    return str(json.loads(ranked.read_text())["ranked"][0])
