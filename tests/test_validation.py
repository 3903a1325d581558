import itertools
import json
import re
import subprocess
import sys
import time
from typing import Any

import pytest
import re2
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from shortlist import validation
from shortlist.models import Tool
from shortlist.text.tokens import one_line
from shortlist.validation import Check, check_arguments, check_call
from shortlist.workers import WorkerFailed, WorkerTimedOut, WorkOwner, run_apart


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


def tool_of(schema: Any) -> Tool:
    return Tool(id="s/t", name="t", definition=json.dumps({"inputSchema": schema}))


def check(schema: Any, arguments: dict[str, Any]) -> Check:
    return check_arguments(tool_of(schema), arguments)


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


HEAVY: dict[str, tuple[Any, dict[str, Any]]] = {
    "patterns and additional properties": (
        {"patternProperties": {"^(a+)+$": {}}, "additionalProperties": False},
        {"a" * 5_000 + "b": 1},
    ),
    "unique items": (
        {"properties": {"list": {"uniqueItems": True}}},
        {"list": [{"n": number, "more": [number]} for number in range(20_000)] + [{"n": 1, "more": [1.0]}]},
    ),
    "a large enumeration": (
        {"properties": {"list": {"items": {"enum": [{"n": [number]} for number in range(5_000)]}}}},
        {"list": [{"n": [5_000]}] * 2_000},
    ),
}


@pytest.mark.parametrize("name", HEAVY)
def test_heavy_schemas_are_checked_in_linear_time(name: str) -> None:
    schema, arguments = HEAVY[name]
    assert check(schema, arguments).violations


def test_equality_is_that_of_json_schema() -> None:
    assert not check({"properties": {"n": {"enum": [1, True]}}}, {"n": 1.0}).violations
    assert check({"properties": {"n": {"enum": [1]}}}, {"n": True}).violations
    assert check({"properties": {"n": {"const": False}}}, {"n": 0}).violations
    assert not check({"properties": {"n": {"uniqueItems": True}}}, {"n": [1, True, "1", [1], {"a": 1}]}).violations


values = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 2) | st.sampled_from([0.0, 1.0, 1.5]) | st.sampled_from("ab"),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("ab"), inner, max_size=2),
    max_leaves=6,
)


@given(st.lists(values, max_size=5), values)
def test_enumerations_and_unique_items_agree_with_the_plain_validator(items: list[Any], value: Any) -> None:
    schema = {"properties": {"list": {"uniqueItems": True}, "value": {"enum": items}}}
    plain = Draft202012Validator(schema).is_valid({"list": items, "value": value})
    assert plain == (not check(schema, {"list": items, "value": value}).violations)


@pytest.mark.anyio
async def test_what_takes_long_is_checked_in_a_process_that_is_killed_when_its_time_is_over() -> None:
    with pytest.raises(WorkerFailed, match=r"longer than 1 s"):
        await run_apart(time.sleep, 3600, seconds=1.0, owner=WorkOwner())
    schema, arguments = HEAVY["unique items"]
    tool = Tool(id="s/t", name="t", definition=json.dumps({"inputSchema": schema}))
    assert (await check_call(tool, arguments)).violations


BOMBS: dict[str, tuple[Any, dict[str, Any]]] = {
    "a pattern that takes a second to compile": ({"properties": {"a": {"pattern": r"[\pL\pN]{1,300}"}}}, {"a": "x"}),
    "many classes of Unicode": ({"properties": {"a": {"pattern": "(?i)" + r"\pL" * 90}}}, {"a": "x"}),
    "repetitions of repetitions": ({"properties": {"a": {"pattern": "((a{1,30}){1,30})"}}}, {"a": "x"}),
    "large repetitions": ({"propertyNames": {"pattern": "a{1,900}b"}}, {"a": 1}),
    "a long text": ({"properties": {"a": {"pattern": "^(.*a.{90})"}}}, {"a": "a" * 30_000}),
    "thousands of patterns": ({"patternProperties": {f"^{n}$": {} for n in range(2_500)}}, {"a": 1, "b": 2}),
    "a large schema": ({"properties": {f"p{n}": {"type": "string"} for n in range(2_500)}}, {"p1": "x"}),
    "alternatives of alternatives": ({"$ref": "#/$defs/a", "$defs": {"a": {"anyOf": [{"$ref": "#/$defs/a"}] * 2}}}, {}),
    "a dynamic reference to itself": (
        {"$dynamicRef": "#n", "$dynamicAnchor": "n", "properties": {"a": {"$dynamicRef": "#n"}}},
        {"a": {}},
    ),
}


