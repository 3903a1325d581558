"""The processes that `benchmarks.gateway` starts: a server with many tools, and FastMCP in front of it.

    python benchmarks/gateway_programs.py server TOOLS.json
    python benchmarks/gateway_programs.py fastmcp|fastmcp-search PYTHON TOOLS.json

TOOLS.json holds tool definitions; `echo` comes on top. FastMCP runs in the Python of its own environment and starts
the server with the other one.
"""

import json
import sys
from pathlib import Path
from typing import Any

ECHO = {
    "name": "echo",
    "description": "Say a text back.",
    "inputSchema": {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]},
}


def server(tools: str) -> None:
    """Serve the tools over stdio; each says its text back."""
    import anyio
    import mcp_types as types
    from mcp.server import Server
    from mcp.server.stdio import stdio_server

    listed = types.ListToolsResult.model_validate({"tools": [ECHO, *json.loads(Path(tools).read_text("utf-8"))]})

    async def list_tools(*_: Any) -> types.ListToolsResult:
        return listed

    async def call_tool(_: Any, params: types.CallToolRequestParams) -> types.CallToolResult:
        text = str((params.arguments or {}).get("text"))
        return types.CallToolResult(content=[types.TextContent(type="text", text=text)])

    async def run() -> None:
        served = Server("bench", on_list_tools=list_tools, on_call_tool=call_tool)
        async with stdio_server() as (read, write):
            await served.run(read, write, served.create_initialization_options())

    anyio.run(run)


def fastmcp(python: str, tools: str, *, search: bool = False) -> None:
    """Serve a mounted proxy of the server over stdio, with FastMCP's search in place of the list if asked for."""
    import logging

    from fastmcp import FastMCP
    from fastmcp.client.transports import StdioTransport
    from fastmcp.server import create_proxy

    logging.disable(logging.WARNING)
    front: Any = FastMCP("front")
    behind = StdioTransport(command=python, args=[__file__, "server", tools], keep_alive=True)
    front.mount(create_proxy(behind), namespace="bench")
    if search:
        from fastmcp.server.transforms.search import BM25SearchTransform

        front.add_transform(BM25SearchTransform())
    front.run(transport="stdio", show_banner=False)


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["server", tools]:
            server(tools)
        case ["fastmcp", python, tools]:
            fastmcp(python, tools)
        case ["fastmcp-search", python, tools]:
            fastmcp(python, tools, search=True)
        case _:
            sys.exit(__doc__)
