import re
from collections import Counter
from collections.abc import Iterator

import pytest
from jsonschema import Draft202012Validator

from tests.demo.bundle import Json, servers, tools

SERVERS = servers()
TOOLS = tools()
ACTIONS = {"create", "list", "get", "update", "delete", "search", "send", "compute"}
READING = {"list", "get", "search"}
WRITING = {"create", "update", "delete", "send"}
HINTS = {"readOnlyHint", "destructiveHint", "idempotentHint", "openWorldHint"}
NAMING_STYLES = {
    "snake_case": r"[a-z0-9]+(_[a-z0-9]+)+",
    "kebab-case": r"[a-z0-9]+(-[a-z0-9]+)+",
    "camelCase": r"[a-z]+([A-Z][a-z]*)+",
    "PascalCase": r"([A-Z][a-z]+)+",
    "dotted": r"[a-z_]+(\.[a-z_]+)+",
}


def demo_hint(tool: Json) -> Json:
    hint: Json = tool["_meta"]["shortlist/demo"]
    return hint


def schemas_below(schema: Json) -> Iterator[Json]:
    yield schema
    for child in schema.get("properties", {}).values():
        yield from schemas_below(child)
    if "items" in schema:
        yield from schemas_below(schema["items"])


def input_schemas(file_name: str) -> Iterator[tuple[Json, Json]]:
    for tool in SERVERS[file_name]["tools"]:
        for schema in schemas_below(tool["inputSchema"]):
            yield tool, schema


def test_there_are_at_least_25_servers_and_320_tools() -> None:
    assert len(SERVERS) >= 25
    assert len(TOOLS) >= 320


@pytest.mark.parametrize("file_name", SERVERS)
def test_a_server_introduces_itself_under_its_file_name(file_name: str) -> None:
    server = SERVERS[file_name]["server"]
    assert server["name"] == file_name
    assert server["title"]
    assert server["description"].endswith(".")
    assert server["categories"]
    assert server["tags"]


@pytest.mark.parametrize("file_name", SERVERS)
def test_tool_names_are_unique_within_a_server_and_fit_the_protocol(file_name: str) -> None:
    names = [tool["name"] for tool in SERVERS[file_name]["tools"]]
    assert len(names) == len(set(names)) > 0
    assert [name for name in names if not re.fullmatch(r"[A-Za-z0-9_.-]{1,64}", name)] == []


@pytest.mark.parametrize("file_name", SERVERS)
def test_schemas_are_valid_json_schema_2020_12_objects(file_name: str) -> None:
    for tool in SERVERS[file_name]["tools"]:
        for schema in (tool["inputSchema"], tool.get("outputSchema", {"type": "object"})):
            Draft202012Validator.check_schema(schema)
            assert schema["type"] == "object", tool["name"]


@pytest.mark.parametrize("file_name", SERVERS)
def test_every_input_property_is_described_and_every_required_one_exists(file_name: str) -> None:
    for tool, schema in input_schemas(file_name):
        properties = schema.get("properties", {})
        assert [key for key, child in properties.items() if not child.get("description")] == [], tool["name"]
        assert set(schema.get("required", [])) <= set(properties), tool["name"]


@pytest.mark.parametrize("file_name", SERVERS)
def test_every_default_satisfies_its_own_schema_and_is_optional(file_name: str) -> None:
    for tool, schema in input_schemas(file_name):
        defaulted = {key: child for key, child in schema.get("properties", {}).items() if "default" in child}
        assert defaulted.keys().isdisjoint(schema.get("required", [])), tool["name"]
        for child in defaulted.values():
            Draft202012Validator(child).validate(child["default"])


@pytest.mark.parametrize("file_name", SERVERS)
def test_annotations_agree_with_what_the_tool_does(file_name: str) -> None:
    for tool in SERVERS[file_name]["tools"]:
        annotations, action = tool["annotations"], demo_hint(tool)["action"]
        read_only, destructive = annotations["readOnlyHint"], annotations["destructiveHint"]
        assert set(annotations) == HINTS, tool["name"]
        assert {type(value) for value in annotations.values()} == {bool}, tool["name"]
        assert not (read_only and destructive), tool["name"]
        assert read_only or action not in READING, tool["name"]
        assert not read_only or action not in WRITING, tool["name"]
        assert destructive or action != "delete", tool["name"]


@pytest.mark.parametrize("file_name", SERVERS)
def test_the_demo_hint_names_a_known_action_an_entity_and_an_existing_key(file_name: str) -> None:
    for tool in SERVERS[file_name]["tools"]:
        hint, properties = demo_hint(tool), tool["inputSchema"]["properties"]
        assert hint["action"] in ACTIONS, tool["name"]
        assert re.fullmatch(r"[a-z][a-z_]*", hint["entity"]), tool["name"]
        assert "key" not in hint or hint["key"] in properties, tool["name"]


@pytest.mark.parametrize("file_name", SERVERS)
def test_descriptions_differ_between_the_tools_of_one_server(file_name: str) -> None:
    counts = Counter(tool["description"] for tool in SERVERS[file_name]["tools"])
    assert [text for text, count in counts.items() if count > 1] == []


def test_some_servers_repeat_a_boilerplate_sentence_over_many_of_their_tools() -> None:
    def most_shared(server_tools: list[Json]) -> int:
        sentences = [set(re.split(r"(?<=\.)\s", tool["description"])) for tool in server_tools]
        return max(Counter(sentence for each in sentences for sentence in each).values())

    assert sum(most_shared(content["tools"]) >= 5 for content in SERVERS.values()) >= 5


@pytest.mark.parametrize("style", NAMING_STYLES)
def test_each_naming_style_of_the_real_world_is_used_by_many_tools(style: str) -> None:
    matching = [tool for tool in TOOLS.values() if re.fullmatch(NAMING_STYLES[style], tool["name"])]
    assert len(matching) >= 10


def test_near_duplicates_live_on_several_servers() -> None:
    homes: dict[str, set[str]] = {}
    for tool_id, tool in TOOLS.items():
        hint = demo_hint(tool)
        homes.setdefault(f"{hint['action']} {hint['entity']}", set()).add(tool_id.split("/")[0])
    assert homes["create issue"] >= {"github", "gitlab", "jira"}
    assert homes["send message"] >= {"slack", "discord"}


def test_some_tools_carry_titles_output_schemas_and_keywords() -> None:
    assert sum("title" in tool for tool in TOOLS.values()) >= 50
    assert sum("outputSchema" in tool for tool in TOOLS.values()) >= 15
    assert sum("keywords" in tool["_meta"] for tool in TOOLS.values()) >= 50


def test_no_server_offers_customer_relationship_management() -> None:
    text = " ".join(str(content) for content in SERVERS.values()).lower()
    assert not re.search(r"\b(crm|salesforce|hubspot|sales pipeline)\b", text)
