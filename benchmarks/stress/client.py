"""A raw-socket MCP client: requests are bytes made beforehand, responses are read to their end and no further."""

import asyncio
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

Era: TypeAlias = Literal["legacy", "modern"]
VERSION = {"legacy": "2025-06-18", "modern": "2026-07-28"}
ENVELOPE = {
    "io.modelcontextprotocol/protocolVersion": VERSION["modern"],
    "io.modelcontextprotocol/clientInfo": {"name": "load", "version": "1"},
    "io.modelcontextprotocol/clientCapabilities": {},
}


class Refused(Exception):
    """The server answered with an HTTP error."""


@dataclass(slots=True)
class RawClient:
    """One connection; one request at a time."""

    port: int
    era: Era
    path: str = "/mcp"
    session: str = ""
    _reader: asyncio.StreamReader | None = None
    _writer: asyncio.StreamWriter | None = None
    _next: int = field(default=0)

    async def open(self) -> None:
        """Connect, and in the legacy era shake hands."""
        await self._connect()
        if self.era == "modern":
            return
        info = {"name": "load", "version": "1"}
        params = {"protocolVersion": VERSION["legacy"], "capabilities": {}, "clientInfo": info}
        await self.request("initialize", params)
        await self.send("notifications/initialized", {}, notification=True)
        await self._response()

    async def _connect(self) -> None:
        self._reader, self._writer = await asyncio.open_connection("127.0.0.1", self.port, limit=64 * 1024 * 1024)

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()
            self._writer = None

    async def end(self) -> None:
        """End a legacy session at the server, then the connection."""
        if self.session and self._writer is not None:
            self._writer.write(self._head("DELETE", {}, 0))
            await self._response()
        self.close()

    async def listen(self) -> None:
        """Open the event stream of a legacy session; the connection serves nothing else from then on."""
        await self._connect()
        if self._writer is None or self._reader is None:
            raise ConnectionError("not connected")
        self._writer.write(self._head("GET", {}, 0))
        head = await self._reader.readuntil(b"\r\n\r\n")
        if b" 200 " not in head:
            raise Refused(f"no event stream: {head[:200]!r}")

    async def call(self, name: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Call a tool and return the JSON-RPC answer; reconnect first where the connection is gone."""
        return await self.request("tools/call", {"name": name, "arguments": dict(arguments)})

    async def request(self, method: str, params: Mapping[str, Any]) -> dict[str, Any]:
        if self._writer is None:
            await self._connect()
        try:
            number = await self.send(method, params)
            return await self._answer(number)
        except BaseException:
            self.close()  # whatever comes next on it belongs to this request
            raise

    async def send(self, method: str, params: Mapping[str, Any], *, notification: bool = False) -> int:
        self._next += 1
        message: dict[str, Any] = {"jsonrpc": "2.0", "method": method, "params": dict(params)}
        if not notification:
            message["id"] = self._next
        if self.era == "modern":
            message["params"]["_meta"] = ENVELOPE
        more = {"Mcp-Method": method} if self.era == "modern" else {}
        if self.era == "modern" and "name" in params:
            more["Mcp-Name"] = str(params["name"])
        body = json.dumps(message).encode()
        if self._writer is None:
            raise ConnectionError("not connected")
        self._writer.write(self._head("POST", more, len(body), handshake=method == "initialize") + body)
        return self._next

    def _head(self, verb: str, more: Mapping[str, str], length: int, *, handshake: bool = False) -> bytes:
        lines = [
            f"{verb} {self.path} HTTP/1.1",
            f"Host: 127.0.0.1:{self.port}",
            "Accept: application/json, text/event-stream",
            "Content-Type: application/json",
            f"Content-Length: {length}",
            *(f"{name}: {value}" for name, value in more.items()),
        ]
        if not handshake:
            lines.append(f"MCP-Protocol-Version: {VERSION[self.era]}")
        if self.session:
            lines.append(f"Mcp-Session-Id: {self.session}")
        return ("\r\n".join(lines) + "\r\n\r\n").encode()

    async def _answer(self, number: int) -> dict[str, Any]:
        status, body = await self._response()
        for line in body.splitlines():
            data = line.removeprefix(b"data:").strip()
            if not data.startswith(b"{"):
                continue
            message: dict[str, Any] = json.loads(data)
            if message.get("id") == number and ("result" in message or "error" in message):
                return message
        if status >= 400:
            raise Refused(f"HTTP {status}: {body[:200]!r}")
        raise ConnectionError(f"no answer to request {number}: {body[:200]!r}")

    async def _response(self) -> tuple[int, bytes]:
        if self._reader is None:
            raise ConnectionError("not connected")
        head = await self._reader.readuntil(b"\r\n\r\n")
        lowered = head.lower()
        status = int(head.split(b" ", 2)[1])
        if b"mcp-session-id:" in lowered and not self.session:
            start = lowered.index(b"mcp-session-id:") + len(b"mcp-session-id:")
            self.session = head[start:].partition(b"\r\n")[0].strip().decode()
        if b"transfer-encoding: chunked" in lowered:
            return status, await self._chunks()
        length = int(lowered.partition(b"content-length:")[2].partition(b"\r\n")[0] or b"0")
        body = await self._reader.readexactly(length) if length else b""
        if b"connection: close" in lowered:
            self.close()
        return status, body

    async def _chunks(self) -> bytes:
        if self._reader is None:
            raise ConnectionError("not connected")
        parts = []
        while size := int((await self._reader.readuntil(b"\r\n")).strip() or b"0", 16):
            parts.append(await self._reader.readexactly(size))
            await self._reader.readexactly(2)
        await self._reader.readexactly(2)
        return b"".join(parts)
