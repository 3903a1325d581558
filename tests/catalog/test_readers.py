import contextlib
import gzip
import json
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shortlist.catalog import readers
from shortlist.catalog.readers import MAX_NESTING, BadTool, CatalogReading, read_catalog, tool_from_mcp
from shortlist.errors import InvalidCatalog
from shortlist.index.index import Index
from shortlist.models import Annotations, Server
from shortlist.schema import parameters_of

SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
FULL: dict[str, Any] = {
    "name": "get_forecast",
    "title": "Forecast",
    "description": "Weather – “tomorrow” 日本 \U0001f327",
    "inputSchema": {**SCHEMA, "$defs": {"b": 1, "a": [None, 1.5, True]}},
    "outputSchema": {"type": "object", "properties": {"z": {}, "a": {}}},
    "annotations": {"title": "F", "readOnlyHint": True, "openWorldHint": False, "x-own": 1},
    "icons": [{"src": "data:image/png;base64,AAAA", "sizes": ["48x48"]}],
    "execution": {"taskSupport": "optional"},
    "_meta": {"com.example/rank": 3, "tags": ["sky"], "nested": {"deep": [[]]}},
    "x-unknown": {"kept": True},
}

json_values: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=6), inner, max_size=4),
    max_leaves=12,
)
KEYS = (
    "name title description inputSchema input_schema parameters outputSchema output_schema annotations _meta tags "
    "keywords category id server server_description function type tools result servers categories enum properties"
)
tool_like: st.SearchStrategy[Any] = st.dictionaries(st.sampled_from(KEYS.split()), json_values, max_size=6)
catalog_like = st.one_of(
    json_values,
    tool_like,
    st.lists(tool_like, max_size=4),
    st.fixed_dictionaries({"tools": st.lists(tool_like | json_values, max_size=4)}, optional={"name": json_values}),
    st.lists(st.fixed_dictionaries({"id": json_values, "tools": st.lists(tool_like, max_size=3)}), max_size=3),
)


def only(reading: CatalogReading) -> Any:
    assert not reading.problems
    (tool,) = reading.catalog.tools.values()
    return tool


def written(folder: Path, name: str, content: str | bytes) -> Path:
    path = folder / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


@pytest.mark.parametrize(
    "source",
    [
        {"tools": [FULL]},
        {"jsonrpc": "2.0", "id": 1, "result": {"tools": [FULL], "nextCursor": "x"}},
        [FULL],
        FULL,
    ],
    ids=["tools/list", "JSON-RPC response", "array", "one tool"],
)
def test_an_mcp_definition_passes_through_whole(source: Any) -> None:
    assert json.dumps(only(read_catalog(source)).mcp()) == json.dumps(FULL)


@given(st.dictionaries(st.text(), json_values, max_size=4))
def test_whatever_a_definition_holds_comes_back_as_it_was(extra: Mapping[str, Any]) -> None:
    raw = {**extra, "name": "x", "inputSchema": {}}
    try:
        tool = tool_from_mcp(raw)
    except BadTool:
        return
    assert json.dumps(tool.mcp()) == json.dumps(raw)


def test_what_search_and_filters_need_is_read_from_the_definition() -> None:
    tool = only(read_catalog({"tools": [FULL]}))
    assert (tool.id, tool.name, tool.title, tool.tags) == ("get_forecast", "get_forecast", "Forecast", ("sky",))
    assert tool.annotations == Annotations(read_only=True, open_world=False)
    assert tool.input_schema == FULL["inputSchema"]
    assert tool.output_schema == FULL["outputSchema"]
    assert [p.name for p in parameters_of(tool)] == ["city"]


def test_a_server_array_gives_each_tool_its_server() -> None:
    reading = read_catalog(
        [
            {
                "id": "weather",
                "name": "Weather Service",
                "description": "Forecasts.",
                "categories": ["data"],
                "tools": [FULL],
            },
            {"id": "other", "name": "other", "tools": [FULL]},
        ]
    )
    assert set(reading.catalog.tools) == {"weather/get_forecast", "other/get_forecast"}
    assert reading.catalog.servers["weather"] == Server(
        name="weather", title="Weather Service", description="Forecasts.", categories=("data",)
    )
    assert reading.catalog.servers["other"].title == ""


