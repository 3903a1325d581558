"""Tasks with a scripted model over real wires: an HTTP endpoint in front, a gateway process behind."""

import json
from pathlib import Path
from typing import Any

import pytest
from starlette.responses import JSONResponse

from shortlist.cli import main
from shortlist.errors import InvalidInput
from shortlist.harness.attempts import setups_table, tasks_table
from shortlist.harness.chat import ChatModel, chat_model
from shortlist.harness.gateway import GatewayFailed, GatewayFolder, connected
from shortlist.harness.tasks import SETUPS, Expected, ModelTask, attempt, is_among, read_tasks
from shortlist.remote import Patience, ProviderRefused
from tests.harness.endpoint import Messages, call, calling, refusal, saying, scripted
from tests.providers.wires import KEY, Provider

pytestmark = pytest.mark.anyio

OWN_NAME = "get_current_weather"
TOOL = f"weather__{OWN_NAME}"
TASK = ModelTask(
    name="weather",
    prompt="What is the weather in Oslo?",
    expect=Expected(calls=("weather/get_current_weather",), answer=("oslo",)),
)
ARGUMENTS = {"location": "Oslo"}


def agent(messages: Messages, tools: set[str]) -> dict[str, Any]:
    """Call the tool by its name where it is listed, else find it; load it where that is offered."""
    listed = {TOOL, OWN_NAME} & tools
    answers = [message["content"] for message in messages if message["role"] == "tool"]
    if any('"temperature"' in answer for answer in answers):
        return saying("The weather in OSLO is fine.")
    if listed:
        return calling(call(min(listed), ARGUMENTS, len(messages)))
    if not answers:
        return calling(call("search_tools", {"query": "current weather of a city"}, len(messages)))
    if "load_tools" in tools and len(answers) == 1:
        return calling(call("load_tools", {"names": [TOOL]}, len(messages)))
    return calling(call("call_tool", {"name": TOOL, "arguments": ARGUMENTS}, len(messages)))


def model_at(provider: Provider, **patience: Any) -> ChatModel:
    return chat_model(provider.url, "scripted-1", KEY, Patience(**{"attempts": 2, "wait_seconds": 1.0, **patience}))


async def test_every_way_of_serving_completes_the_task_at_its_own_cost(place: GatewayFolder) -> None:
    with scripted(agent) as provider:
        attempts = [await attempt(place, model_at(provider), TASK, setup) for setup in SETUPS]
    upfront, search, dynamic = attempts
    assert [each.completed for each in attempts] == [True, True, True]
    assert [each.turns for each in attempts] == [2, 3, 4]
    assert [each.searches for each in attempts] == [0, 1, 1]
    assert upfront.prompt_tokens / upfront.turns > search.prompt_tokens / search.turns
    assert all(each.completion_tokens == 7 * each.turns for each in attempts)
    assert {seen.headers["authorization"] for seen in provider.seen} == {f"Bearer {KEY}"}
    side_by_side = {row[0]: row[1:] for row in setups_table(attempts).rows}
    assert side_by_side["completed"] == ("1 of 1", "1 of 1", "1 of 1")
    assert side_by_side["turns (mean)"] == ("2.0", "3.0", "4.0")
    assert tasks_table(attempts).rows[0][0] == "weather"
    assert dynamic.calls == 3
    assert [each.misses for each in attempts] == [0, 0, 0]
    offered = [{tool["function"]["name"] for tool in seen.body["tools"]} for seen in provider.seen[-dynamic.turns :]]
    assert [TOOL in names for names in offered] == [False, False, True, True]  # once it is loaded


