"""One malformed definition of a server must not make a client reject a list: every member of every kind, ill-typed."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from shortlist.catalog.readable import readable
from shortlist.gateway.view import ServeOptions
from tests.gateway.support import Era, Fixture, serve
from tests.upstream.support import script

pytestmark = [pytest.mark.anyio, pytest.mark.filterwarnings("ignore::mcp.MCPDeprecationWarning")]

ODD: tuple[Any, ...] = (
    *(5, -1, 10**40, 0.5, "x", True, None, [], {}, [5], ["x"], [{}], {"a": 5}),
    *([{"src": 5}], [{"src": "x", "theme": "z"}], [{"name": 5}], [{"name": "x", "required": "perhaps"}]),
    *({"audience": ["nobody"]}, {"priority": 7}, {"title": 5}, {"readOnlyHint": "perhaps"}, {"taskSupport": "z"}),
    *({"type": "array"}, {"type": "object", "properties": 5}, {"type": "object", "properties": {"a": 5}}),
    *({"type": "object", "properties": {"a": True}}, {"type": "object", "required": [5]}, {"$schema": 5}),
)
MEMBERS = {
    "tools/list": (
        *("title", "description", "annotations", "icons", "_meta", "inputSchema", "outputSchema", "execution"),
        "unknown",
    ),
    "prompts/list": ("title", "description", "arguments", "icons", "_meta", "unknown"),
    "resources/list": ("name", "title", "description", "mimeType", "size", "annotations", "icons", "_meta", "unknown"),
    "resources/templates/list": ("name", "title", "description", "mimeType", "annotations", "icons", "_meta"),
}
KEYS = {
    "tools/list": "tools",
    "prompts/list": "prompts",
    "resources/list": "resources",
    "resources/templates/list": "resourceTemplates",
}


def usual(method: str, number: int) -> dict[str, Any]:
    match method:
        case "tools/list":
            return {"name": f"tool_{number}", "inputSchema": {"type": "object"}}
        case "prompts/list":
            return {"name": f"prompt_{number}"}
        case "resources/list":
            return {"name": f"resource_{number}", "uri": f"x://{number}"}
        case _:
            return {"name": f"template_{number}", "uriTemplate": f"x://{number}/{{a}}"}


def malformed(method: str) -> Iterator[dict[str, Any]]:
    odd = [(member, value) for member in MEMBERS[method] for value in ODD]
    for number, (member, value) in enumerate(odd):
        yield {**usual(method, number), member: value}


def served_by(folder: Path) -> dict[str, Any]:
    file = folder / "lists.json"
    lists = {method: {key: [*malformed(method), "no object", None]} for method, key in KEYS.items()}
    file.write_text(json.dumps(lists))
    return {"odd": script("odd", str(file), file="listing.py")}


@pytest.mark.parametrize("mode", ["static", "passthrough"])
async def test_a_malformed_definition_spoils_no_list_of_any_kind_in_any_era(tmp_path: Path, mode: Any) -> None:
    beside = [Fixture("beside")] if mode == "static" else []
    async with serve(*beside, others=served_by(tmp_path), options=ServeOptions(mode=mode)) as served:
        eras: tuple[Era, ...] = ("legacy", "modern")
        for era in eras:
            async with served.client(era) as client:
                tools = {tool.name for tool in (await client.list_tools()).tools}
                prompts = [prompt.name for prompt in (await client.list_prompts()).prompts]
                resources = [resource.uri for resource in (await client.list_resources()).resources]
                templates = [each.uri_template for each in (await client.list_resource_templates()).resource_templates]
            if mode == "static":
                assert {"beside__echo", "odd__tool_0"} <= tools
                assert any(name.startswith("beside") for name in prompts)
            assert sum("prompt_" in name for name in prompts) == len(list(malformed("prompts/list")))
            assert sum("x://" in uri for uri in resources) == len(list(malformed("resources/list")))
            assert sum("x://" in uri for uri in templates) == len(list(malformed("resources/templates/list")))


async def test_searches_for_prompts_and_resources_survive_malformed_ones(tmp_path: Path) -> None:
    async with serve(others=served_by(tmp_path)) as served, served.client() as client:
        for kind in ("prompts", "resources", "templates"):
            found = await client.call_tool("search_tools", {"query": f"{kind} 3", "kinds": [kind]})
            assert not found.is_error, found.content


def test_a_well_formed_definition_stays_as_it_is() -> None:
    tool = {
        "name": "save",
        "title": "Save",
        "description": "Save a page.",
        "inputSchema": {
            "type": "object",
            "properties": {"page": {"type": "string"}, "rest": True},
            "required": ["page"],
        },
        "outputSchema": {"type": "array"},
        "annotations": {"readOnlyHint": False, "vendor": 5},
        "icons": [{"src": "https://example.com/a.png", "sizes": ["48x48"], "theme": "dark"}],
        "execution": {"taskSupport": "optional"},
        "_meta": {"a": 1},
        "vendor": [5],
    }
    assert readable(tool) == tool
    resource = {"uri": "x://1", "name": "one", "size": 5, "annotations": {"audience": ["user"], "priority": 0.5}}
    assert readable(resource) == resource


def test_a_resource_without_a_name_is_named_by_its_uri() -> None:
    assert readable({"uri": "x://1"}) == {"uri": "x://1", "name": "x://1"}
    assert readable({"uriTemplate": "x://{a}", "name": 5}) == {"uriTemplate": "x://{a}", "name": "x://{a}"}
