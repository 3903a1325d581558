"""The bundled demo catalog as real MCP servers: `python -m shortlist.demo.server NAME`, or all over HTTP.

The gateway mounts each of them in its own process over memory streams, so that trying it needs nothing else.
"""

import argparse
import contextlib
import json
from collections.abc import AsyncIterator, Mapping
from functools import cache, partial
from typing import Any

import anyio
from mcp import MCPError
from mcp.server import Server
from mcp.server.stdio import stdio_server
from mcp_types import INVALID_PARAMS, CallToolRequestParams, CallToolResult, ListToolsResult, TextContent, Tool

from shortlist.catalog.readers import tool_from_mcp
from shortlist.config.settings import MemoryTransport, ServerSettings, ToolOverride
from shortlist.demo import CATALOG
from shortlist.demo.world import Act, NotThere, World, shaped
from shortlist.errors import InvalidInput
from shortlist.models import Json

META_KEY = "shortlist/demo"


@cache
def demo_names() -> tuple[str, ...]:
    """Name every bundled server, in order."""
    return tuple(sorted(entry.name.removesuffix(".json") for entry in CATALOG.iterdir() if _is_catalog(entry.name)))


@cache
def demo_settings() -> Mapping[str, ServerSettings]:
    """Return every bundled server as an upstream inside this process."""
    return {name: _settings(name) for name in demo_names()}


def build_server(name: str) -> Server[Any]:
    """Make a fresh server with a world of its own."""
    content = _content(name)
    about = content["server"]
    tools = _Tools(content["tools"])
    return Server(
        name,
        version="1",
        title=about.get("title"),
        description=about.get("description"),
        instructions=about.get("description"),
        on_list_tools=tools.listed,
        on_call_tool=tools.called,
    )


class _Tools:
    """The tools of one server, answering from one world."""

    def __init__(self, definitions: list[dict[str, Json]]) -> None:
        self._listing = ListToolsResult(tools=[Tool.model_validate(definition) for definition in definitions])
        self._by_name = {definition["name"]: definition for definition in definitions}
        self._world = World()

    async def listed(self, *_: Any) -> ListToolsResult:
        return self._listing

    async def called(self, _: Any, params: CallToolRequestParams) -> CallToolResult:
        definition = self._by_name.get(params.name)
        if definition is None:
            raise MCPError(INVALID_PARAMS, f"Unknown tool: {params.name}")
        arguments = params.arguments or {}
        mistake = _mistake(definition["inputSchema"], arguments)
        if mistake is not None:
            return _refusal(f"{params.name} was not run: {mistake}")
        try:
            answer = self._world.perform(_act(definition), arguments)
        except NotThere as error:
            return _refusal(f"{params.name}: {error}")
        return _success(answer, definition.get("outputSchema"))


def _act(definition: Mapping[str, Json]) -> Act:
    meta = definition.get("_meta", {}).get(META_KEY, {})
    return Act(meta.get("action", "compute"), meta.get("entity", "thing"), meta.get("key"))


def _mistake(schema: Mapping[str, Json], arguments: Mapping[str, Json]) -> str | None:
    # Loaded at the first call: the gateway starts without it.
    from jsonschema import Draft202012Validator  # noqa: PLC0415

    error = next(iter(Draft202012Validator(schema).iter_errors(arguments)), None)
    return f"{error.json_path}: {error.message}" if error is not None else None


def _success(answer: dict[str, Json], schema: Mapping[str, Json] | None) -> CallToolResult:
    structured = shaped(answer, schema) if schema is not None else None
    text = json.dumps(answer if structured is None else structured, ensure_ascii=False)
    return CallToolResult(content=[TextContent(text=text)], structured_content=structured)


def _refusal(reason: str) -> CallToolResult:
    return CallToolResult(content=[TextContent(text=reason)], is_error=True)


def _settings(name: str) -> ServerSettings:
    """Return the settings of a server. Its definitions are our own: their labels and what they say of reading count."""
    about, tools = _content(name)["server"], [tool_from_mcp(tool) for tool in _content(name)["tools"]]
    return ServerSettings(
        name=name,
        transport=MemoryTransport(build=partial(build_server, name)),
        title=about.get("title", ""),
        description=about.get("description", ""),
        categories=tuple(about.get("categories", ())),
        tags=tuple(about.get("tags", ())),
        tools={
            tool.name: ToolOverride(keywords=tool.keywords, effect="read_only" if tool.annotations.read_only else None)
            for tool in tools
            if tool.keywords or tool.annotations.read_only
        },
    )


@cache
def _content(name: str) -> dict[str, Json]:
    if name not in demo_names():
        raise InvalidInput(f"There is no demo server {name!r}; there are {', '.join(demo_names())}.")
    content: dict[str, Json] = json.loads((CATALOG / f"{name}.json").read_text("utf-8"))
    return content


def _is_catalog(name: str) -> bool:
    return name.endswith(".json")


async def serve_stdio(name: str) -> None:
    """Speak MCP as one demo server on stdin and stdout."""
    server = build_server(name)
    async with stdio_server() as (read, write):
        await server.run(read, write, server.create_initialization_options())


def http_app() -> Any:
    """Return all demo servers as one ASGI application, each at /NAME/mcp."""
    # Only this way of serving needs a web framework.
    from starlette.applications import Starlette  # noqa: PLC0415
    from starlette.routing import Mount  # noqa: PLC0415

    servers = {name: build_server(name) for name in demo_names()}
    mounts = [Mount(f"/{name}", app=server.streamable_http_app()) for name, server in servers.items()]

    @contextlib.asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        async with contextlib.AsyncExitStack() as stack:
            for server in servers.values():
                await stack.enter_async_context(server.session_manager.run())
            yield

    return Starlette(routes=mounts, lifespan=lifespan)


def _serve_http(address: str) -> None:
    import uvicorn  # noqa: PLC0415

    host, _, port = address.rpartition(":")
    uvicorn.run(http_app(), host=host or "127.0.0.1", port=int(port), log_level="warning")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m shortlist.demo.server", description=__doc__)
    which = parser.add_mutually_exclusive_group(required=True)
    which.add_argument("name", nargs="?", choices=demo_names(), help="serve this one on stdio")
    which.add_argument("--http", metavar="HOST:PORT", help="serve all of them, each at /NAME/mcp")
    arguments = parser.parse_args()
    if arguments.http:
        _serve_http(arguments.http)
    else:
        anyio.run(serve_stdio, arguments.name)


if __name__ == "__main__":
    main()