@pytest.mark.anyio
@pytest.mark.parametrize("name", BOMBS)
async def test_what_may_take_long_is_not_done_on_the_event_loop(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async def elsewhere(*_: Any, seconds: float, **__: Any) -> Check:
        assert seconds == validation.WORKER_SECONDS
        return Check(unchecked="elsewhere")

    def compiled(pattern: str, **_: Any) -> Any:
        assert pattern.startswith("^")
        assert len(pattern) <= len("^9999$")
        return re.compile(pattern)

    monkeypatch.setattr(validation, "run_apart", elsewhere)
    monkeypatch.setattr(re2, "compile", compiled)
    schema, arguments = BOMBS[name]
    assert await check_call(tool_of(schema), arguments) == Check(unchecked="elsewhere")


@pytest.mark.parametrize("name", BOMBS)
def test_a_bomb_ends_within_the_steps_of_a_check(name: str) -> None:
    schema, arguments = BOMBS[name]
    assert isinstance(check(schema, arguments), Check)


@pytest.mark.parametrize(
    "pattern", ["^[a-z0-9-]{1,63}$", "^[0-9a-f]{8}-([0-9a-f]{4}-){3}[0-9a-f]{12}$", "^https?://", "^(a+)+$"]
)
def test_usual_patterns_are_matched_on_the_event_loop(pattern: str) -> None:
    assert validation._is_simple(pattern)


@pytest.mark.anyio
async def test_a_check_on_the_event_loop_ends_after_a_moment_however_few_steps_it_took(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = itertools.count(step=validation.INLINE_SECONDS / 10)
    schema = {"properties": {name: {"type": "string", "minLength": 1} for name in "abcdefghij"}}
    await check_call(tool_of(schema), {})
    monkeypatch.setattr(validation, "thread_time", lambda: next(clock))

    async def elsewhere(*_: Any, seconds: float, **__: Any) -> Check:
        return Check(unchecked=f"{seconds}")

    monkeypatch.setattr(validation, "run_apart", elsewhere)
    assert await check_call(tool_of(schema), dict.fromkeys("ab", "x")) == Check()
    assert (await check_call(tool_of(schema), dict.fromkeys("abcdefghij", "x"))).unchecked


@pytest.mark.anyio
async def test_a_schema_whose_check_did_not_end_is_not_tried_again_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[str] = []
    failure: type[WorkerFailed] = WorkerFailed

    async def failing(_: Any, definition: str, *__: Any, seconds: float, owner: WorkOwner) -> Check:
        tried.append(definition)
        raise failure(f"{seconds}")

    monkeypatch.setattr(validation, "run_apart", failing)
    tool = tool_of({"properties": {"a": {"pattern": r"\pL"}}, "title": "hopeless"})
    assert (await check_call(tool, {"a": "x"})).unchecked
    failure = WorkerTimedOut
    assert (await check_call(tool, {"a": "x"})).unchecked
    assert len(tried) == 2
    assert (await check_call(tool, {"a": "x"})).unchecked
    assert len(tried) == 2


def test_of_a_long_wrong_value_only_the_beginning_is_cleaned_and_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    cleaned: list[str] = []

    def noted(text: str, length: int | None = None) -> str:
        cleaned.append(text)
        return one_line(text, length)

    monkeypatch.setattr(validation, "one_line", noted)
    found = check({"properties": {"n": {"type": "integer"}}}, {"n": "some words " * 100_000})
    assert found.violations[0].constraint.startswith("'some words some words")
    assert len(found.violations[0].constraint) <= validation.SHOWN_CHARACTERS
    assert max(map(len, cleaned)) <= validation.READ_CHARACTERS


FIRST_CHECK = """
import sys, threading
import anyio
from shortlist.models import Tool
from shortlist.validation import check_call

class Watch:
    threads = set()
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("jsonschema", "referencing"):
            self.threads.add(threading.current_thread())

sys.meta_path.insert(0, Watch())
found = anyio.run(check_call, Tool(id="s/t", name="t", definition='{"inputSchema": {"required": ["n"]}}'), {})
assert len(found.violations) == 1
assert Watch.threads and threading.main_thread() not in Watch.threads, Watch.threads
"""


def test_the_first_check_imports_the_validator_beside_the_event_loop() -> None:
    subprocess.run([sys.executable, "-c", FIRST_CHECK], check=True, timeout=120)
