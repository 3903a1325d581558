"""Gateways as processes on one PostgreSQL, and clients that alternate between them."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx2

from shortlist.config.settings import hash_token

PROGRAM = [sys.executable, "-c", "import sys; from shortlist.cli import main; sys.exit(main())"]
SECONDS = 60
ACCEPT = {"Accept": "application/json, text/event-stream"}
LEGACY = {"MCP-Protocol-Version": "2025-11-25"}


@dataclass(slots=True)
class GatewayProcess:
    """One replica."""

    folder: Path
    process: "subprocess.Popen[bytes]"
    storage: str
    servers: dict[str, Any]
    url: str = ""

    @property
    def log(self) -> str:
        return (self.folder / "log").read_text("utf-8", "replace")

    def wait_for(self, words: str) -> str:
        """Return the line of the log in which these words are."""
        for _ in range(SECONDS * 20):
            lines = self.log.splitlines(keepends=True)
            if found := next((line for line in lines if words in line and line.endswith("\n")), None):
                return found.strip()
            if self.process.poll() is not None:
                break
            time.sleep(0.05)
        raise AssertionError(f"{words!r} was never said: {self.log[-3000:]}")

    def is_ready(self) -> bool:
        return httpx2.get(self.url.replace("/mcp", "/readyz")).status_code == 200

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait(SECONDS)


@contextmanager
def replica(
    folder: Path, storage: str, servers: dict[str, Any], *options: str, **shortlist: Any
) -> Iterator[GatewayProcess]:
    """Run a gateway with a home of its own, and everything else in the database."""
    folder.mkdir()
    tokens = {name: {"hash": hash_token(name)} for name in ("ada", "bob")}
    document = {"mcpServers": servers, "shortlist": {"tokens": tokens, "storage": storage, **shortlist}}
    (folder / "config.json").write_text(json.dumps(document))
    folders = {f"XDG_{kind}_HOME": str(folder / kind.lower()) for kind in ("CONFIG", "DATA", "CACHE", "STATE")}
    environment = {**os.environ, "HOME": str(folder), **folders}
    command = [*PROGRAM, "serve", "--http", "127.0.0.1:0", "--dynamic", "--config", str(folder / "config.json")]
    command += options
    with (
        (folder / "log").open("wb") as log,
        subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=log) as process,
    ):
        running = GatewayProcess(folder, process, storage, servers)
        try:
            running.url = running.wait_for("serving http").split()[-1]
            wait_until(running.is_ready)
            yield running
        finally:
            process.terminate()
            with suppress(subprocess.TimeoutExpired):
                process.wait(15)
            process.kill()


def another(running: GatewayProcess, folder: Path) -> AbstractContextManager[GatewayProcess]:
    """Run one more gateway beside another."""
    return replica(folder, running.storage, running.servers)


class EventMessages:
    """The messages of an event stream as they arrive."""

    def __init__(self, response: httpx2.Response) -> None:
        self._lines = response.iter_lines()

    def first_event(self) -> str:
        """Return the id of the next event."""
        return next(line.removeprefix("id:").strip() for line in self._lines if line.startswith("id:"))

    def __iter__(self) -> Iterator[dict[str, Any]]:
        for line in self._lines:
            data = line.removeprefix("data:").strip()
            if line.startswith("data:") and data:
                yield json.loads(data)


@dataclass(slots=True)
class LegacyClient:
    """A client of the older era that sends each message wherever it is told to."""

    token: str = "ada"
    session: str = ""
    http: httpx2.Client = field(default_factory=lambda: httpx2.Client(timeout=60))
    number: int = 0

    def post(self, url: str, message: dict[str, Any]) -> httpx2.Response:
        return self.http.post(url, json={"jsonrpc": "2.0", **message}, headers=self._headers)

    @property
    def _headers(self) -> dict[str, str]:
        session = {"Mcp-Session-Id": self.session} if self.session else {}
        return {**ACCEPT, **LEGACY, "Authorization": f"Bearer {self.token}", **session}

    @contextmanager
    def streaming(self, url: str, method: str, /, **params: Any) -> Iterator[EventMessages]:
        """Send a request and read what comes for it while it runs."""
        self.number += 1
        message = {"jsonrpc": "2.0", "id": self.number, "method": method, "params": params}
        with self.http.stream("POST", url, json=message, headers=self._headers) as response:
            yield EventMessages(response)

    def resumed(self, url: str, last: str) -> dict[str, Any]:
        """Come back for the answer that follows an event, as often as the stream ends before it."""
        for _ in range(SECONDS):
            with self.http.stream("GET", url, headers={**self._headers, "Last-Event-ID": last}) as response:
                for message in EventMessages(response):
                    if "result" in message or "error" in message:
                        return message
            time.sleep(0.05)
        raise AssertionError("no answer came")

    def is_unknown(self, url: str) -> bool:
        """Return whether the session has ended there; a request may meet its end."""
        with suppress(httpx2.RemoteProtocolError):
            return self.post(url, {"id": 9, "method": "tools/list"}).status_code == 404
        return False

    def open(self, url: str, **capabilities: Any) -> None:
        info = {"name": "tests", "version": "1"}
        params = {"protocolVersion": "2025-11-25", "capabilities": capabilities, "clientInfo": info}
        answer = self.post(url, {"id": 0, "method": "initialize", "params": params})
        self.session = answer.headers["mcp-session-id"]
        self.post(url, {"method": "notifications/initialized"})

    def ask(self, url: str, method: str, /, **params: Any) -> dict[str, Any]:
        """Send a request and return its result."""
        self.number += 1
        answer = self.post(url, {"id": self.number, "method": method, "params": params})
        result: dict[str, Any] = answer_of(answer, self.number)["result"]
        return result

    def call(self, url: str, name: str, /, **arguments: Any) -> str:
        """Call a tool and return the text of its result."""
        return str(self.ask(url, "tools/call", name=name, arguments=arguments)["content"][0]["text"])


def answer_of(response: httpx2.Response, number: int) -> dict[str, Any]:
    """Return the answer to a request from a response of either form."""
    for message in messages_of(response.text):
        if message.get("id") == number and "method" not in message:
            return message
    raise AssertionError(f"no answer to {number}: {response.status_code} {response.text[:500]}")


def messages_of(text: str) -> list[dict[str, Any]]:
    lines = (line.removeprefix("data:").strip() for line in text.splitlines())
    return [json.loads(line) for line in lines if line.startswith("{")]


def wait_until(condition: Callable[[], bool]) -> None:
    for _ in range(SECONDS * 20):
        if condition():
            return
        time.sleep(0.05)
    raise AssertionError("the condition never held")
