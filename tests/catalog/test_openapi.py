import json
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from shortlist.catalog.readers import read_catalog
from shortlist.errors import InvalidCatalog

NODE = {
    "type": "object",
    "properties": {
        "name": {"type": "string"},
        "children": {"type": "array", "items": {"$ref": "#/components/schemas/Node"}},
    },
}
DOCUMENT: dict[str, Any] = {
    "openapi": "3.1.0",
    "info": {"title": "Pet Store", "description": "Sells pets.", "version": "1"},
    "servers": [{"url": "https://nowhere.invalid"}],
    "paths": {
        "/pets/{id}": {
            "parameters": [{"name": "id", "in": "path", "required": True, "schema": {"type": "integer"}}],
            "get": {"operationId": "getPet", "summary": "Return one pet.", "tags": ["pets"]},
            "delete": {"operationId": "deletePet", "summary": "Delete a pet.", "deprecated": True},
        },
        "/pets": {
            "post": {
                "summary": "Add a pet.",
                "parameters": [{"$ref": "#/components/parameters/Dry"}],
                "requestBody": {
                    "required": True,
                    "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Pet"}}},
                },
            }
        },
        "/tree": {
            "put": {
                "operationId": "putTree",
                "requestBody": {"content": {"application/json": {"schema": {"$ref": "#/components/schemas/Node"}}}},
            }
        },
    },
    "components": {
        "parameters": {
            "Dry": {"name": "dry_run", "in": "query", "description": "Only check.", "schema": {"type": "boolean"}}
        },
        "schemas": {
            "Pet": {
                "type": "object",
                "required": ["name"],
                "properties": {"name": {"type": "string"}, "kind": {"type": "string", "default": "cat"}},
            },
            "Node": NODE,
            "Loop": {"$ref": "#/components/schemas/Loop"},
        },
    },
}


def tools(document: dict[str, Any] = DOCUMENT) -> dict[str, Any]:
    reading = read_catalog(document)
    assert reading.problems == ()
    return {tool.name: tool for tool in reading.catalog.tools.values()}


def test_every_operation_is_a_tool_of_one_server() -> None:
    found = tools()
    assert sorted(found) == ["deletePet", "getPet", "post_pets", "putTree"]
    assert {tool.server for tool in found.values()} == {"pet-store"}
    assert found["getPet"].description == "Return one pet."
    assert found["getPet"].tags == ("pets",)


def test_parameters_and_the_fields_of_a_body_are_arguments() -> None:
    schema = tools()["post_pets"].input_schema
    assert list(schema["properties"]) == ["dry_run", "name", "kind"]
    assert schema["properties"]["dry_run"]["description"] == "Only check."
    assert schema["properties"]["kind"]["default"] == "cat"
    assert schema["required"] == ["name"]
    assert tools()["getPet"].input_schema["required"] == ["id"]


def test_a_schema_that_refers_to_itself_is_carried_once() -> None:
    schema = tools()["putTree"].input_schema
    assert schema["properties"]["children"]["items"] == {"$ref": "#/$defs/Node"}
    assert schema["$defs"]["Node"]["properties"]["children"]["items"] == {"$ref": "#/$defs/Node"}


def test_a_circle_of_nothing_but_references_and_references_to_other_files_end() -> None:
    body = {"content": {"application/json": {"schema": {"$ref": "#/components/schemas/Loop"}}}}
    parameter = {"$ref": "https://example.com/other.json#/parameters/x"}
    operation = {"operationId": "loop", "parameters": [parameter], "requestBody": body}
    found = tools({**DOCUMENT, "paths": {"/loop": {"post": operation}}})
    assert list(found["loop"].input_schema["properties"]) == ["body"]


def test_methods_say_what_they_may_do_and_deprecation_is_said() -> None:
    found = tools()
    assert found["getPet"].annotations.read_only is True
    assert found["deletePet"].annotations.destructive is True
    assert found["deletePet"].description.startswith("Deprecated.")


def test_a_file_is_read_like_a_document(tmp_path: Path) -> None:
    file = tmp_path / "openapi.json"
    file.write_text(json.dumps(DOCUMENT))
    assert len(read_catalog(file).catalog) == 4