@pytest.mark.parametrize(
    "raw",
    [
        {"type": "function", "function": {"name": "f", "description": "D", "parameters": SCHEMA, "strict": True}},
        {"type": "function", "name": "f", "description": "D", "parameters": SCHEMA, "strict": True},
        {"name": "f", "description": "D", "input_schema": SCHEMA},
        {"name": "f", "description": "D", "inputSchema": SCHEMA},
    ],
    ids=["OpenAI chat", "OpenAI responses", "Anthropic", "MCP"],
)
def test_every_vendors_tool_becomes_the_same_tool(raw: Any) -> None:
    assert only(read_catalog([raw])).mcp() == {"name": "f", "description": "D", "inputSchema": SCHEMA}


def test_a_line_of_the_benchmark_data_keeps_its_id_and_server(tmp_path: Path) -> None:
    line = {
        "id": "s::f",
        "name": "f",
        "server": "s",
        "server_description": "About s.",
        "category": "c",
        "tags": ["t"],
        "keywords": ["k"],
        "annotations": {"readOnly": {"value": True}},
        "input_schema": SCHEMA,
    }
    reading = read_catalog(written(tmp_path, "tools.jsonl.gz", gzip.compress(json.dumps(line).encode())))
    tool = only(reading)
    assert (tool.id, tool.server, tool.category, tool.tags) == ("s::f", "s", "c", ("t",))
    assert tool.keywords == ("k", "t", "c")
    assert tool.annotations.read_only is True
    assert tool.input_schema == SCHEMA
    assert reading.catalog.servers["s"].description == "About s."


def test_a_folder_is_read_file_by_file_and_each_names_its_server(tmp_path: Path) -> None:
    written(tmp_path, "git.json", json.dumps({"tools": [FULL]}))
    written(tmp_path, "mail.json.gz", gzip.compress(json.dumps({"tools": [FULL]}).encode()))
    written(tmp_path, "notes.txt", "not a catalog")
    assert set(read_catalog(tmp_path).catalog.tools) == {"git/get_forecast", "mail/get_forecast"}


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("swagger.json", '{"swagger": "2.0", "paths": {}}', "Swagger 2.0"),
        ("other.json", '{"version": 3}', "Found no tools"),
        ("scalar.json", "5", "this is int"),
    ],
)
def test_a_file_that_cannot_be_read_is_named_alone_and_in_a_folder(
    tmp_path: Path, name: str, content: str, says: str
) -> None:
    written(tmp_path, "git.json", json.dumps({"tools": [FULL]}))
    path = written(tmp_path, name, content)
    for source in (path, tmp_path):
        with pytest.raises(InvalidCatalog) as refused:
            read_catalog(source)
        assert str(refused.value).startswith(repr(str(path)))
        assert says in str(refused.value)


@pytest.mark.parametrize("suffix", ["yaml", "yml"])
def test_yaml_in_a_folder_is_read(tmp_path: Path, suffix: str) -> None:
    written(tmp_path, f"git.{suffix}", "tools:\n  - name: status\n")
    if find_spec("yaml") is not None:
        assert set(read_catalog(tmp_path).catalog.tools) == {"git/status"}
        return
    with pytest.raises(InvalidCatalog, match=rf"git\.{suffix}.*pip install pyyaml"):
        read_catalog(tmp_path)


def test_a_tool_that_is_not_json_is_reported_by_its_name() -> None:
    (problem,) = read_catalog([FULL, {"name": "send", "when": object()}]).problems
    assert str(problem).startswith("[1]: skipped: 'send': it is not JSON")


