"""Names and signatures in Python, made of what strangers call their tools and write in their schemas."""

import json
import keyword
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shortlist.code.naming import PythonNames, parameter_identifiers
from shortlist.code.stubs import bound_arguments, python_signature, python_stub
from shortlist.errors import InvalidInput
from shortlist.models import Tool


class Reach:
    """Tools by server."""

    def __init__(self, **members: tuple[str, ...]) -> None:
        self._members = {server.replace("__", "-"): names for server, names in members.items()}

    @property
    def servers(self) -> tuple[str, ...]:
        return tuple(self._members)

    def members(self, server: str) -> tuple[str, ...]:
        return tuple(f"{server}/{name}" for name in self._members[server])


def tool(schema: Any, **more: Any) -> Tool:
    return Tool(id="s/t", name="t", server="s", definition=json.dumps({"name": "t", "inputSchema": schema, **more}))


def test_other_characters_become_underscores_and_keywords_get_a_suffix() -> None:
    names = PythonNames(Reach(my__server=("list-files", "import", "2fa", "_hidden", "get.it", "")))
    paths = [names.path(f"my-server/{name}") for name in ("list-files", "import", "2fa", "_hidden", "get.it", "")]
    assert paths == [
        "my_server.list_files",
        "my_server.import_",
        "my_server.t_2fa",
        "my_server.t_hidden",
        "my_server.get_it",
        "my_server.t_",
    ]


def test_names_that_would_clash_each_get_a_suffix_of_their_own() -> None:
    names = PythonNames(Reach(a=("get-it", "get_it"), b__c=("x",), b_c=("x",)))
    paths = {names.path(i) for i in ("a/get-it", "a/get_it", "b-c/x", "b_c/x")}
    assert len(paths) == 4
    assert {names.find(path) for path in paths} == {"a/get-it", "a/get_it", "b-c/x", "b_c/x"}
    assert names.find("a.get_it") is None


@given(st.lists(st.text(max_size=12), max_size=12, unique=True))
def test_every_tool_has_an_identifier_that_leads_back_to_it(own: list[str]) -> None:
    names = PythonNames(Reach(server=tuple(own)))
    for name in own:
        path = names.path(f"server/{name}")
        attribute = path.partition(".")[2]
        assert attribute.isidentifier()
        assert not keyword.iskeyword(attribute)
        assert not attribute.startswith("_")
        assert names.find(path) == f"server/{name}"


@given(st.lists(st.text(max_size=12), max_size=12, unique=True))
def test_every_parameter_has_an_identifier_of_its_own(own: list[str]) -> None:
    names = parameter_identifiers(own)
    assert len(set(names.values())) == len(own)
    assert all(name.isidentifier() and not keyword.iskeyword(name) for name in names.values())


@pytest.mark.parametrize(
    ("schema", "shown"),
    [
        ({}, "tools.s.t()"),
        ({"properties": {"a": {"type": "string"}}, "required": ["a"]}, "tools.s.t(a: str)"),
        ({"properties": {"b": {"type": "integer"}}}, "tools.s.t(b: int = None)"),
        (
            {"properties": {"b": {"type": "integer"}, "a": {"type": "number"}}, "required": ["a"]},
            "tools.s.t(a: float, b: int = None)",
        ),
        ({"properties": {"a": {"enum": ["x", 1, None]}}}, "tools.s.t(a: Literal['x', 1, None] = None)"),
        ({"properties": {"a": {"const": "x"}}}, "tools.s.t(a: Literal['x'] = None)"),
        ({"properties": {"a": {"type": "array", "items": {"type": "string"}}}}, "tools.s.t(a: list[str] = None)"),
        ({"properties": {"a": {"type": ["string", "null"]}}}, "tools.s.t(a: str | None = None)"),
        (
            {"properties": {"a": {"anyOf": [{"type": "integer"}, {"type": "boolean"}]}}},
            "tools.s.t(a: int | bool = None)",
        ),
        (
            {"properties": {"a": {"type": "object", "properties": {"k": {"type": "string"}}}}},
            'tools.s.t(a: {"k": str} = None)',
        ),
        ({"properties": {"a": {"$ref": "#/$defs/n"}}, "$defs": {"n": {"type": "integer"}}}, "tools.s.t(a: int = None)"),
        ({"properties": {"a": {"$ref": "#/properties/a"}}}, "tools.s.t(a: Any = None)"),
        (
            {"properties": {"from": {"type": "string"}, "page-size": {}}},
            "tools.s.t(from_: str = None, page_size: Any = None)",
        ),
        ({"properties": "nonsense", "required": 7}, "tools.s.t()"),
        ({"properties": {"a": {"type": {}}}}, "tools.s.t(a: Any = None)"),
    ],
)
def test_a_signature_has_the_types_of_the_schema(schema: Any, shown: str) -> None:
    assert python_signature(tool(schema), "s.t") == shown


def test_a_signature_says_what_is_returned_where_the_server_says_so() -> None:
    output = {"type": "object", "properties": {"total": {"type": "number"}}}
    assert python_signature(tool({}, outputSchema=output), "s.t") == 'tools.s.t() -> {"total": float}'


def test_a_stub_is_one_signature_and_one_line_of_words() -> None:
    found = Tool(id="s/t", name="t", server="s", description="First.\nSecond.", definition="{}")
    assert python_stub(found, "s.t") == "tools.s.t()\n  First. Second."


SCHEMA = {
    "type": "object",
    "properties": {"a": {"type": "string"}, "b": {"type": "integer"}, "c": {"type": ["string", "null"]}, "from": {}},
    "required": ["a"],
}


@pytest.mark.parametrize(
    ("positional", "named", "arguments"),
    [
        (("x",), {}, {"a": "x"}),
        (("x", 1), {}, {"a": "x", "b": 1}),
        ((), {"a": "x", "b": None, "c": None}, {"a": "x", "c": None}),
        ((), {"a": None}, {"a": None}),
        ((), {"a": "x", "from_": "y"}, {"a": "x", "from": "y"}),
    ],
)
def test_arguments_are_sent_under_the_names_of_the_schema(
    positional: tuple[Any, ...], named: dict[str, Any], arguments: dict[str, Any]
) -> None:
    assert bound_arguments(tool(SCHEMA), positional, named) == arguments


@pytest.mark.parametrize("schema", [{"additionalProperties": True}, {"patternProperties": {"x": {}}}])
def test_a_schema_that_allows_other_arguments_gets_them(schema: dict[str, Any]) -> None:
    assert bound_arguments(tool({**SCHEMA, **schema}), (), {"a": "x", "z": 1}) == {"a": "x", "z": 1}


def test_an_unknown_argument_is_refused() -> None:
    with pytest.raises(InvalidInput, match="unknown argument 'z'"):
        bound_arguments(tool(SCHEMA), (), {"a": "x", "z": 1})
