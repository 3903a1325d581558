"""Stub servers made from a catalog file: they list its tools and answer every call the same way."""

from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import uvicorn
from mcp.server import Server
from mcp_types import CallToolRequestParams, CallToolResult, ListToolsResult, TextContent, Tool
from starlette.applications import Starlette
from starlette.routing import Mount

from shortlist import models
from shortlist.catalog.readers import read_catalog
from shortlist.disclosure.render import bound_definition
from shortlist.errors import InvalidInput

HOST = "127.0.0.1"


def stub_server(name: str, tools: Sequence[Tool]) -> Server[Any]:
    """Return a server that lists these tools and does nothing."""

    async def listed(*_: Any) -> ListToolsResult:
        return ListToolsResult(tools=list(tools))

    async def called(_: Any, params: CallToolRequestParams) -> CallToolResult:
        return CallToolResult(content=[TextContent(text=f"{params.name}: done")])

    return Server(name, version="1", on_list_tools=listed, on_call_tool=called)


@asynccontextmanager
async def stubs(catalog: Path) -> AsyncIterator[dict[str, Any]]:
    """Serve a catalog's servers on a free local port; yields their configuration."""
    servers = _servers(catalog)
    config = uvicorn.Config(_app(servers), host=HOST, port=0, log_level="warning", timeout_graceful_shutdown=1)
    socket = config.bind_socket()
    socket.listen()  # connections before the server runs wait for it
    base = f"http://{HOST}:{socket.getsockname()[1]}"
    web = _Quiet(config)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(partial(web.serve, sockets=[socket]))
        try:
            yield {"mcpServers": {name: {"type": "http", "url": f"{base}/{name}/mcp"} for name in servers}}
        finally:
            web.should_exit = True


def _app(servers: Mapping[str, Server[Any]]) -> Starlette:
    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        async with AsyncExitStack() as stack:
            for server in servers.values():
                await stack.enter_async_context(server.session_manager.run())
            yield

    mounts = [Mount(f"/{name}", app=server.streamable_http_app()) for name, server in servers.items()]
    return Starlette(routes=mounts, lifespan=lifespan)


class _Quiet(uvicorn.Server):
    """Leaves signals to the program that it runs in."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def _servers(path: Path) -> dict[str, Server[Any]]:
    catalog = read_catalog(path).catalog
    if not len(catalog):
        raise InvalidInput(f"{path} contains no tools.")
    return {
        name: stub_server(name, [_listed(tool) for tool in catalog.of_server(name)])
        for name in catalog.servers
        if catalog.members.get(name)
    }


def _listed(tool: models.Tool) -> Tool:
    labels = {"category": tool.category, "tags": list(tool.tags)}
    return Tool.model_validate({**bound_definition(tool, tool.name), "_meta": labels})