def test_json_lines_are_known_by_their_content_too(tmp_path: Path) -> None:
    path = written(tmp_path, "tools.json", '{"name":"a"}\n{"name":"b"}\n')
    assert set(read_catalog(path).catalog.tools) == {"a", "b"}


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("cut.json", json.dumps({"tools": [FULL]})[:-20], "cut off"),
        ("cut.json", '{"tools":[\n{"name":"a"},\n{"name":"b"}', "cut off"),
        ("cut.json.gz", gzip.compress(json.dumps([FULL]).encode())[:-12], "truncated or damaged"),
        ("bad.json.gz", b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\x03" + b"\xff" * 40, "truncated or damaged"),
        ("page.json", "<html>not found</html>", "not JSON at line 1, column 1"),
        ("latin.json", b'{"tools": "\xe9"}', "not UTF-8"),
        ("empty.json", "", "is empty"),
        ("blank.jsonl", " \n\n", "is empty"),
        ("number.json", "9" * 5_000, "JSON"),
        ("deep.json", "[" * 100_000, "too deeply"),
        ("scalar.json", '"tools"', "this is str"),
        ("other.json", '{"version": 3, "data": []}', "['data', 'version']"),
    ],
)
def test_a_file_that_is_no_catalog_is_refused_with_the_reason(
    tmp_path: Path, name: str, content: str | bytes, says: str
) -> None:
    with pytest.raises(InvalidCatalog) as refused:
        read_catalog(written(tmp_path, name, content))
    assert says in str(refused.value)


@pytest.mark.parametrize("length", range(0, 60, 7))
def test_a_gzip_cut_anywhere_is_refused(tmp_path: Path, length: int) -> None:
    with pytest.raises(InvalidCatalog):
        read_catalog(written(tmp_path, "cut.jsonl.gz", gzip.compress(json.dumps([FULL]).encode())[:length]))


def test_a_missing_file_and_an_empty_folder_are_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidCatalog, match=r"There is no file .*nowhere"):
        read_catalog(tmp_path / "nowhere.json")
    with pytest.raises(InvalidCatalog, match="No catalog in"):
        read_catalog(tmp_path)


def test_of_lines_cut_off_the_whole_ones_load_and_the_rest_is_reported(tmp_path: Path) -> None:
    reading = read_catalog(written(tmp_path, "tools.jsonl", '{"name":"a"}\n{"name":"b"}\n{"name":"c'))
    assert set(reading.catalog.tools) == {"a", "b"}
    (problem,) = reading.problems
    assert str(problem).startswith("tools.jsonl line 3: skipped: not JSON")


def test_a_duplicate_id_is_reported_and_the_first_stays() -> None:
    reading = read_catalog([{"name": "a", "description": "first"}, {"name": "a", "description": "second"}])
    assert reading.catalog.tools["a"].description == "first"
    (problem,) = reading.problems
    assert str(problem) == "[1]: skipped: the id 'a' is there already"


@pytest.mark.parametrize(
    ("bad", "says"),
    [
        ("a string", "a tool is a JSON object, this is str"),
        (None, "a tool is a JSON object, this is NoneType"),
        ({"description": "nameless"}, "a tool needs a name"),
        ({"name": "  "}, "a tool needs a name"),
        ({"name": "\u200b\u2060"}, "a tool needs a name"),
        ({"name": 7}, "a tool needs a name"),
        ({"name": "x" * 600}, "the limit is 512"),
        ({"name": "x", "description": "y" * 1_000_000}, "the limit is 1,000,000"),
        ({"name": "x", "inputSchema": {"enum": [[]] * 100_000}}, "100,000 values"),
        ({"name": "half\ud83d"}, "not JSON"),
        ({"name": "x", "id": "half\ud83d"}, "UTF-8"),
        ({"name": "x", "maximum": float("nan")}, "not JSON"),
        ({"name": "x", "when": object()}, "not JSON"),
    ],
)
def test_a_bad_tool_is_reported_and_the_rest_load(bad: Any, says: str) -> None:
    reading = read_catalog({"tools": [bad, FULL]})
    assert set(reading.catalog.tools) == {"get_forecast"}
    (problem,) = reading.problems
    assert problem.place == "tools.tools[0]"
    assert says in problem.message


def test_a_cyclic_object_is_reported() -> None:
    cyclic: dict[str, Any] = {"name": "loop"}
    cyclic["inputSchema"] = cyclic
    assert "too long" in read_catalog([cyclic]).problems[0].message


def nested(levels: int, *, by: str) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "string", "description": "the innermost"}
    for _ in range(levels):
        inner = {"inner": schema} if by == "properties" else [schema] if by == "anyOf" else schema
        schema = {"type": "array" if by == "items" else "object", by: inner}
    return schema


