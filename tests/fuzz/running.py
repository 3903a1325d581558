"""Fuzzes a running gateway: damaged HTTP requests and messages over sockets, damaged lines over stdio."""

import asyncio
import json
import os
import random
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from string import ascii_lowercase
from typing import Any

from benchmarks.stress.client import ENVELOPE, RawClient
from benchmarks.stress.growth import Growth, growth
from benchmarks.stress.processes import Gateway, gateway, stdio_server, usage
from hypothesis import HealthCheck, Phase, given, seed, settings

from shortlist.front.audience import MAX_STREAMS
from shortlist.gateway.recording import REMEMBERED_SESSIONS
from shortlist.telemetry.ledger import REMEMBERED_WORKSPACES
from tests.fuzz.mutation import Mutator
from tests.fuzz.shapes import MESSAGES

VERSIONS = ("2025-06-18", "2025-11-25", "2026-07-28", "1", "")
ANSWER_SECONDS = 180.0
"""Far beyond any limit of the gateway, so that only a hang takes longer, on however busy a machine."""
LIMITS: dict[str, Any] = {
    "request_seconds": 0.5,
    "connections": 500,
    "sessions": 100,
    "results_bytes": 1_000_000,
    "resumption_bytes": 1_000_000,
    "workspaces": 100,
    "calls_per_client": 500,
}
"""So little that all of it can be filled before the first input."""
FILLING = LIMITS["sessions"] + 1
"""Searches and results that fill what is bounded; their words fill the caches, the largest of which has 50,000.

The JSON parser also remembers 16,384 short strings, so each word is sent alone too."""
SESSIONS = max(REMEMBERED_SESSIONS, REMEMBERED_WORKSPACES) + 1
"""Over HTTP a session is opened by one input in 70, and what it did is remembered after its end."""
WORDS = 550
"""In each of them: as many as a query of 4,000 characters holds."""
FOREIGN = (
    "أرسل رسالة إلى الفريق",
    "sende eine Nachricht an das Team",
    "envía un mensaje al equipo",
    "envoie un message à l'équipe",
    "टीम को संदेश भेजें",
    "invia un messaggio alla squadra",
    "チームにメッセージを送る",
    "팀에 메시지를 보내 줘",
    "wyślij wiadomość do zespołu",
    "envie uma mensagem para a equipe",
    "отправь сообщение команде",
    "ekibe bir mesaj gönder",
    "gửi tin nhắn cho nhóm",
    "给团队发送消息",
)
"""A request in each language that is read by a dictionary: a dictionary is loaded with the first one."""
CONNECTIONS = 16
BATCH = 500
LEAST_BATCHES = 24
"""With fewer, growth cannot be told from noise, and nothing is filled."""
CLIENT = {"name": "fuzz", "version": "1"}
ECHO = {"name": "bench__echo", "arguments": {"text": "hello"}}
USUAL: tuple[tuple[str, dict[str, Any]], ...] = (
    ("initialize", {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": CLIENT}),
    ("ping", {}),
    ("server/discover", {}),
    ("tools/list", {"cursor": "x"}),
    ("tools/call", {"name": "call_tool", "arguments": ECHO}),
    ("tools/call", {"name": "call_tool", "arguments": ECHO, "_meta": {"progressToken": 1}}),
    ("tools/call", {"name": "search_tools", "arguments": {"query": "say a text back", "limit": 3}}),
    ("tools/call", {"name": "describe_tools", "arguments": {"names": ["bench__echo"]}}),
    ("tools/call", {"name": "read_result", "arguments": {"handle": "x", "offset": 0, "query": "a"}}),
    ("prompts/get", {"name": "x", "arguments": {}}),
    ("resources/list", {}),
    ("resources/read", {"uri": "file:///a"}),
    ("resources/subscribe", {"uri": "file:///a"}),
    ("completion/complete", {"ref": {"type": "ref/prompt", "name": "x"}, "argument": {"name": "a", "value": "b"}}),
    ("logging/setLevel", {"level": "info"}),
    ("subscriptions/listen", {"notifications": {"toolsListChanged": True}}),
    ("notifications/cancelled", {"requestId": 1, "reason": "x"}),
    ("notifications/progress", {"progressToken": 1, "progress": 0.5}),
)


@dataclass(slots=True)
class Report:
    """How the inputs ended, and how the memory of each gateway grew, in MB for 100,000 inputs."""

    outcomes: Counter[str] = field(default_factory=Counter)
    growths: list[Growth] = field(default_factory=list)

    def weigh(self, sizes: Sequence[int]) -> "Report":
        """Fit the growth to the bytes after each batch."""
        inputs = [number * BATCH / 100_000 for number in range(len(sizes))]
        found = growth(inputs, [size / 1e6 for size in sizes])
        self.growths += [found] if found else []
        return self


def drawn_messages(count: int, number: int) -> list[Any]:
    """Return so many messages that hypothesis draws."""
    drawn: list[Any] = []

    @seed(number)
    @settings(
        max_examples=count,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(MESSAGES)
    def draw(message: object) -> None:
        drawn.append(message)

    draw()
    return drawn


def messages(count: int, number: int) -> Iterator[Any]:
    """Yield so many messages: usual ones and drawn ones, as they are or changed in a few places."""
    dice, mutator = random.Random(number), Mutator(number)
    strange = drawn_messages(max(count // 100, 5), number)
    for message in strange:
        mutator.learn(message)
    for index in range(count):
        message = dice.choice(strange) if dice.random() < 0.3 else _usual(dice, index)
        for _ in range(dice.choice((0, 1, 1, 2, 4))):
            if isinstance(message, dict) and isinstance(message.get("params"), dict) and dice.random() < 0.8:
                message = {**message, "params": mutator.vary(message["params"])}
            else:
                message = mutator.vary(message)
        yield message


def _usual(dice: random.Random, index: int) -> dict[str, Any]:
    method, params = dice.choice(USUAL)
    message: dict[str, Any] = {"jsonrpc": "2.0", "method": method, "params": dict(params)}
    if not method.startswith("notifications/"):
        message["id"] = dice.choice((index, f"call-{index}"))
    if dice.random() < 0.5:
        message["params"]["_meta"] = {**ENVELOPE, **params.get("_meta", {})}
    return message


def encoded(message: Any) -> bytes:
    return json.dumps(message, default=str).encode("utf-8", "surrogatepass")


# HTTP


def request(message: Any, dice: random.Random, session: str) -> bytes:
    """Wrap a message in a request that is right, or wrong in a few places."""
    body, is_right = encoded(message), dice.random() < 0.6
    method = message.get("method") if isinstance(message, dict) else None
    params = message.get("params") if isinstance(message, dict) else None
    is_modern = isinstance(params, dict) and "_meta" in params
    if is_right:
        more = [f"MCP-Protocol-Version: {VERSIONS[2] if is_modern else VERSIONS[0]}"]
        if not is_modern and method != "initialize":
            more.append(f"Mcp-Session-Id: {session}")
        if is_modern and isinstance(method, str) and method.isprintable() and method.isascii():
            more += [f"Mcp-Method: {method}", f"Mcp-Name: {_header(params)}"]
        return _head("POST", "/mcp", len(body), [*more, *_JSON]) + body
    verb = dice.choice(("POST", "POST", "POST", "GET", "DELETE", "PUT", "BREW"))
    path = dice.choice(("/mcp", "/mcp", "/mcp/w/abc", "/healthz", "/metrics", "/%2e%2e/", "/mcp/w/" + "x" * 500))
    more = [*_JSON] if dice.random() < 0.9 else []
    more += [f"MCP-Protocol-Version: {dice.choice(VERSIONS)}"] if dice.random() < 0.9 else []
    more += ["Mcp-Method: tools/call", "Mcp-Name: call_tool"] if dice.random() < 0.3 else []
    more += ["Mcp-Session-Id: nobody"] if dice.random() < 0.3 else []
    more += ["X-Long: " + "y" * 9_000] if dice.random() < 0.05 else []
    head = _head(verb, path, len(body) if dice.random() < 0.95 else dice.choice((0, len(body) // 2)), more)
    if dice.random() < 0.1:
        place = dice.randrange(len(head))
        head = head[:place] + bytes([dice.randrange(256)]) + head[place + 1 :]
    return head + body


_JSON = ("Content-Type: application/json", "Accept: application/json, text/event-stream")


def _head(verb: str, path: str, length: int, more: list[str]) -> bytes:
    return "\r\n".join(
        [f"{verb} {path} HTTP/1.1", "Host: 127.0.0.1", f"Content-Length: {length}", *more, "", ""]
    ).encode()


def _header(params: Any) -> str:
    name = params.get("name") if isinstance(params, dict) else None
    return name if isinstance(name, str) and name.isprintable() and name.isascii() else "x"


async def over_http(count: int, number: int) -> Report:
    """Send so many requests to a gateway, a few at a time; return how they ended."""
    dice, report = random.Random(number), Report()
    with gateway({"bench": stdio_server()}, {"limits": LIMITS}) as running:
        sizes, room = [], asyncio.Semaphore(CONNECTIONS)

        async def send(data: bytes) -> None:
            async with room:
                report.outcomes[await _sent(running, data)] += 1

        if count >= BATCH * LEAST_BATCHES:
            await _fill(running)
        for batch in range(0, count, BATCH):
            client = RawClient(running.port, "legacy")
            await client.open()
            given = messages(min(BATCH, count - batch), number + batch)
            await asyncio.gather(*(send(request(message, dice, client.session)) for message in given))
            client.close()
            if "ok" not in await asyncio.to_thread(running.get, "/healthz"):
                raise AssertionError("the gateway does not answer /healthz")
            sizes.append(usage(running.pid).memory_bytes)
        return report.weigh(sizes)


async def _fill(running: Gateway) -> None:
    """Open as many sessions as are remembered, and keep as many results as there may be."""
    for number in range(SESSIONS):
        client = RawClient(running.port, "legacy")
        await client.open()
        for name, arguments in _filling(number) if number < FILLING else _searching(number):
            await client.call(name, arguments)
        client.close()


def _filling(number: int) -> tuple[tuple[str, dict[str, Any]], ...]:
    """Return a search and a call with a large result, whose words occur nowhere else, and a search in a language."""
    dice = random.Random(f"filling {number}")
    words = ["".join(dice.choices(ascii_lowercase, k=6)) for _ in range(WORDS)]
    text = " ".join(words)
    return (
        ("search_tools", {"query": text}),
        ("call_tool", {**ECHO, "arguments": {"text": f"{text} " * 15, "words": words}}),
        ("search_tools", {"query": FOREIGN[number % len(FOREIGN)]}),
    )


def _searching(number: int) -> tuple[tuple[str, dict[str, Any]], ...]:
    return (("search_tools", {"query": f"say text {number} back"}),)


async def _sent(running: Gateway, data: bytes) -> str:
    """Send one request on a connection of its own; return the status of its response."""
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", running.port)
        try:
            writer.write(data)
            async with asyncio.timeout(ANSWER_SECONDS):
                line = await reader.readline()
        finally:
            writer.close()
    except TimeoutError:
        raise AssertionError(f"no answer within {ANSWER_SECONDS:g} s to {data[:2000]!r}") from None
    except (OSError, ValueError):
        return "connection closed"
    return line.split(b" ")[1].decode() if line.startswith(b"HTTP/1.1 ") else "connection closed"


# stdio


async def over_stdio(count: int, number: int) -> Report:
    """Send lines to a gateway over stdio, in each era; it must answer a ping after every batch."""
    report = Report()
    for era in ("legacy", "modern"):
        with tempfile.TemporaryDirectory() as folder:
            await _serve_lines(Path(folder), count // 2, number, era, report)
    return report


async def _serve_lines(folder: Path, count: int, number: int, era: str, report: Report) -> None:
    config, dice = folder / "servers.json", random.Random(number)
    config.write_text(json.dumps({"mcpServers": {"bench": stdio_server()}, "shortlist": {"limits": LIMITS}}))
    homes = {f"XDG_{kind}_HOME": str(folder / kind.lower()) for kind in ("CONFIG", "DATA", "CACHE", "STATE")}
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "shortlist.cli", "serve", "--own", "--config", str(config)),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
        env={**os.environ, "HOME": str(folder), **homes},
        limit=64 * 1024 * 1024,
    )
    if process.stdin is None or process.stdout is None:
        raise RuntimeError("the gateway was started without pipes")
    try:
        opening = [_opening(era)]
        if count >= BATCH * LEAST_BATCHES:
            opening += map(encoded, _filling_messages())
        sizes = []
        for batch in range(0, count, BATCH):
            lines = [encoded(m).replace(b"\n", b" ") for m in messages(min(BATCH, count - batch), number + batch)]
            last = f"last-{batch}"
            lines = [*opening, *(_damaged(line, dice) for line in lines), _ping(era, last)]
            opening = []
            process.stdin.write(b"\n".join(lines) + b"\n")
            async with asyncio.timeout(ANSWER_SECONDS):
                await _answers(process.stdout, last.encode(), report.outcomes)
            sizes.append(usage(process.pid).memory_bytes)
        report.weigh(sizes)
    except TimeoutError:
        raise AssertionError("the gateway did not answer a ping after the damaged lines") from None
    finally:
        process.kill()
        await process.wait()


def _filling_messages() -> Iterator[dict[str, Any]]:
    """Yield the same over stdio, and open as many listen streams as there may be: they last as long as the client."""
    calls = [call for number in range(FILLING) for call in _filling(number)]
    for number, (name, arguments) in enumerate(calls):
        params: dict[str, Any] = {"name": name, "arguments": arguments, "_meta": ENVELOPE}
        yield {"jsonrpc": "2.0", "id": f"filling {number}", "method": "tools/call", "params": params}
    for number in range(MAX_STREAMS):
        params = {"notifications": {"toolsListChanged": True}, "_meta": ENVELOPE}
        yield {"jsonrpc": "2.0", "id": f"listen {number}", "method": "subscriptions/listen", "params": params}


def _opening(era: str) -> bytes:
    params = USUAL[0][1] if era == "legacy" else {"_meta": ENVELOPE}
    method = "initialize" if era == "legacy" else "server/discover"
    opening = encoded({"jsonrpc": "2.0", "id": "first", "method": method, "params": params})
    done = encoded({"jsonrpc": "2.0", "method": "notifications/initialized"})
    return opening + b"\n" + done if era == "legacy" else opening


def _ping(era: str, number: str) -> bytes:
    params = {} if era == "legacy" else {"_meta": ENVELOPE}
    method = "ping" if era == "legacy" else "tools/list"
    return encoded({"jsonrpc": "2.0", "id": number, "method": method, "params": params})


def _damaged(line: bytes, dice: random.Random) -> bytes:
    """Change a byte of a few lines, cut some, and join some."""
    match dice.randrange(20):
        case 0:
            place = dice.randrange(len(line) + 1)
            return line[:place] + bytes([dice.choice(b'\x00\xff{}[]",:\\')]) + line[place + 1 :]
        case 1:
            return line[: dice.randrange(len(line) + 1)]
        case 2:
            return line + line
        case _:
            return line


async def _answers(answers: asyncio.StreamReader, last: bytes, outcomes: Counter[str]) -> None:
    """Count what the gateway answers, up to the answer to the last line."""
    while line := await answers.readline():
        if last in line:
            return
        kind = "error" if b'"error"' in line else "answer" if b'"result"' in line else "notification"
        outcomes[kind] += 1
    raise AssertionError("the gateway ended")
