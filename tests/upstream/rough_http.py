"""An MCP server over raw HTTP that does what servers and proxies do on bad days, one tool for each fault."""

import asyncio
import gzip
import json
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Literal

OBJECT = {"type": "object", "properties": {}}
TOOLS = ("echo", "wait", "drop", "hang", "bomb", "shout", "interim", "unavailable", "wrong", "fail")


JSON = b"HTTP/1.1 200 X\r\nContent-Type: application/json\r\n"
EVENTS = b"HTTP/1.1 200 X\r\nContent-Type: text/event-stream\r\n\r\n"
CHUNKED = JSON + b"Transfer-Encoding: chunked\r\n\r\n"
STRAY = b'data: {"jsonrpc":"2.0","id":"never asked","result":{}}\n\n'
HOSTILE: dict[str, tuple[bytes, bytes]] = {
    "comments for ever": (EVENTS, b": still here\n\n" * 1_000),
    "answers that nobody asked for": (EVENTS, STRAY * 100),
    "an event without end": (EVENTS + b"data: ", b"x" * 10_000),
    "an event of lines": (EVENTS, b"id: 1\n" * 1_000),
    "a body without end": (CHUNKED, b"400\r\n" + b" " * 1_024 + b"\r\n"),
    "chunks of a byte": (CHUNKED, b"1\r\n \r\n" * 1_000),
    "a chunk whose head has no end": (CHUNKED + b"1;", b"a" * 10_000),
    "trailers for ever": (CHUNKED + b"0\r\n", b"a: b\r\n" * 1_000),
    "headers for ever": (JSON, b"X-Some: thing\r\n" * 1_000),
    "a header without end": (JSON + b"X: ", b"y" * 10_000),
    "a status without end": (b"HTTP/1.1 200 ", b"y" * 10_000),
    "no HTTP": (b"\x00\xff\x00" * 100 + b"\r\n\r\n", b""),
    "too little": (JSON + b"Content-Length: 100\r\n\r\n{}", b""),
    "a negative length": (JSON + b"Content-Length: -5\r\n\r\n{}", b""),
    "two lengths": (JSON + b"Content-Length: 2\r\nContent-Length: 9\r\n\r\n{}       ", b""),
    "a length of many digits": (JSON + b"Content-Length: " + b"9" * 5_000 + b"\r\n\r\n{}", b""),
    "another host": (b"HTTP/1.1 307 X\r\nLocation: http://169.254.169.254/\r\nContent-Length: 0\r\n\r\n", b""),
    "a file": (b"HTTP/1.1 307 X\r\nLocation: file:///etc/passwd\r\nContent-Length: 0\r\n\r\n", b""),
    "no URL": (b"HTTP/1.1 307 X\r\nLocation: http://[::bad/\r\nContent-Length: 0\r\n\r\n", b""),
    "a URL of any length": (
        b"HTTP/1.1 307 X\r\nLocation: http://x/" + b"a" * 90_000 + b"\r\nContent-Length: 0\r\n\r\n",
        b"",
    ),
    "an encoding of its own": (JSON + b"Content-Encoding: zstd\r\nContent-Length: 4\r\n\r\n\x28\xb5\x2f\xfd", b""),
    "come back in a million years": (
        b"HTTP/1.1 503 X\r\nRetry-After: 99999999999999\r\nContent-Length: 0\r\n\r\n",
        b"",
    ),
    "too deep": (JSON + b"Content-Length: 200000\r\n\r\n" + b"[" * 200_000, b""),
    "a number of many digits": (JSON + b"Content-Length: 100000\r\n\r\n" + b"9" * 100_000, b""),
}
"""What is sent instead of an answer, and what is sent after it until the client leaves."""