@pytest.mark.parametrize("by", ["properties", "items", "anyOf"])
def test_a_schema_of_fifty_levels_loads_and_is_indexed(by: str) -> None:
    schema = {"type": "object", "properties": {"outer": nested(50, by=by)}}
    reading = read_catalog([{"name": "deep", "inputSchema": schema}])
    tool = only(reading)
    assert tool.input_schema == schema
    assert parameters_of(tool)[0].name == "outer"
    assert len(Index.build(reading.catalog)) == 1


@pytest.mark.parametrize("by", ["properties", "items", "anyOf", "description"])
def test_a_tool_nested_beyond_reason_is_reported_before_it_can_break_anything_else(by: str) -> None:
    deep: Any = "text"
    for _ in range(MAX_NESTING):
        deep = [deep]
    bad = (
        {"name": "deep", "description": deep}
        if by == "description"
        else {"name": "deep", "inputSchema": nested(MAX_NESTING, by=by)}
    )
    reading = read_catalog([bad, FULL])
    assert set(reading.catalog.tools) == {"get_forecast"}
    assert "nested too deeply" in reading.problems[0].message


def test_brackets_in_a_text_are_no_nesting() -> None:
    assert only(read_catalog([{"name": "x", "description": "[" * 1_000}])).description == "[" * 1_000


def test_a_schema_that_refers_to_itself_loads_and_is_indexed() -> None:
    node = {"type": "object", "properties": {"children": {"type": "array", "items": {"$ref": "#/$defs/node"}}}}
    schema = {"type": "object", "properties": {"tree": {"$ref": "#/$defs/node"}}, "$defs": {"node": node}}
    reading = read_catalog([{"name": "tree", "inputSchema": schema}])
    assert only(reading).input_schema == schema
    assert len(Index.build(reading.catalog)) == 1


@pytest.mark.parametrize(
    ("description", "read"),
    [(["Create", "an event"], "Create an event"), (42, "42"), (None, ""), ({"en": "x"}, ""), (True, "")],
)
def test_a_description_that_is_no_string_is_read_as_far_as_it_is_text(description: Any, read: str) -> None:
    schema = {"type": "object", "properties": {"p": {"description": description}}}
    tool = only(read_catalog([{"name": "x", "description": description, "inputSchema": schema}]))
    assert tool.description == read
    assert parameters_of(tool)[0].description == read
    assert tool.mcp()["description"] == description


@pytest.mark.parametrize(
    "schema",
    [
        [],
        "object",
        {"properties": []},
        {"properties": {"p": None}},
        {"required": "p"},
        {"properties": {"p": {"enum": 3}}},
    ],
)
def test_a_schema_of_the_wrong_shape_does_not_hide_the_tool(schema: Any) -> None:
    reading = read_catalog([{"name": "x", "inputSchema": schema}])
    assert len(Index.build(reading.catalog)) == 1


def test_problems_are_shown_without_what_could_steer_a_terminal() -> None:
    reading = read_catalog({"name": "evil\x1b[2J\u202e\nserver", "tools": [{"name": ""}]})
    assert str(reading.problems[0]).isprintable()


@given(catalog_like)
def test_any_json_is_a_catalog_with_its_problems_or_refused(source: Any) -> None:
    try:
        reading = read_catalog(source if not isinstance(source, str) else [source])
    except InvalidCatalog:
        return
    assert reading.catalog.fingerprint
    assert len(Index.build(reading.catalog)) == len(reading.catalog)


@given(st.binary(max_size=200) | catalog_like.map(lambda v: json.dumps(v).encode()))
def test_any_file_is_a_catalog_with_its_problems_or_refused(
    tmp_path_factory: pytest.TempPathFactory, data: bytes
) -> None:
    folder = tmp_path_factory.mktemp("catalog")
    for name in ("any.json", "any.jsonl"):
        with contextlib.suppress(InvalidCatalog):
            assert read_catalog(written(folder, name, data)).catalog.fingerprint


@pytest.mark.parametrize("filling", ["y" * 10_000_000, [{"a": number} for number in range(200_000)]])
def test_a_definition_that_is_far_too_long_is_left_out_before_it_is_encoded(
    filling: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(readers, "_COMPACT", None)
    with pytest.raises(BadTool, match="too long"):
        tool_from_mcp({"name": "x", "inputSchema": {"type": "object", "default": filling}})
