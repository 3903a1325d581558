import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shortlist.models import Tool
from shortlist.validation import Check, check_arguments


def check(schema: Any, arguments: dict[str, Any]) -> Check:
    return check_arguments(Tool(id="s/t", name="t", definition=json.dumps({"inputSchema": schema})), arguments)


def test_good_arguments_pass() -> None:
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    assert check(schema, {"n": 1}) == Check()


def test_a_missing_argument_is_named() -> None:
    found = check({"type": "object", "required": ["title"]}, {})
    assert str(found.violations[0]) == "arguments: 'title' is a required property"


def test_a_violation_has_the_path_and_the_constraint() -> None:
    schema = {"properties": {"items": {"type": "array", "items": {"properties": {"n": {"minimum": 3}}}}}}
    found = check(schema, {"items": [{"n": 3}, {"n": 2}]})
    assert found.violations[0].path == "arguments.items[1].n"
    assert "minimum of 3" in found.violations[0].constraint


def test_references_inside_the_document_are_followed() -> None:
    schema = {"$defs": {"id": {"type": "string"}}, "properties": {"id": {"$ref": "#/$defs/id"}}}
    assert check(schema, {"id": 4}).violations
    assert not check(schema, {"id": "4"}).violations


@pytest.mark.parametrize("reference", ["https://example.com/schema.json", "file:///etc/passwd", "other.json"])
def test_a_reference_out_of_the_document_is_not_followed_and_lets_the_call_through(reference: str) -> None:
    found = check({"properties": {"id": {"$ref": reference}}}, {"id": 4})
    assert not found.violations
    assert "cannot be evaluated" in found.unchecked


def test_a_reference_to_itself_lets_the_call_through() -> None:
    assert check({"$ref": "#"}, {}).unchecked


def test_a_schema_that_asks_for_exponential_work_lets_the_call_through() -> None:
    definitions = {f"d{i}": {"anyOf": [{"$ref": f"#/$defs/d{i + 1}"}] * 8} for i in range(12)}
    found = check({"$defs": {**definitions, "d12": False}, "$ref": "#/$defs/d0"}, {})
    assert "too many steps" in found.unchecked


def test_a_pattern_bomb_is_answered_in_linear_time() -> None:
    schema = {"properties": {"s": {"pattern": "^(a+)+$"}}}
    assert check(schema, {"s": "a" * 5_000 + "b"}).violations


def test_a_pattern_that_needs_backtracking_lets_the_call_through_and_says_so() -> None:
    found = check({"properties": {"s": {"pattern": "(?=.*x)y"}}}, {"s": "q"})
    assert "backtracking" in found.unchecked


def test_pattern_properties_are_checked_by_the_same_engine() -> None:
    schema = {"patternProperties": {"^x_": {"type": "integer"}}}
    assert check(schema, {"x_a": "no"}).violations[0].path == "arguments.x_a"


def test_an_older_draft_that_names_itself_is_evaluated_as_such() -> None:
    schema = {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "properties": {"pair": {"items": [{"type": "string"}, {"type": "integer"}]}},
    }
    assert check(schema, {"pair": ["a", "b"]}).violations
    assert not check(schema, {"pair": ["a", 1]}).violations


@pytest.mark.parametrize("schema", [{"type": "objekt"}, {"properties": []}, {"required": 5}, {"type": ["object", 7]}])
def test_a_broken_schema_lets_the_call_through(schema: Any) -> None:
    assert not check(schema, {"a": 1}).violations


KEYS = ["type", "properties", "$ref", "anyOf", "items", "pattern", "enum", "not", "required", "$defs"]
schemas = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS), inner, max_size=4),
    max_leaves=8,
)


@given(schemas)
def test_no_schema_makes_checking_fail(schema: Any) -> None:
    assert isinstance(check(schema, {"a": 1}), Check)
