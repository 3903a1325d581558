"""The server that `benchmarks.code` times programs over: python benchmarks/code_server.py.

It speaks just enough of the protocol, without an SDK, so that ten calls at once take it hardly more time than one: what
is measured is the gateway. `quick` answers at once, `slow` after 10 ms.
"""

import asyncio
import json
import sys
from typing import Any

SLOW_SECONDS = 0.01
SCHEMA = {"type": "object", "properties": {"text": {}}}
TOOLS = [{"name": name, "description": name, "inputSchema": SCHEMA} for name in ("quick", "slow")]
ANSWERS: dict[str, dict[str, Any]] = {
    "initialize": {
        "protocolVersion": "2025-11-25",
        "capabilities": {"tools": {}},
        "serverInfo": {"name": "bench", "version": "1"},
    },
    "tools/list": {"tools": TOOLS},
    "tools/call": {"content": [{"type": "text", "text": "done"}]},
    "ping": {},
}


def answer(number: Any, method: str) -> None:
    """Write the answer to one request; an unknown method gets an error."""
    error = {"code": -32601, "message": f"Method not found: {method}"}
    body = {"result": ANSWERS[method]} if method in ANSWERS else {"error": error}
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", "id": number, **body}) + "\n")
    sys.stdout.flush()


async def serve() -> None:
    """Answer requests until stdin ends."""
    loop, reader = asyncio.get_running_loop(), asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    async for line in reader:
        message = json.loads(line)
        if "id" not in message:
            continue
        is_slow = (message.get("params") or {}).get("name") == "slow"
        if is_slow:
            loop.call_later(SLOW_SECONDS, answer, message["id"], message["method"])
        else:
            answer(message["id"], message["method"])


if __name__ == "__main__":
    asyncio.run(serve())
