"""Fuzzes a running gateway: damaged HTTP requests and JSON-RPC bodies over sockets, damaged lines over stdio."""

import json
import random
import socket
import subprocess
import sys
from collections import Counter
from time import monotonic

from benchmarks.stress.processes import Gateway, gateway, stdio_server, usage
from hypothesis import HealthCheck, Phase, given, seed, settings

from tests.fuzz.mutation import Mutator
from tests.fuzz.shapes import MESSAGES

VERSIONS = ("2025-06-18", "2025-11-25", "2026-07-28", "1", "")
ANSWER_SECONDS = 30.0
GROWTH_BYTES = 150_000_000
"""Caches and kept results fill up; more than this is a leak."""


def messages(count: int, number: int) -> list[bytes]:
    """Return so many message bodies: a part drawn by hypothesis, the rest varied from it."""
    drawn: list[bytes] = []
    mutator = Mutator(number)
    variants = min(49, count - 1)

    @seed(number)
    @settings(
        max_examples=max(count // (variants + 1), 1),
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(MESSAGES)
    def draw(message: object) -> None:
        mutator.learn(message)
        for _ in range(variants + 1):
            drawn.append(json.dumps(message, default=str).encode("utf-8", "surrogatepass"))
            message = mutator.vary(message)

    draw()
    return drawn


def requests(body: bytes, dice: random.Random, session: str) -> bytes:
    """Wrap a body in a request that is right, or wrong in one place."""
    verb = dice.choice(("POST", "POST", "POST", "POST", "GET", "DELETE", "PUT", "BREW"))
    path = dice.choice(
        ("/mcp", "/mcp", "/mcp", "/mcp/w/abc", "/healthz", "/metrics", "/%2e%2e/", "/mcp/w/" + "x" * 500)
    )
    length = len(body) if dice.random() < 0.95 else dice.choice((0, len(body) // 2))
    lines = [f"{verb} {path} HTTP/1.1", "Host: 127.0.0.1", f"Content-Length: {length}"]
    if dice.random() < 0.95:
        lines += ["Content-Type: application/json", "Accept: application/json, text/event-stream"]
    if dice.random() < 0.9:
        lines.append(f"MCP-Protocol-Version: {dice.choice(VERSIONS)}")
    if dice.random() < 0.3:
        lines += [f"Mcp-Method: {dice.choice(('tools/call', 'tools/list', 'x'))}", "Mcp-Name: call_tool"]
    if dice.random() < 0.4:
        lines.append(f"Mcp-Session-Id: {session if dice.random() < 0.8 else 'nobody'}")
    if dice.random() < 0.05:
        lines.append("X-Long: " + "y" * 9_000)
    head = ("\r\n".join(lines) + "\r\n\r\n").encode()
    if dice.random() < 0.05:
        place = dice.randrange(len(head))
        head = head[:place] + bytes([dice.randrange(256)]) + head[place + 1 :]
    return head + body


def over_http(count: int, number: int) -> Counter[str]:
    """Send so many requests to a gateway; return how they ended."""
    dice, outcomes = random.Random(number), Counter[str]()
    with gateway({"bench": stdio_server()}, {"limits": {"request_seconds": 0.5, "connections": 500}}) as running:
        session = _session(running)
        before = usage(running.pid)
        for batch in range(max(count // 500, 1)):
            for body in messages(min(count, 500), number + batch):
                outcomes[_send(running, requests(body, dice, session))] += 1
            if "ok" not in running.get("/healthz"):
                raise AssertionError("the gateway does not answer /healthz")
        after = usage(running.pid)
        if after.memory_bytes - before.memory_bytes > GROWTH_BYTES:
            raise AssertionError(f"memory grew by {(after.memory_bytes - before.memory_bytes) / 1e6:.0f} MB")
    return outcomes


def _session(running: Gateway) -> str:
    info = {"name": "fuzz", "version": "1"}
    params = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": info}
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params}).encode()
    head = "POST /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
    head += f"Accept: application/json, text/event-stream\r\nContent-Length: {len(body)}\r\n\r\n"
    with socket.create_connection(("127.0.0.1", running.port), timeout=ANSWER_SECONDS) as connection:
        connection.sendall(head.encode() + body)
        answer = connection.recv(65_536).decode("latin-1").lower()
    return answer.partition("mcp-session-id: ")[2].partition("\r\n")[0]


def _send(running: Gateway, data: bytes) -> str:
    try:
        with socket.create_connection(("127.0.0.1", running.port), timeout=2.0) as connection:
            connection.sendall(data)
            answer = connection.recv(4_096)
    except TimeoutError:
        return "open stream"  # a listen or a GET stream rests until it is left
    except OSError:
        return "connection closed"
    return answer.split(b" ")[1].decode() if answer.startswith(b"HTTP/1.1 ") else "connection closed"


def over_stdio(count: int, number: int) -> Counter[str]:
    """Send so many lines to a gateway over stdio; it must still answer a ping afterwards."""
    outcomes = Counter[str]()
    lines = messages(count, number)
    command = [sys.executable, "-m", "shortlist.cli", "serve"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        if process.stdin is None or process.stdout is None:
            raise RuntimeError("the gateway was started without pipes")
        try:
            for line in (*lines, b'{"jsonrpc": "2.0", "id": "last", "method": "ping"}'):
                process.stdin.write(line.replace(b"\n", b" ") + b"\n")
            process.stdin.flush()
            deadline = monotonic() + ANSWER_SECONDS + count / 500
            for answer in process.stdout:
                outcomes["error" if b'"error"' in answer else "answer"] += 1
                if b'"last"' in answer:
                    return outcomes
                if monotonic() > deadline:
                    break
        finally:
            process.kill()
    raise AssertionError("the gateway did not answer a ping after the damaged lines")