def test_swagger_two_is_refused_with_a_remedy() -> None:
    with pytest.raises(InvalidCatalog, match=r"Swagger 2\.0.*convert it to OpenAPI 3"):
        read_catalog({"swagger": "2.0", "paths": {}})


def test_yaml_is_read_where_a_reader_is_installed(tmp_path: Path) -> None:
    file = tmp_path / "openapi.yaml"
    file.write_text(json.dumps(DOCUMENT))  # JSON is YAML
    if find_spec("yaml") is not None:
        assert len(read_catalog(file).catalog) == 4
        return
    with pytest.raises(InvalidCatalog, match="pip install pyyaml"):
        read_catalog(file)


def read_paths(paths: dict[str, Any]) -> dict[str, Any]:
    return {
        tool.name: tool
        for tool in read_catalog({"openapi": "3.1.0", "info": {"title": "x"}, "paths": paths}).catalog.tools.values()
    }


def schema_of(operation: dict[str, Any], method: str = "post", **document: Any) -> dict[str, Any]:
    """Read one operation; its schema stands alone: whatever it refers to is in it."""
    paths = {"/a": {method: {"operationId": "act", **operation}}}
    schema: dict[str, Any] = tools({"openapi": "3.0.3", "info": {"title": "x"}, "paths": paths, **document})[
        "act"
    ].input_schema
    Draft202012Validator.check_schema(schema)
    return schema


def fits(schema: dict[str, Any], arguments: dict[str, Any]) -> bool:
    return bool(Draft202012Validator(schema).is_valid(arguments))


def body_of(schema: dict[str, Any], media_type: str = "application/json") -> dict[str, Any]:
    return {"requestBody": {"required": True, "content": {media_type: {"schema": schema}}}}


def query_of(schema: dict[str, Any]) -> dict[str, Any]:
    return {"parameters": [{"name": "q", "in": "query", "schema": schema}]}


BASE = {"type": "object", "required": ["x"], "properties": {"x": {"type": "integer"}, "kind": {"enum": ["a", "b"]}}}
COMPONENTS = {
    "schemas": {"Base": BASE, "Own": {"$ref": "#/components/schemas/Base", "required": ["kind"]}},
    "parameters": {"Limit": {"name": "limit", "in": "query", "schema": {"type": "integer", "maximum": 9}}},
}


@pytest.mark.parametrize(
    "schema",
    [
        {"allOf": [{"$ref": "#/components/schemas/Base"}], "required": ["y"], "properties": {"y": {"type": "string"}}},
        {"allOf": [BASE, {"required": ["y"], "properties": {"y": {"type": "string"}}}]},
        {"allOf": [{"allOf": [{"$ref": "#/components/schemas/Base"}]}, {"required": ["y"], "properties": {"y": {}}}]},
    ],
)
def test_a_body_has_the_fields_of_all_its_parts(schema: dict[str, Any]) -> None:
    found = schema_of(body_of(schema), components=COMPONENTS)
    assert list(found["properties"]) == ["x", "kind", "y"]
    assert found["required"] == ["x", "y"]


def test_a_field_that_two_parts_describe_fits_both() -> None:
    part = {"properties": {"kind": {"enum": ["b", "c"], "description": "Which."}}}
    found = schema_of(body_of({"allOf": [BASE, part]}))
    assert found["properties"]["kind"]["description"] == "Which."
    assert [kind for kind in "abc" if fits(found, {"x": 1, "kind": kind})] == ["b"]


def test_a_body_that_can_be_one_of_several_objects_is_one_argument() -> None:
    one_of: dict[str, Any] = {"oneOf": [{"properties": {"cat": {}}}, {"properties": {"dog": {}}}]}
    assert list(schema_of(body_of({"allOf": [BASE, one_of]}))["properties"]) == ["body"]
    any_of = {**BASE, "anyOf": [{"required": ["x"]}, {"required": ["kind"]}]}
    assert list(schema_of(body_of(any_of))["properties"]) == ["x", "kind"]


def test_a_body_that_is_part_of_itself_ends() -> None:
    loop = {"allOf": [{"$ref": "#/components/schemas/Loop"}], "properties": {"y": {}}}
    found = schema_of(body_of({"$ref": "#/components/schemas/Loop"}), components={"schemas": {"Loop": loop}})
    assert list(found["properties"]) == ["y"]


