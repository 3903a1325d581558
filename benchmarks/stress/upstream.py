"""A small MCP server of the standard library: `python upstream.py stdio | http [--legacy]`.

`echo` answers at once. Every call carries a unique `id`; the server counts each one, and `seen` returns the ids that
arrived more than once, so that a call that was done twice is found. With `--faults SEED` over stdio it misbehaves at
random: it exits, hangs, writes garbage, answers late, twice or with an error, and floods the client with log messages.
"""

import asyncio
import json
import os
import random
import sys
import time
from collections import Counter
from typing import Any

TOOL = {
    "name": "echo",
    "description": "Say a text back.",
    "inputSchema": {
        "type": "object",
        "properties": {"text": {"type": "string"}, "id": {"type": "string"}},
    },
}
SEEN = {"name": "seen", "description": "Ids that came more than once.", "inputSchema": {"type": "object"}}
seen: Counter[str] = Counter()


def answer(message: dict[str, Any]) -> dict[str, Any] | None:
    """Return the answer to one message, or None for a notification."""
    if "id" not in message:
        return None
    method, params = message.get("method"), message.get("params") or {}
    result: dict[str, Any]
    match method:
        case "initialize":
            info = {"name": "bench", "version": "1"}
            result = {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": info}
        case "tools/list":
            result = {"tools": [TOOL, SEEN]}
        case "tools/call" if params.get("name") == "seen":
            twice = [name for name, times in seen.items() if times > 1]
            result = {"content": [{"type": "text", "text": json.dumps([len(seen), twice])}]}
        case "tools/call":
            arguments = params.get("arguments") or {}
            note(arguments.get("id"))
            result = {"content": [{"type": "text", "text": str(arguments.get("text"))}]}
        case "ping":
            result = {}
        case _:
            error = {"code": -32601, "message": "Method not found"}
            return {"jsonrpc": "2.0", "id": message["id"], "error": error}
    return {"jsonrpc": "2.0", "id": message["id"], "result": result}


def note(call: str | None) -> None:
    """Count a call, in a file too where there is one: the process may not live to tell."""
    if call is None:
        return
    seen[call] += 1
    if path := os.environ.get("SEEN_FILE"):
        with open(path, "a") as file:
            file.write(f"{call}\n")


def life(seed: int) -> int:
    """Count how often this server was started: each life misbehaves differently, and the same with the same seed."""
    path = f"{os.environ.get('SEEN_FILE', '/dev/null')}.{seed}"
    with open(path, "a+") as file:
        file.write("x")
        return file.tell()


def over_stdio(faults: random.Random | None) -> None:
    for line in sys.stdin.buffer:
        message = json.loads(line)
        is_call = message.get("method") == "tools/call"
        if faults is not None and is_call and faults.random() < 0.02 and not misbehave(faults, message):
            continue
        reply = answer(message)
        if reply is not None:
            write(reply)


def misbehave(faults: random.Random, message: dict[str, Any]) -> bool:  # noqa: C901 - one arm for each fault
    """Do one bad thing; return whether the call is answered all the same."""
    match faults.choice(("exit", "hang", "garbage", "late", "twice", "error", "flood", "huge", "stranger")):
        case "exit":
            note(((message.get("params") or {}).get("arguments") or {}).get("id"))
            os._exit(3)
        case "hang":
            note(((message.get("params") or {}).get("arguments") or {}).get("id"))
            return False
        case "garbage":
            sys.stdout.buffer.write(b'{"jsonrpc": "2.0", \xff\xfe\n[1, 2\nnot json at all\n')
            sys.stdout.buffer.flush()
        case "late":
            time.sleep(0.05)
        case "twice":
            reply = answer(message)
            if reply is not None:
                write(reply)
                write({**reply, "result": {"content": [{"type": "text", "text": "a second answer"}]}})
            return False
        case "error":
            write({"jsonrpc": "2.0", "id": message["id"], "error": {"code": -32050, "message": "by chance"}})
            return False
        case "flood":
            for number in range(200):
                write({"jsonrpc": "2.0", "method": "notifications/message", "params": {"data": number}})
            write({"jsonrpc": "2.0", "method": "notifications/message"})
        case "huge":
            write({"jsonrpc": "2.0", "method": "notifications/message", "params": {"data": "x" * 2_000_000}})
        case "stranger":
            write({"jsonrpc": "2.0", "id": 999_999_999, "result": {}})
            write({"jsonrpc": "2.0", "id": message["id"], "method": "sampling/createMessage", "params": {}})
    return True


def write(message: dict[str, Any]) -> None:
    sys.stdout.buffer.write(json.dumps(message).encode() + b"\n")
    sys.stdout.buffer.flush()


async def over_http() -> None:
    """Serve Streamable HTTP with one JSON response a request; print the port first."""
    server = await asyncio.start_server(_connection, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


async def _connection(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while True:
            head = await reader.readuntil(b"\r\n\r\n")
            length = int(head.lower().partition(b"content-length:")[2].partition(b"\r\n")[0] or b"0")
            body = await reader.readexactly(length)
            reply = answer(json.loads(body)) if body else None
            data = json.dumps(reply).encode() if reply is not None else b""
            status = "200 OK" if reply is not None else "202 Accepted" if body else "405 No"
            writer.write(
                f"HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {len(data)}\r\n\r\n".encode()
                + data
            )
    except (asyncio.IncompleteReadError, ConnectionError):
        writer.close()


if __name__ == "__main__":
    if "http" in sys.argv:
        asyncio.run(over_http())
    else:
        seed = int(sys.argv[sys.argv.index("--faults") + 1]) if "--faults" in sys.argv else None
        over_stdio(random.Random(f"{seed}-{life(seed)}") if seed is not None else None)
