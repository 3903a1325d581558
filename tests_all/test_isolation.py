"""A hostile server in a sandbox: what it tries fails, and it ends with the gateway.

The tests print what was enforced; `make test-all` fails where no isolation works.
"""

import ctypes
import os
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import pytest
from tests.upstream.support import ENVIRONMENT, SERVERS, pool_of

from shortlist.config.settings import IsolationSettings, ServerSettings, StdioTransport
from shortlist.errors import UpstreamError
from shortlist.upstream.pool import UpstreamPool

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.usefixtures("home"),
    pytest.mark.skipif(sys.platform != "linux", reason="bubblewrap runs on Linux"),
]
DEADLINE_SECONDS = 60.0
LEFT_BEHIND = "7421"
"""The argument of the process that the server tries to leave behind."""
KEY = (b"user", b"shortlist-probe", b"key")


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a home folder with a key in it; the sandboxes' own homes lie elsewhere."""
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    (tmp_path / "home" / ".ssh").mkdir(parents=True)
    (tmp_path / "home" / ".ssh" / "id_rsa").write_text("the key")
    return tmp_path / "home"


def hostile(**isolation: Any) -> ServerSettings:
    settings = IsolationSettings(kind="sandbox", server="hostile", read=(str(SERVERS),), **isolation)
    transport = StdioTransport(
        command=sys.executable, args=(str(SERVERS / "hostile.py"),), environment=ENVIRONMENT, isolation=settings
    )
    return ServerSettings(name="hostile", transport=transport)


@asynccontextmanager
async def sandbox(**isolation: Any) -> AsyncIterator[UpstreamPool]:
    async with pool_of(hostile(**isolation)) as (pool, _):
        yield pool


async def tried(pool: UpstreamPool, tool: str, what: Any) -> tuple[bool, str]:
    """Return whether a tool failed, and what it said."""
    with anyio.fail_after(DEADLINE_SECONDS):
        result = await pool.call_tool("hostile", tool, {"with": what})
    return bool(result.get("isError")), result["content"][0]["text"]


def running(argument: str) -> list[str]:
    found = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                line = (folder / "cmdline").read_bytes().split(b"\0")
            except OSError:
                continue
            if argument.encode() in line:
                found.append(folder.name)
    return found


async def test_without_a_sandbox_the_server_reads_the_key(home: Path) -> None:
    """Without this, the tests below would also pass where the server tries nothing."""
    open_server = hostile()
    assert isinstance(open_server.transport, StdioTransport)
    transport = replace(
        open_server.transport, isolation=IsolationSettings(), environment={**ENVIRONMENT, "HOME": str(home)}
    )
    async with pool_of(replace(open_server, transport=transport)) as (pool, _):
        assert await tried(pool, "read", "~/.ssh/id_rsa") == (False, "the key")


async def test_secrets_of_the_user_and_of_the_system_cannot_be_read(home: Path) -> None:
    async with sandbox() as pool:
        for path in ("~/.ssh/id_rsa", str(home / ".ssh" / "id_rsa"), "/etc/shadow", f"/proc/{os.getpid()}/environ"):
            failed, said = await tried(pool, "read", path)
            assert failed, f"{path}: {said}"
            print(f"enforced: {path} cannot be read ({said})")


async def test_only_the_declared_folders_and_its_own_home_can_be_written(home: Path, tmp_path: Path) -> None:
    shared, outside = tmp_path / "shared", tmp_path / "outside"
    shared.mkdir()
    outside.mkdir()
    async with sandbox(write=(str(shared),)) as pool:
        for path in (outside / "x", Path("/usr/local/x"), SERVERS / "x", Path("/etc/x")):
            await tried(pool, "write", str(path))
            assert not path.exists(), path
            print(f"enforced: {path.parent} was not changed")
        assert await tried(pool, "write", str(shared / "x")) == (False, "written")
        assert await tried(pool, "write", "~/x") == (False, "written")
    assert (shared / "x").read_text() == "taken"
    assert not (home / "x").exists()


async def test_what_is_mounted_read_only_stays_so_and_files_in_memory_are_bounded() -> None:
    async with sandbox(memory_megabytes=100) as pool:
        for folder in ("/usr", "/"):
            failed, said = await tried(pool, "remount", folder)
            assert failed, f"{folder}: {said}"
            print(f"enforced: {folder} cannot be made writable ({said})")
        for folder in ("/", "/dev", "/dev/shm", "/tmp", "/etc"):
            failed, said = await tried(pool, "fill", [folder, 120])
            assert failed, f"{folder}: {said}"
            print(f"enforced: {folder} cannot be filled ({said})")


async def test_keys_of_the_session_cannot_be_found() -> None:
    number = {"x86_64": 250, "aarch64": 219}[os.uname().machine]
    system = ctypes.CDLL(None)
    if system.syscall(number, 1, None) < 0 or system.syscall(248 if number == 250 else 217, *KEY, 3, -3) < 0:
        pytest.skip("this kernel keeps no keys")
    async with sandbox() as pool:
        failed, said = await tried(pool, "find_key", "shortlist-probe")
        assert failed
        print(f"enforced: the keyring of the session is empty ({said})")


async def test_sockets_lead_nowhere_unless_the_network_is_allowed() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
        async with sandbox() as pool:
            failed, said = await tried(pool, "connect", port)
            assert failed
            print(f"enforced: no network ({said})")
        async with sandbox(network=True) as pool:
            assert (await tried(pool, "connect", port))[0] is False


@pytest.mark.parametrize(
    ("tool", "amount", "limits", "why"),
    [
        ("fork", 400, {"processes": 40}, "it started more than 40 processes"),
        ("thread_fork", 400, {"processes": 40}, "it started more than 40 processes"),
        ("eat", 240, {"memory_megabytes": 100}, "it used more than 100 MB of memory"),
        ("share", 240, {"memory_megabytes": 100}, "it used more than 100 MB of memory"),
        ("hoard", 240, {"memory_megabytes": 100}, "it used more than 100 MB of memory"),
    ],
)
async def test_a_server_that_exceeds_a_limit_is_ended(tool: str, amount: int, limits: dict[str, int], why: str) -> None:
    async with sandbox(**limits) as pool:
        failed, said = False, ""
        with anyio.fail_after(DEADLINE_SECONDS):
            try:
                failed, said = await tried(pool, tool, amount)
            except UpstreamError as error:
                said = str(error)
            while not failed and not any(why in line for line in pool.status()["hostile"].stderr):
                await anyio.sleep(0.05)
        print(f"enforced: {why if not failed else said}")


async def test_what_it_leaves_behind_ends_with_the_server() -> None:
    async with sandbox() as pool:
        assert await tried(pool, "outlive", 0) == (False, "left behind")
        with anyio.fail_after(DEADLINE_SECONDS):
            while not running(LEFT_BEHIND):
                await anyio.sleep(0.05)
    with anyio.fail_after(DEADLINE_SECONDS):
        while running(LEFT_BEHIND):
            await anyio.sleep(0.05)
    print("enforced: no process outlived the gateway")
