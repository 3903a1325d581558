"""Scenarios replayed against real gateways: processes, with a client on their stdin and stdout."""

import json
from pathlib import Path

import pytest

from shortlist.cli import main
from shortlist.errors import InvalidInput
from shortlist.harness.gateway import GatewayFolder, connected, warm_up
from shortlist.harness.replay import Replayed, by_scenario, replay, totals
from shortlist.harness.scenarios import Scenario, ScenarioCall, read_scenarios, translated
from shortlist.harness.stubs import stubs
from shortlist.telemetry.experiments.plan import Variant

SCENARIOS = Path(__file__).parent / "data" / "scenarios.json"
DYNAMIC, STATIC = Variant(mode="dynamic"), Variant(mode="static", preset="full")
MENU = 8
WEATHER = 7


async def replayed(place: GatewayFolder, variant: Variant) -> dict[str, Replayed]:
    return {scenario.name: await replay(place, scenario, variant) for scenario in read_scenarios(SCENARIOS)}


@pytest.mark.anyio
async def test_a_dynamic_gateway_answers_everything_and_grows_by_what_is_loaded(place: GatewayFolder) -> None:
    found = await replayed(place, DYNAMIC)
    loading = found["find_and_load"]
    assert (loading.calls, loading.answered, loading.errors, loading.not_offered) == (5, 5, 0, 0)
    assert (loading.tools_first, loading.tools_last) == (MENU, MENU + 1)
    assert loading.list_tokens_last > loading.list_tokens_first > 500
    assert loading.reached
    assert len(loading.load_milliseconds) == 2
    others = found["helpers_and_mistakes"]
    assert (others.answered, others.skipped, others.errors, others.reached) == (2, 1, 2, None)


@pytest.mark.anyio
async def test_a_static_gateway_lists_everything_and_offers_neither_search_nor_loading(place: GatewayFolder) -> None:
    found = await replayed(place, STATIC)
    loading = found["find_and_load"]
    assert (loading.answered, loading.not_offered) == (1, 4)
    assert loading.tools_first == loading.tools_last == WEATHER
    assert loading.reached
    assert loading.load_milliseconds == ()
    others = found["helpers_and_mistakes"]
    assert (others.answered, others.not_offered, others.skipped, others.errors) == (0, 3, 1, 1)


@pytest.mark.anyio
async def test_stubs_serve_the_tools_of_a_catalog_file_from_their_servers(tmp_path: Path, place: GatewayFolder) -> None:
    tools = [
        {"name": "send", "server": "post", "description": "Send a letter.", "tags": ["mail"]},
        {"name": "paint", "server": "art", "description": "Paint a picture.", "input_schema": {"type": "object"}},
    ]
    catalog = tmp_path / "tools.jsonl"
    catalog.write_text("\n".join(map(json.dumps, tools)))
    async with stubs(catalog) as config:
        served = tmp_path / "stubs.json"
        served.write_text(json.dumps(config))
        own = GatewayFolder(tmp_path, served)
        assert await warm_up(own) == {}
        async with connected(own, "--mode", "passthrough") as session:
            names = {tool["name"] for tool in await session.tools()}
            answer = await session.call("post__send", {})
    assert names == {"post__send", "art__paint"}
    assert answer.text == "send: done"


@pytest.mark.anyio
async def test_a_catalog_without_tools_is_refused(tmp_path: Path) -> None:
    empty = tmp_path / "empty.json"
    empty.write_text("[]")
    with pytest.raises(InvalidInput, match="contains no tools"):
        async with stubs(empty):
            pass


def test_variants_stand_side_by_side() -> None:
    def made(scenario: str, variant: str, tools: int, reached: bool | None) -> Replayed:
        return Replayed(
            scenario=scenario,
            variant=variant,
            calls=4,
            answered=2,
            errors=1,
            not_offered=1,
            skipped=0,
            tools_first=tools,
            tools_last=tools + 2,
            list_tokens_first=90 * tools,
            list_tokens_last=100 * tools,
            answer_tokens=50,
            milliseconds=10.0,
            load_milliseconds=(2.0, 4.0),
            reached=reached,
        )

    found = [made("a", "x", 8, True), made("b", "x", 10, None), made("a", "y", 60, False), made("b", "y", 60, None)]
    table = totals(found)
    figures = {row[0]: row[1:] for row in table.rows}
    assert table.columns == ("", "x", "y")
    assert figures["calls in the file"] == ("8", "8")
    assert figures["expected toolset within reach"] == ("1 of 1", "0 of 1")
    assert figures["tools listed at first (mean)"] == ("9.0", "60.0")
    assert figures["milliseconds of a load"] == ("3.0", "3.0")
    rows = by_scenario(found).rows
    assert [row[0] for row in rows] == ["a", "b"]
    assert rows[0][2] == "2/4 answered, 1 errors, 60→62 tools, 6,050 tokens, NOT reached"


@pytest.mark.parametrize(
    ("written", "read"),
    [
        (
            ScenarioCall(tool="discover_tools", args={"query": "x", "limit": 3}),
            ("search_tools", {"query": "x", "limit": 3}),
        ),
        (ScenarioCall(tool="get_tool_quick_ref", args={"toolName": "t"}), ("describe_tools", {"names": ["t"]})),
        (ScenarioCall(tool="list_available_toolsets"), ("list_toolsets", {})),
        (ScenarioCall(tool="load_toolset", args={"toolset": "web"}), ("load_toolset", {"toolset": "web"})),
        (ScenarioCall(tool="getMethodology", args={"topic": "x"}), None),
    ],
)
def test_names_from_elsewhere_are_read_as_what_they_are_here(
    written: ScenarioCall, read: tuple[str, dict[str, object]] | None
) -> None:
    found = translated(written)
    assert (found and (found.tool, found.args)) == read


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("[", "is not valid JSON"),
        ('{"scenarios": []}', "scenarios"),
        ('{"scenarios": [{"name": "a", "calls": [{"args": {}}]}]}', r"scenarios\.0\.calls\.0\.tool"),
    ],
)
def test_a_bad_scenario_file_says_what_is_wrong_with_it(tmp_path: Path, content: str, said: str) -> None:
    path = tmp_path / "scenarios.json"
    path.write_text(content)
    with pytest.raises(InvalidInput, match=said):
        read_scenarios(path)


def test_the_command_replays_and_prints_figures(place: GatewayFolder, capsys: pytest.CaptureFixture[str]) -> None:
    config = ["--config", str(place.config)]
    status = main(
        ["replay", str(SCENARIOS), "--only", "helpers_and_mistakes", "--variant", "mode=dynamic", "--json", *config]
    )
    (found,) = json.loads(capsys.readouterr().out)["replayed"]
    assert status == 0
    assert (found["scenario"], found["variant"], found["skipped"]) == ("helpers_and_mistakes", "mode=dynamic", 1)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--variant", "limit=3"], "can vary mode and preset, not limit"),
        (["--only", "nothing"], "No scenario 'nothing' in"),
    ],
)
def test_the_command_refuses_what_it_cannot_replay(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["replay", str(SCENARIOS), *arguments]) == 2
    assert said in capsys.readouterr().err


def test_a_scenario_without_expectations_reaches_nothing_and_misses_nothing() -> None:
    scenarios = {scenario.name: scenario.expected for scenario in read_scenarios(SCENARIOS)}
    assert scenarios == {"find_and_load": ("weather",), "helpers_and_mistakes": ()}
    assert Scenario(name="x", calls=()).expected == ()
