import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp import Client, StdioServerParameters

PROGRAM = [sys.executable, "-c", "import sys; from shortlist.cli import main; sys.exit(main())"]
SECONDS = 60


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    return environment_in(tmp_path)


def environment_in(tmp_path: Path) -> dict[str, str]:
    """Give a home of its own, so that nobody's configuration is read, and no collector but ours."""
    folders = {f"XDG_{kind}_HOME": str(tmp_path / kind.lower()) for kind in ("CONFIG", "DATA", "CACHE", "STATE")}
    inherited = {key: value for key, value in os.environ.items() if not key.startswith("OTEL_")}
    return {**inherited, "HOME": str(tmp_path), "PYTHONPATH": os.pathsep.join(sys.path), **folders}


@pytest.fixture
def config(tmp_path: Path) -> Path:
    return config_in(tmp_path)


def config_in(tmp_path: Path) -> Path:
    """Write a configuration with the fixture server alone."""
    entry = {
        "command": sys.executable,
        "args": ["-m", "tests.telemetry.upstream"],
        "env": {"PYTHONPATH": os.pathsep.join([os.getcwd(), *sys.path])},
    }
    path = tmp_path / "servers.json"
    path.write_text(json.dumps({"mcpServers": {"fixture": entry}}))
    return path


class Receiver:
    """The OTLP receiver's process; `received` ends it and gives everything that arrived."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        assert process.stdout is not None
        self._process, self._out = process, process.stdout
        self.endpoint = f"http://127.0.0.1:{int(self._out.readline())}"

    def received(self) -> list[dict[str, Any]]:
        self._process.terminate()
        return [json.loads(line) for line in self._out]


@contextmanager
def receiving() -> Iterator[Receiver]:
    command = [sys.executable, "-m", "tests.telemetry.receiver"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([os.getcwd(), *sys.path])}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        try:
            yield Receiver(process)
        finally:
            process.terminate()


@asynccontextmanager
async def stdio_client(environment: dict[str, str], config: Path, *arguments: str) -> AsyncIterator[Client]:
    """Connect to `shortlist serve` as a process, once its server is there; it has ended when this has."""
    args = [*PROGRAM[1:], "serve", "--config", str(config), *arguments]
    with anyio.fail_after(SECONDS):
        async with Client(StdioServerParameters(command=PROGRAM[0], args=args, env=environment)) as client:
            while (await client.call_tool("describe_tools", {"names": ["fixture__refuse"]})).is_error:
                await anyio.sleep(0.02)
            yield client
