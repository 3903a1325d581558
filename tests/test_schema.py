from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shortlist.models import Parameter
from shortlist.schema import MAX_ENUM_VALUES, MAX_PARAMETERS, enum_of, nested_properties, parameters_of, type_name
from tests.fakes import tool

KEYS = ["type", "properties", "items", "enum", "required", "description", "anyOf", "oneOf", "$ref", "a", "b"]
schemas: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5) | st.sampled_from(["object", "array", "string"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS), inner, max_size=5),
    max_leaves=25,
)


def test_parameters_are_read_with_type_description_and_choice() -> None:
    schema = {
        "type": "object",
        "properties": {
            "unit": {"type": "string", "description": "Scale", "enum": ["C", "F"]},
            "days": {"type": ["integer", "null"]},
        },
        "required": ["unit"],
    }
    assert parameters_of(tool("a/x", inputSchema=schema)) == (
        Parameter(name="unit", type="string", description="Scale", required=True, enum=("C", "F")),
        Parameter(name="days", type="integer"),
    )


@pytest.mark.parametrize(
    ("schema", "name"),
    [
        ({"type": "array", "items": {"type": "string"}}, "string[]"),
        ({"type": "array"}, "array"),
        ({"type": ["string", "null"]}, "string"),
        ({"anyOf": [{"type": "string"}, {"type": "null"}, {"type": "integer"}]}, "string|integer"),
        ({"$ref": "#/$defs/node"}, "any"),
        ({}, "any"),
        (True, "any"),
        ([], "any"),
    ],
)
def test_a_type_is_named_in_one_word(schema: Any, name: str) -> None:
    assert type_name(schema) == name


def test_wide_schemas_are_bounded() -> None:
    wide = {"properties": {f"p{n}": {"enum": list(range(100))} for n in range(500)}}
    assert len(nested_properties(wide)) == MAX_PARAMETERS
    assert len(enum_of(wide["properties"]["p0"])) == MAX_ENUM_VALUES


def test_properties_inside_objects_and_lists_are_found_outermost_first() -> None:
    schema: dict[str, Any] = {
        "properties": {
            "order": {"properties": {"lines": {"items": {"properties": {"price": {}}}}}},
            "note": {},
        }
    }
    assert [name for name, _ in nested_properties(schema)] == ["order", "note", "lines", "price"]


@given(st.dictionaries(st.sampled_from(KEYS), schemas, max_size=6))
def test_any_schema_is_read(schema: dict[str, Any]) -> None:
    assert len(nested_properties(schema)) <= MAX_PARAMETERS
    for parameter in parameters_of(tool("a/x", inputSchema=schema)):
        assert isinstance(parameter.type, str)
        assert all(isinstance(value, str) for value in parameter.enum)