@pytest.mark.parametrize(
    ("reference", "good", "bad"),
    [
        ("#/components/schemas/Base/properties/kind", "a", "c"),
        ("#/components/parameters/Limit/schema", 9, 10),
        ("#/paths/~1a/post/parameters/1/schema", 1, 0),
        ("#/paths/%7E1a/post/parameters/1/schema", 1, 0),
        ("#/components/schemas/Own", {"x": 1, "kind": "a"}, {"x": 1}),
        ("#/components/schemas/Missing", "anything", None),
    ],
)
def test_a_reference_to_any_place_of_the_document_is_followed(reference: str, good: Any, bad: Any) -> None:
    counted = {"name": "n", "in": "query", "schema": {"minimum": 1}}
    operation = {"parameters": [*query_of({"$ref": reference})["parameters"], counted]}
    found = schema_of(operation, components=COMPONENTS)
    assert fits(found, {"q": good})
    assert bad is None or not fits(found, {"q": bad})


def test_references_whose_names_look_alike_keep_their_own_schemas() -> None:
    components = {"schemas": {"A B": {"type": "string"}, "A_B": {"type": "integer"}}}
    both = {"properties": {name: {"$ref": f"#/components/schemas/{name}"} for name in components["schemas"]}}
    found = schema_of(query_of(both), components=components)
    assert fits(found, {"q": {"A B": "text", "A_B": 1}})
    assert not fits(found, {"q": {"A B": 1}})


def test_an_id_does_not_lead_references_elsewhere() -> None:
    inner = {"$id": "https://example.com/inner", "properties": {"base": {"$ref": "#/components/schemas/Base"}}}
    found = schema_of(query_of(inner), components=COMPONENTS)
    assert not fits(found, {"q": {"base": {}}})


def test_what_looks_like_a_reference_in_a_value_stays_as_it_is() -> None:
    default = {"$ref": "#/components/schemas/Base", "nullable": True}
    assert schema_of(query_of({"default": default}))["properties"]["q"] == {"default": default}


def test_parameters_of_one_name_in_two_places_are_two_arguments() -> None:
    shared = {"name": "id", "in": "path", "required": True, "schema": {"type": "integer"}}
    own = {"name": "id", "in": "query", "description": "Which version.", "schema": {"type": "string"}}
    found = schema_of({"parameters": [shared, own]}, "get")
    assert found["properties"] == {
        "id": {"type": "integer"},
        "query_id": {"type": "string", "description": "The query parameter 'id'. Which version."},
    }
    assert found["required"] == ["id"]


def test_a_parameter_of_an_operation_replaces_that_of_its_path() -> None:
    item = {
        "parameters": [{"name": "id", "in": "query", "required": True, "schema": {"type": "integer"}}],
        "get": {"operationId": "look", "parameters": [{"name": "id", "in": "query", "schema": {"type": "string"}}]},
    }
    schema = read_paths({"/a": item})["look"].input_schema
    assert schema["properties"] == {"id": {"type": "string"}}
    assert schema["required"] == []


def test_what_holds_no_operations_is_named() -> None:
    paths = {
        "/a": {"$ref": "paths.yaml#/a", "post": {"operationId": "post_a"}},
        "/b": {"get": "see the manual", "put": {"operationId": "put_b"}},
        "/c": ["get"],
        "x-internal": 5,
    }
    reading = read_catalog({"openapi": "3.1.0", "info": {"title": "Shop"}, "paths": paths})
    assert set(reading.catalog.tools) == {"shop/post_a", "shop/put_b"}
    assert [*map(str, reading.problems)] == [
        "shop /a: skipped: its reference 'paths.yaml#/a' cannot be followed; put the operations into this document",
        "shop GET /b: skipped: the operation is not an object",
        "shop /c: skipped: its operations are not an object",
    ]


def test_documents_in_a_list_are_read_beside_other_tools() -> None:
    other = {**DOCUMENT, "info": {"title": "Other"}}
    reading = read_catalog([DOCUMENT, {"name": "plain"}, other, {"swagger": "2.0", "paths": {}}])
    assert {server: len(ids) for server, ids in reading.catalog.members.items() if server} == {
        "pet-store": 4,
        "other": 4,
    }
    assert "plain" in reading.catalog.tools
    (problem,) = reading.problems
    assert str(problem).startswith("[3]: skipped: This is a Swagger 2.0 document")


