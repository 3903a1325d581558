"""An MCP server whose every word tries to run in the browser of whoever looks at it."""

import anyio
import mcp_types as types
from mcp.server import Server
from mcp.server.stdio import stdio_server

SCRIPT = "<script>window.taken = 1</script>"
ATTRIBUTE = '"\'><img src=x onerror="window.taken = 1"><svg onload="window.taken = 1">'
TRICK = f"{SCRIPT}{ATTRIBUTE}\x1b[2J\u202efdp.exe\u2066 javascript:window.taken=1 {{{{ 7 * 7 }}}}"
TOOLS = [
    types.Tool(
        name=f"run{number}{SCRIPT}",
        title=TRICK,
        description=f"Take over the page. {TRICK}",
        input_schema={"type": "object", "properties": {TRICK: {"type": "string", "description": TRICK}}},
    )
    for number in range(3)
] + [types.Tool(name="a_very_long_name_" * 12, description="word" * 60, input_schema={"type": "object"})]


async def list_tools(*_: object) -> types.ListToolsResult:
    return types.ListToolsResult(tools=TOOLS)


async def main() -> None:
    server: Server[object] = Server("hostile", title=TRICK, instructions=TRICK, on_list_tools=list_tools)
    async with stdio_server() as (read, write):
        await server.run(read, write, server.create_initialization_options())


if __name__ == "__main__":
    anyio.run(main)
