"""An MCP server on stdio whose tools go right and wrong in every way that is counted apart."""

import json
from typing import Any

import anyio
import mcp_types as types
from mcp import MCPError
from mcp.server import Server
from mcp.server.stdio import stdio_server

TEXT = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}
NOTHING: dict[str, Any] = {"type": "object"}
TOOLS = {
    "show_meta": ("Show the metadata that came with this call.", NOTHING),
    "say_back": ("Say a text back to the user.", TEXT),
    "go_wrong": ("Answer with an error of the tool itself.", NOTHING),
    "refuse": ("Answer with an error of the protocol.", NOTHING),
}


async def list_tools(*_: Any) -> types.ListToolsResult:
    tools = [types.Tool(name=n, description=d, input_schema=s) for n, (d, s) in TOOLS.items()]
    return types.ListToolsResult(tools=tools)


async def call_tool(context: Any, params: types.CallToolRequestParams) -> types.CallToolResult:
    if params.name == "refuse":
        raise MCPError(-32050, "Refused on purpose")
    if params.name == "show_meta":
        return text(json.dumps(dict(context.meta or {})))
    return text(str((params.arguments or {}).get("text")), is_error=params.name == "go_wrong")


def text(words: str, *, is_error: bool = False) -> types.CallToolResult:
    return types.CallToolResult(content=[types.TextContent(text=words)], is_error=is_error)


async def main() -> None:
    server: Server[Any] = Server("fixture", on_list_tools=list_tools, on_call_tool=call_tool)
    async with stdio_server() as (read, write):
        await server.run(read, write, server.create_initialization_options())


if __name__ == "__main__":
    anyio.run(main)