class RoughServer:
    """Counts every call that it received; `release` ends the calls of `wait`; `follows` is sent after each response."""

    def __init__(self, era: Literal["legacy", "modern"]) -> None:
        self.era = era
        self.port = 0
        self.received: Counter[str] = Counter()
        self.waiting = 0
        self.release = asyncio.Event()
        self.closes_after_answers = False
        self.answers_cancelled = True
        self.hangs = False
        self.follows = b""
        self._writers: set[asyncio.StreamWriter] = set()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/mcp"

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        try:
            while head := (await reader.readuntil(b"\r\n\r\n")).decode("latin-1"):
                fields = dict(line.lower().split(": ", 1) for line in head.split("\r\n")[1:] if ": " in line)
                body = await reader.readexactly(int(fields.get("content-length", "0")))
                if not await self._answer(head.split(" ", 1)[0], body, writer):
                    return
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            self._writers.discard(writer)
            writer.close()

    def close(self) -> None:
        for writer in self._writers:
            writer.close()

    async def _answer(self, verb: str, body: bytes, writer: asyncio.StreamWriter) -> bool:
        if verb != "POST":
            return _write(writer, 405, b"")
        message = json.loads(body)
        method = message.get("method")
        if method == "notifications/cancelled" and not self.answers_cancelled:
            await asyncio.sleep(3600)
        if "id" not in message:
            return _write(writer, 202, b"", follows=self.follows)
        if method == "tools/call" and message["params"]["name"] in HOSTILE:
            return await self._harm(message["params"]["name"], writer)
        if method == "tools/call":
            return await self._call(message, writer)
        if self.hangs:
            await asyncio.sleep(3600)
        return self._write_answer(writer, message, self._other(method))

    def _other(self, method: str) -> dict[str, Any] | None:
        match method:
            case "server/discover" if self.era == "modern":
                return {"supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}}
            case "initialize":
                info = {"name": "rough", "version": "1"}
                return {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": info}
            case "tools/list":
                return {"tools": [{"name": name, "inputSchema": OBJECT} for name in TOOLS]}
            case "ping":
                return {}
            case _:
                return None

    async def _harm(self, name: str, writer: asyncio.StreamWriter) -> bool:
        self.received[name] += 1
        first, more = HOSTILE[name]
        writer.write(first)
        while more:
            writer.write(more)
            await writer.drain()
        return False

    async def _call(self, message: dict[str, Any], writer: asyncio.StreamWriter) -> bool:
        name, arguments = message["params"]["name"], message["params"].get("arguments", {})
        self.received[name] += 1
        match name:
            case "wait":
                self.waiting += 1
                await self.release.wait()
            case "drop":
                return False
            case "hang":
                await asyncio.sleep(3600)
            case "bomb":
                return _write(writer, 200, gzip.compress(b" " * 50_000_000), "Content-Encoding: gzip\r\n")
            case "shout":
                return _write(writer, 200, b" " * 3_000_000, kind="Application/JSON")
            case "interim":
                writer.write(b"HTTP/1.1 100 Continue\r\n\r\n" * arguments["times"])
            case "unavailable":
                return _write(writer, 503, b"try later", kind="text/plain")
            case "wrong" | "mixed up" | "mixed up events" | "backwards":
                return _write(writer, 200, *_confused(name, message["id"]))
        text = {"content": [{"type": "text", "text": json.dumps(arguments)}]}
        return self._write_answer(writer, message, {**text, "isError": name == "fail"})

    def _write_answer(self, writer: asyncio.StreamWriter, message: Any, result: dict[str, Any] | None) -> bool:
        answer: dict[str, Any] = {"jsonrpc": "2.0", "id": message["id"]}
        if result is None:
            answer["error"] = {"code": -32601, "message": "Method not found"}
        else:
            answer["result"] = result
        _write(writer, 200, json.dumps(answer).encode(), follows=self.follows)
        return not self.closes_after_answers


def _write(
    writer: asyncio.StreamWriter,
    status: int,
    body: bytes,
    more: str = "",
    kind: str = "application/json",
    *,
    follows: bytes = b"",
) -> bool:
    head = f"HTTP/1.1 {status} X\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n{more}\r\n"
    writer.write(head.encode() + body + follows)
    return True


def _confused(name: str, own: int) -> tuple[bytes, str, str]:
    """Return a body that does not answer the request, or does so last, with what `_write` wants to know of it."""
    others = [{"jsonrpc": "2.0", "id": each, "result": {"by": str(each)}} for each in (987_654, "x")]
    bodies = {
        "wrong": "{not json",
        "mixed up": json.dumps(others[0]),
        "backwards": json.dumps({"jsonrpc": "2.0", "id": own, "method": "roots/list"}),
    }
    if name in bodies:
        return bodies[name].encode(), "", "application/json"
    answers = [*others, {"jsonrpc": "2.0", "id": str(own), "result": {"by": "itself"}}]
    return "".join(f"data: {json.dumps(each)}\n\n" for each in answers).encode(), "", "text/event-stream"


@asynccontextmanager
async def rough_server(era: Literal["legacy", "modern"] = "modern", port: int = 0) -> AsyncIterator[RoughServer]:
    rough = RoughServer(era)
    server = await asyncio.start_server(rough.serve, "127.0.0.1", port)
    rough.port = server.sockets[0].getsockname()[1]
    try:
        yield rough
    finally:
        server.close()
        rough.close()
        await server.wait_closed()
