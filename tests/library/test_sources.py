"""Catalogs from whatever a program has."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import anyio
import pytest
from pydantic import BaseModel

from shortlist.config.settings import Settings
from shortlist.demo.server import demo_settings
from shortlist.errors import InvalidCatalog, UpstreamError
from shortlist.library.filter import ToolFilter
from shortlist.library.objects import definition_of
from shortlist.library.sources import read_source
from shortlist.models import Tool

SCHEMA = {"type": "object", "properties": {"to": {"type": "string"}}}
MCP = {"name": "send_email", "description": "Send an email.", "inputSchema": SCHEMA}
PORTKEY = [
    {
        "id": "mail",
        "name": "Mail",
        "description": "Mail for all",
        "categories": ["office"],
        "tools": [{**MCP, "keywords": ["post"], "category": "messages"}],
    }
]
OPENAI = [
    {"type": "function", "function": {"name": "send_email", "description": "Send an email.", "parameters": SCHEMA}}
]
ANTHROPIC = [{"name": "send_email", "description": "Send an email.", "input_schema": SCHEMA}]


@pytest.mark.parametrize("source", [{"tools": [MCP]}, [MCP], PORTKEY, OPENAI, ANTHROPIC])
def test_json_of_every_shape_is_read(source: Any) -> None:
    (tool,) = read_source(source).catalog.tools.values()
    assert (tool.name, tool.description, tool.input_schema) == ("send_email", "Send an email.", SCHEMA)


def test_a_path_is_read(tmp_path: Path) -> None:
    path = tmp_path / "tools.json"
    path.write_text(json.dumps(PORTKEY))
    assert read_source(str(path)).catalog.tools.keys() == read_source(path).catalog.tools.keys() == {"mail/send_email"}


class Priority(BaseModel):
    level: Literal["low", "high"]


def send_email(to: list[str], subject: str, priority: Priority, copies: int = 0, *, html: bool = False) -> str:
    """Send an email to people.

    Longer words about it.

    Args:
        to: Who gets it.
        subject (str): What it is about.
    """
    return f"{to} {subject} {priority} {copies} {html}"


async def fetch(url, **_more):  # type: ignore[no-untyped-def]
    """Fetch a page."""


def mcp_of(item: Any) -> dict[str, Any]:
    found = definition_of(item)
    assert found is not None
    return found


def test_a_callable_becomes_a_tool_by_its_signature_and_docstring() -> None:
    found = mcp_of(send_email)
    assert found["name"] == "send_email"
    assert found["description"].startswith("Send an email to people.")
    assert "Args" not in found["description"]
    schema = found["inputSchema"]
    assert schema["required"] == ["to", "subject", "priority"]
    assert schema["properties"]["to"] == {"items": {"type": "string"}, "type": "array", "description": "Who gets it."}
    assert schema["properties"]["subject"]["description"] == "What it is about."
    assert schema["properties"]["html"]["type"] == "boolean"
    assert "level" in json.dumps(schema["properties"]["priority"])


def test_a_callable_without_types_still_names_its_parameters() -> None:
    assert mcp_of(fetch)["inputSchema"]["properties"].keys() == {"url"}


def test_types_that_no_schema_can_say_are_left_open() -> None:
    class Opaque: ...

    def use(thing: Opaque, name: "NoSuchType") -> None:  # type: ignore[name-defined]  # noqa: F821
        """Use a thing."""

    assert mcp_of(use)["inputSchema"]["properties"].keys() == {"thing", "name"}


def test_callables_come_back_with_the_result() -> None:
    found = ToolFilter([send_email, fetch], embedding=None).filter("email to Bob", limit=1)
    assert found.originals() == [send_email]
    assert found.tools[0].original is send_email


def test_one_callable_does_for_a_list() -> None:
    assert read_source(send_email).catalog.tools.keys() == {"send_email"}


def test_definitions_callables_and_tools_may_be_mixed() -> None:
    (made,) = read_source(PORTKEY).catalog.tools.values()
    assert read_source([made, fetch, {"name": "raw"}]).catalog.tools.keys() == {"mail/send_email", "fetch", "raw"}


def test_sphinx_docstrings_are_read_too() -> None:
    def move(source: str, target: str) -> None:
        """Move a file.

        :param source: from here
        :param target: to there
        """

    found = mcp_of(move)
    assert found["description"] == "Move a file."
    assert found["inputSchema"]["properties"]["target"]["description"] == "to there"


@pytest.mark.parametrize("wrong", [7, [7], [None], "no/such/file.json"])
def test_what_holds_no_tools_is_refused(wrong: Any) -> None:
    with pytest.raises(InvalidCatalog):
        read_source(wrong)


def test_live_servers_are_listed_and_let_go() -> None:
    servers = {name: demo_settings()[name] for name in list(demo_settings())[:3]}
    reading = read_source(Settings(servers=servers))
    assert set(reading.catalog.servers) == set(servers)
    assert len(reading.catalog) > 10
    assert all(server.description for server in reading.catalog.servers.values())


def test_live_servers_can_be_listed_inside_an_event_loop() -> None:
    name = next(iter(demo_settings()))
    settings = Settings(servers={name: demo_settings()[name]})

    async def listed() -> int:
        return len(ToolFilter(settings, embedding=None).catalog)

    assert anyio.run(listed) > 0


def test_a_server_that_fails_is_a_problem_and_all_of_them_an_error(tmp_path: Path) -> None:
    broken = {"mcpServers": {"broken": {"command": str(tmp_path / "nothing-here")}}}
    with pytest.raises(UpstreamError, match="broken"):
        read_source(broken)
    path = tmp_path / "config.json"
    path.write_text(json.dumps(broken))
    with pytest.raises(UpstreamError, match="broken"):
        read_source(path)


def test_what_cannot_be_read_is_named_in_one_warning() -> None:
    with pytest.warns(
        UserWarning, match=r"2 tools were left out: \[1\]: skipped: 42 .*; \[2\]: skipped: 'x'"
    ) as warned:
        made = ToolFilter([{"name": "search", "description": "Search."}, 42, "x"], embedding=None)
    assert len(warned) == 1
    assert len(made.catalog) == 1
    assert len(made.problems) == 2


class Broken:
    """An object of which nothing can be read."""

    def __getattr__(self, name: str) -> Any:
        raise RuntimeError("no connection")

    def __repr__(self) -> str:
        raise RuntimeError("no connection")


def test_each_problem_names_the_position_in_the_list_and_the_rest_is_read() -> None:
    class Odd: ...

    items = [MCP, Odd(), 5, "text", None, Broken(), {"name": 5}, {"x": 1}, {"name": "late", "when": object()}, fetch]
    reading = read_source(items)
    assert reading.catalog.tools.keys() == {"send_email", "fetch"}
    assert [problem.partition(":")[0] for problem in reading.problems] == [f"[{n}]" for n in range(1, 9)]
    assert reading.problems[4] == "[5]: skipped: a Broken cannot be read: RuntimeError: no connection"
    assert "'late': it is not JSON" in reading.problems[7]


def test_a_tool_of_a_group_is_reported_with_its_place_in_it() -> None:
    class Kit:
        tools = (send_email, 5)

    assert read_source([fetch, Kit()]).problems == ("[1][1]: skipped: 5 cannot be read as a tool",)


def test_two_tools_of_one_name_are_refused_with_the_position_of_the_second() -> None:
    made = Tool(id="mail/send", name="send", server="mail")
    with pytest.raises(InvalidCatalog, match=r"and \[2\]\. Rename one"):
        read_source([fetch, made, made])


def test_twenty_problems_are_named_in_the_warning_and_the_rest_is_counted() -> None:
    with pytest.warns(UserWarning, match=r"22 tools were left out: .*\[20\]: .*; and 2 more in `\.problems`") as warned:
        ToolFilter([MCP, *range(22)], embedding=None)
    assert "[21]" not in str(warned[0].message)


def test_an_openapi_document_is_read_beside_a_function() -> None:
    document = {"openapi": "3.1.0", "info": {"title": "Shop"}, "paths": {"/a": {"get": {"operationId": "look"}}}}
    assert read_source([document, fetch]).catalog.tools.keys() == {"shop/look", "fetch"}


def test_tools_made_in_code_are_found_by_their_labels_and_those_read_by_what_ranks() -> None:
    made = Tool(id="a/frob", name="frob", server="a", tags=("billing",), category="finance", keywords=("ledger",))
    read = replace(made, id="a/zap", name="zap", content_hash="1")
    found = read_source([made, read]).catalog.tools
    assert found["a/frob"].keywords == ("ledger", "billing", "finance")
    assert found["a/zap"].keywords == ("ledger",)
