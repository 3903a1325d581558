import pytest

from shortlist.catalog.catalog import Catalog
from shortlist.catalog.toolsets import (
    INTENT_WORDS,
    ToolsetRules,
    preset_tools,
    suggest_toolsets,
    toolsets_for_intent,
    toolsets_of,
)
from shortlist.config.settings import PresetSettings, ToolsetSettings
from shortlist.models import Annotations, Confidence, Hit, Query, SearchResult, Server, Tool


def tool(server: str, name: str, **fields: object) -> Tool:
    return Tool(id=f"{server}/{name}", name=name, server=server, **fields)  # type: ignore[arg-type]


CATALOG = Catalog.of(
    [
        tool("files", "read", annotations=Annotations(read_only=True)),
        tool("files", "delete", annotations=Annotations(destructive=True)),
        tool("slack", "send", category="chat", tags=("urgent",)),
        tool("slack", "list_channels", annotations=Annotations(read_only=True)),
    ],
    [
        Server(name="files", description="Read and write files on disk."),
        Server(name="slack", description="Messages and channels.", categories=("communication",)),
    ],
)


def members(rule: ToolsetSettings) -> tuple[str, ...]:
    return toolsets_of(CATALOG, ToolsetRules(toolsets=(rule,)))[rule.name].tools


def test_every_server_is_a_toolset_without_a_configuration() -> None:
    found = toolsets_of(CATALOG)
    assert list(found) == ["files", "slack"]
    assert found["slack"].tools == ("slack/list_channels", "slack/send")


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        (ToolsetSettings(name="x", servers=("files",)), ("files/delete", "files/read")),
        (ToolsetSettings(name="x", tools=("*/list_*",)), ("slack/list_channels",)),
        (ToolsetSettings(name="x", tags=("urgent",)), ("slack/send",)),
        (ToolsetSettings(name="x", categories=("communication",)), ("slack/list_channels", "slack/send")),
        (ToolsetSettings(name="x", effects=("read_only",)), ("files/read", "slack/list_channels")),
        (ToolsetSettings(name="x", effects=("write",)), ("files/delete", "slack/send")),
        (ToolsetSettings(name="x", effects=("destructive",)), ("files/delete",)),
        (ToolsetSettings(name="x", servers=("slack",), effects=("read_only",)), ("slack/list_channels",)),
    ],
)
def test_a_configured_toolset_holds_what_meets_every_condition(
    rule: ToolsetSettings, expected: tuple[str, ...]
) -> None:
    assert members(rule) == expected


def test_a_toolset_by_usage_holds_a_tool_and_its_partners() -> None:
    rule = ToolsetSettings(name="x", used_with=("files/read",))
    found = toolsets_of(CATALOG, ToolsetRules(toolsets=(rule,), co_use=lambda _: frozenset({"slack/send"})))
    assert found["x"].tools == ("files/read", "slack/send")


def test_the_full_preset_binds_everything_and_the_default_one_what_fits() -> None:
    toolsets = toolsets_of(CATALOG)
    everything = preset_tools("full", toolsets, CATALOG.tools, lambda _: 100, 250)
    fitting = preset_tools("default", toolsets, CATALOG.tools, lambda _: 100, 250)
    assert len(everything) == 4
    assert fitting == ("files/delete", "files/read")


def test_a_preset_of_the_user_joins_toolsets_and_globs_without_repeats() -> None:
    preset = PresetSettings(name="p", toolsets=("files", "unknown"), tools=("*/read", "slack/s*"))
    assert preset_tools(preset, toolsets_of(CATALOG), CATALOG.tools, lambda _: 1, 0) == (
        "files/delete",
        "files/read",
        "slack/send",
    )


def test_there_are_fifteen_built_in_intents() -> None:
    assert len(INTENT_WORDS) == 15


def test_an_intent_names_the_toolsets_whose_words_it_shares() -> None:
    toolsets = toolsets_of(CATALOG)
    assert toolsets_for_intent("file_processing", toolsets, {}) == ("files",)
    assert toolsets_for_intent("communication", toolsets, {}) == ("slack",)
    assert toolsets_for_intent("voice_ui", toolsets, {}) == ()


def test_the_users_own_mapping_of_an_intent_decides_alone() -> None:
    mapped = {"communication": ("files", "gone"), "release": ("slack",)}
    toolsets = toolsets_of(CATALOG)
    assert toolsets_for_intent("communication", toolsets, mapped) == ("files",)
    assert toolsets_for_intent("release", toolsets, mapped) == ("slack",)


def answer(*hits: tuple[Tool, float]) -> SearchResult:
    ranked = tuple(Hit(tool=found, score=score, rank=rank) for rank, (found, score) in enumerate(hits, 1))
    sure = Confidence(level="high", probability=0.9, match_probability=0.9)
    return SearchResult(query=Query(text="send"), hits=ranked, confidence=sure)


def test_a_toolset_with_several_good_hits_is_suggested_before_one_with_the_best_hit() -> None:
    found = suggest_toolsets(
        answer(
            (tool("slack", "send"), 3.0),
            (tool("mail", "send"), 2.9),
            (tool("mail", "reply"), 2.8),
        )
    )
    assert [name for name, _ in found] == ["mail", "slack"]
    assert sum(part for _, part in found) == pytest.approx(1.0)


def test_suggestions_name_the_category_where_there_is_one() -> None:
    (first, _) = suggest_toolsets(answer((tool("slack", "send", category="chat"), 1.0), (tool("files", "read"), -9.0)))
    assert first[0] == "chat"


def test_an_answer_without_hits_suggests_nothing() -> None:
    assert suggest_toolsets(answer()) == ()
