"""A small MCP server of the standard library: `python upstream.py stdio | http [--faults SEED]`.

`echo` answers at once. Every call carries a unique `id` that begins with the name of its server; with SEEN_FILE the
server writes down each id that it receives, with its own name, so that calls that were done twice or by another server
are found. With `--faults SEED` it misbehaves in two calls of a hundred: over stdio it exits, hangs, writes garbage,
answers late, twice or with an error, and floods the client with log messages; over HTTP it closes connections,
truncates and compresses bodies, and answers with the wrong status, type or content. The seed and the id of a call
decide its fault, so that the same calls meet the same faults in every run, whatever their order.
"""

import asyncio
import gzip
import json
import os
import random
import sys
import time
from typing import Any

FAULTS = {
    "stdio": ("exit", "hang", "garbage", "late", "twice", "error", "flood", "huge", "stranger"),
    "http": ("silence", "status", "truncated", "garbage", "late", "bomb", "html", "twice", "hang"),
}
FAULTY_SHARE = 0.02
TOOL = {
    "name": "echo",
    "description": "Say a text back.",
    "inputSchema": {
        "type": "object",
        "properties": {"text": {"type": "string"}, "id": {"type": "string"}},
    },
}


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
            more = [{**TOOL, "name": f"echo_{number}"} for number in range(int(os.environ.get("MORE_TOOLS", "0")))]
            result = {"tools": [TOOL, *more]}
        case "tools/call":
            arguments = params.get("arguments") or {}
            note(message)
            result = {"content": [{"type": "text", "text": str(arguments.get("text"))}]}
        case "ping":
            result = {}
        case _:
            error = {"code": -32601, "message": "Method not found"}
            return {"jsonrpc": "2.0", "id": message["id"], "error": error}
    return {"jsonrpc": "2.0", "id": message["id"], "result": result}


def note(message: dict[str, Any]) -> None:
    """Write a call down, before anything else is done with it: the process may not live to tell."""
    call = call_id(message)
    if call and (path := os.environ.get("SEEN_FILE")):
        with open(path, "a") as file:
            file.write(f"{os.environ.get('SERVER_NAME')} {call}\n")


def call_id(message: dict[str, Any]) -> str:
    """Return the unique id of a call; empty for every other message."""
    return str(((message.get("params") or {}).get("arguments") or {}).get("id") or "")


def fault_of(seed: int | None, call: str, kind: str) -> tuple[str, random.Random]:
    """Return the fault that a call meets, empty for most, and the dice for its details."""
    dice = random.Random(f"{seed}-{call}")
    is_faulty = seed is not None and call and dice.random() < FAULTY_SHARE
    return (dice.choice(FAULTS[kind]) if is_faulty else ""), dice


def over_stdio(seed: int | None) -> None:
    for line in sys.stdin.buffer:
        message = json.loads(line)
        fault, _ = fault_of(seed, call_id(message), "stdio")
        if fault and not misbehave(fault, message):
            continue
        reply = answer(message)
        if reply is not None:
            write(reply)


def misbehave(fault: str, message: dict[str, Any]) -> bool:  # noqa: C901 - one arm for each fault
    """Do one bad thing; return whether the call is answered all the same."""
    match fault:
        case "exit":
            note(message)
            os._exit(3)
        case "hang":
            note(message)
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


async def over_http(seed: int | None) -> None:
    """Serve Streamable HTTP with one JSON response a request; print the port first."""
    server = await asyncio.start_server(lambda reader, writer: _connection(reader, writer, seed), "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


async def _connection(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, seed: int | None) -> None:
    try:
        while True:
            head = await reader.readuntil(b"\r\n\r\n")
            length = int(head.lower().partition(b"content-length:")[2].partition(b"\r\n")[0] or b"0")
            body = await reader.readexactly(length)
            message = json.loads(body) if body else {}
            reply = answer(message) if body else None
            data = json.dumps(reply).encode() if reply is not None else b""
            status = "200 OK" if reply is not None else "202 Accepted" if body else "405 No"
            fault, dice = fault_of(seed, call_id(message), "http")
            if fault:
                writer.write(await misbehave_over_http(fault, dice, data))
                if dice.random() < 0.5:
                    raise ConnectionError("by chance")
                continue
            writer.write(http_response(status, data))
    except (asyncio.IncompleteReadError, ConnectionError):
        writer.close()


def http_response(status: str, data: bytes, kind: str = "application/json", more: str = "") -> bytes:
    head = f"HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {len(data)}\r\n{more}\r\n"
    return head.encode() + data


async def misbehave_over_http(fault: str, dice: random.Random, data: bytes) -> bytes:  # noqa: PLR0911 - one arm each
    """Return what is written instead of the answer to a call that was done."""
    match fault:
        case "silence":
            raise ConnectionError("by chance")
        case "status":
            return http_response(dice.choice(("500 Error", "503 Busy", "404 Gone", "302 Elsewhere")), b"<p>no</p>")
        case "truncated":
            return http_response("200 OK", data)[: -len(data) // 2]
        case "garbage":
            return http_response("200 OK", b'{"jsonrpc": \xff\xfe')
        case "late":
            await asyncio.sleep(0.05)
        case "bomb":
            bomb = gzip.compress(b" " * 20_000_000)
            return http_response("200 OK", bomb, more="Content-Encoding: gzip\r\n")
        case "html":
            return http_response("200 OK", data, kind="text/html")
        case "twice":
            event = b"event: message\ndata: " + data + b"\n\n"
            return http_response("200 OK", event * 2, kind="text/event-stream")
        case "hang":
            await asyncio.sleep(10)
    return http_response("200 OK", data)


if __name__ == "__main__":
    seed = int(sys.argv[sys.argv.index("--faults") + 1]) if "--faults" in sys.argv else None
    if "http" in sys.argv:
        asyncio.run(over_http(seed))
    else:
        over_stdio(seed)