async def test_mistakes_go_back_to_the_model_and_a_tool_that_failed_completes_nothing(place: GatewayFolder) -> None:
    def clumsy(messages: Messages, _: set[str]) -> dict[str, Any]:
        if len(messages) == 2:
            return calling(call("search_tools", '{"query": "wea', 1), call("search_tools", "[]", 2))
        if len(messages) == 5:
            return calling(call("call_tool", {"name": TOOL, "arguments": {}}))
        return saying("Oslo")

    with scripted(clumsy) as provider:
        made = await attempt(place, model_at(provider), TASK, "search")
    first, second, third = [m["content"] for m in provider.seen[-1].body["messages"] if m["role"] == "tool"]
    assert first.startswith("The arguments are not valid JSON")
    assert second == "The arguments must be a JSON object."
    assert "was NOT invoked" in third
    assert (made.completed, made.failure, made.errors) == (False, "", 3)


async def test_a_failure_that_stays_fails_the_attempt_with_its_reason(place: GatewayFolder) -> None:
    down = [JSONResponse(refusal("oops"), 500), JSONResponse(refusal("oops"), 500)]
    with scripted(agent, *down) as provider:
        made = await attempt(place, model_at(provider), TASK, "search")
    assert not made.completed
    assert "500 oops" in made.failure
    assert "500 oops" in tasks_table([made]).rows[0][1]


async def test_a_wrong_key_ends_the_whole_run_and_is_never_shown(place: GatewayFolder) -> None:
    with scripted(agent) as provider:
        model = chat_model(provider.url, "scripted-1", "sk-wrong-and-secret")
        with pytest.raises(ProviderRefused, match="OPENAI_API_KEY") as refused:
            await attempt(place, model, TASK, "search")
    assert "sk-wrong-and-secret" not in str(refused.value)


async def test_a_model_that_never_stops_is_stopped(place: GatewayFolder) -> None:
    with scripted(lambda messages, _: calling(call("list_toolsets", {}, len(messages)))) as provider:
        made = await attempt(place, model_at(provider), TASK, "search")
    assert made.failure == "The model did not finish within 20 turns."


async def test_a_gateway_that_does_not_start_says_why(tmp_path: Path) -> None:
    broken = tmp_path / "broken.json"
    broken.write_text("{")
    with pytest.raises(GatewayFailed, match=r"broken\.json"):
        async with connected(GatewayFolder(tmp_path, broken)):
            pass


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("{", "is not valid JSON"),
        ('{"tasks": []}', "tasks"),
        ('{"tasks": [{"name": "a"}]}', r"tasks\.0\.prompt"),
    ],
)
def test_a_bad_task_file_says_what_is_wrong_with_it(tmp_path: Path, content: str, said: str) -> None:
    path = tmp_path / "tasks.json"
    path.write_text(content)
    with pytest.raises(InvalidInput, match=said):
        read_tasks(path)


def test_the_command_runs_tasks_and_prints_them_side_by_side(
    place: GatewayFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    tasks = tmp_path / "tasks.json"
    tasks.write_text(json.dumps({"tasks": [TASK.model_dump()]}))
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    with scripted(agent) as provider:
        arguments = ["run-tasks", str(tasks), "--model", "scripted-1", "--config", str(place.config), "--json"]
        status = main([*arguments, "--endpoint", provider.url, "--setup", "search"])
    attempts = json.loads(capsys.readouterr().out)["attempts"]
    assert status == 0
    assert [(each["setup"], each["completed"], each["turns"]) for each in attempts] == [("search", True, 3)]


def test_the_command_needs_an_endpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    tasks = tmp_path / "tasks.json"
    tasks.write_text(json.dumps({"tasks": [TASK.model_dump()]}))
    assert main(["run-tasks", str(tasks), "--model", "m"]) == 2
    assert "--endpoint" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("expected", "called", "counts"),
    [
        ("weather/get_forecast", "weather__get_forecast", True),
        ("weather__get_forecast", "weather/get_forecast", True),
        ("weather/get_forecast", "get_forecast", True),
        ("get_forecast", "weather__get_forecast", True),
        ("get_forecast", "weather__get_hourly_forecast", False),
        ("weather/get_forecast", "sky__get_forecast", False),
    ],
)
def test_a_tool_counts_by_whatever_name_reaches_it(expected: str, called: str, counts: bool) -> None:
    assert is_among(expected, {called}) is counts
