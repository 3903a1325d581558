import json
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

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