@pytest.mark.parametrize(
    ("schema", "refused"),
    [
        ({"type": "string", "nullable": True}, 5),
        ({"type": "string", "enum": ["a"], "nullable": True}, "b"),
        ({"enum": ["a"], "nullable": True}, "b"),
        ({"$ref": "#/components/schemas/Base", "nullable": True}, {}),
        ({"allOf": [{"$ref": "#/components/schemas/Base"}], "type": "object", "nullable": True}, {}),
        ({"type": ["string", "null"], "nullable": True}, 5),
    ],
)
def test_a_nullable_value_may_be_null_and_nothing_else_that_it_was_not(schema: dict[str, Any], refused: Any) -> None:
    found = schema_of(query_of({**schema, "description": "What."}), components=COMPONENTS)
    assert "nullable" not in json.dumps(found)
    assert found["properties"]["q"]["description"] == "What."
    assert fits(found, {"q": None})
    assert not fits(found, {"q": refused})


def test_exclusive_bounds_of_openapi_3_0_are_written_as_numbers() -> None:
    schema = {"type": "integer", "minimum": 0, "exclusiveMinimum": True, "maximum": 5, "exclusiveMaximum": False}
    found = schema_of(query_of(schema))["properties"]["q"]
    assert found == {"type": "integer", "exclusiveMinimum": 0, "maximum": 5}


@pytest.mark.parametrize(
    "media_type", ["application/json; charset=utf-8", "application/vnd.shop+json", "Application/JSON"]
)
def test_json_is_preferred_to_other_kinds_of_body(media_type: str) -> None:
    content: dict[str, Any] = {
        "multipart/form-data": {"schema": {"properties": {"file": {}}}},
        media_type: {"schema": {"properties": {"json": {}}}},
    }
    assert list(schema_of({"requestBody": {"content": content}})["properties"]) == ["json"]


@pytest.mark.parametrize(("tags", "read"), [("abc", ("abc",)), (["a", 1], ("a", "1")), (5, ()), (None, ())])
def test_tags_are_read_as_a_list_or_as_one(tags: Any, read: tuple[str, ...]) -> None:
    assert read_paths({"/a": {"get": {"operationId": "look", "tags": tags}}})["look"].tags == read


def test_operations_with_one_name_or_one_of_other_letters_are_called_by_method_and_path() -> None:
    found = read_paths(
        {
            "/a": {"get": {"operationId": "list"}},
            "/b": {"get": {"operationId": "list"}},
            "/c": {"get": {"operationId": "获取"}},
            "/c/": {"get": {"operationId": "list"}},
        }
    )
    assert set(found) == {"list", "get_b", "get_c", "get_c_2"}


def test_a_reference_to_another_file_may_be_anything() -> None:
    body = {"content": {"application/json": {"schema": {"$ref": "common.yaml#/Foo"}}}}
    found = read_paths({"/a": {"post": {"operationId": "send", "requestBody": body}}})
    assert found["send"].input_schema["properties"] == {"body": {}}


def test_a_document_whose_references_are_put_in_place_keeps_its_arguments() -> None:
    node: dict[str, Any] = {"type": "object", "description": "A node.", "properties": {}}
    node["properties"]["parent"] = node
    parameter = {"name": "node", "in": "query", "schema": node}
    found = read_paths({"/a": {"get": {"operationId": "look", "parameters": [parameter]}}})
    assert found["look"].input_schema["properties"] == {"node": {"type": "object", "description": "A node."}}


@pytest.mark.skipif(find_spec("yaml") is None, reason="needs PyYAML")
def test_dates_in_yaml_stay_as_they_are_written(tmp_path: Path) -> None:
    file = tmp_path / "api.yaml"
    file.write_text(
        "openapi: 3.0.3\ninfo: {title: x}\npaths:\n  /a:\n    get:\n      operationId: look\n      parameters:\n"
        "      - {name: since, in: query, schema: {type: string, default: 2024-01-01}}\n"
    )
    (tool,) = read_catalog(file).catalog.tools.values()
    assert tool.input_schema["properties"]["since"]["default"] == "2024-01-01"
