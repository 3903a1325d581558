"""Whole gateway processes: people who sign in during a call, and clients whose roots are kept apart."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import anyio
import httpx2
import mcp_types as types
import pytest
from mcp import Client, MCPError
from pydantic import FileUrl
from tests.gateway.support import Era, words
from tests.gateway.test_http import connect

from shortlist.config.settings import hash_token
from tests_all.identity.person import sign_in
from tests_all.support import SHORTLIST, START_SECONDS, Foreign, environment, process
from tests_all.test_identity import World, world

__all__ = ["world"]

pytestmark = [pytest.mark.anyio, pytest.mark.filterwarnings("ignore::mcp.MCPDeprecationWarning")]
URL_ELICITATION_REQUIRED = -32042


def configured(folder: Path, servers: dict[str, Any]) -> Path:
    """Write a configuration with tokens of Ada and Bob."""
    tokens = {name: {"hash": hash_token(f"slt_{name}")} for name in ("ada", "bob")}
    ours = {"tokens": tokens, "search": {"embedder": "none"}, "dashboard": False}
    path = folder / "shortlist.json"
    path.write_text(json.dumps({"mcpServers": servers, "shortlist": ours}))
    return path


@contextmanager
def gateway_process(folder: Path, servers: dict[str, Any]) -> Iterator[str]:
    """Run `shortlist serve` with data of its own; yield its address."""
    command = [*SHORTLIST, "serve", "--config", str(configured(folder, servers)), "--http", "127.0.0.1:0"]
    with process(command, environment(folder)) as lines:
        yield lines.after("serving ")


async def browse(link: str, name: str) -> None:
    """Sign in as a person, and let the browser follow the way back to the gateway."""
    callback = parse_qs(urlsplit(link).query)["redirect_uri"][0]
    answer = await sign_in(link, name, callback)
    async with httpx2.AsyncClient() as browser:
        assert (await browser.get(callback, params=answer)).status_code == 200


async def called(client: Client, tool: str, arguments: dict[str, Any], name: str) -> str:
    """Call a tool once its server has listed it; open the link that a legacy client gets instead of an answer."""
    opened: set[str] = set()
    with anyio.fail_after(START_SECONDS):
        while tool not in words(await client.call_tool("search_tools", {"query": tool})):
            await anyio.sleep(0.1)
        while True:
            try:
                return words(await client.call_tool("call_tool", {"name": tool, "arguments": arguments}))
            except MCPError as error:
                if error.error.code != URL_ELICITATION_REQUIRED:
                    raise
                (link,) = {each["url"] for each in error.error.data["elicitations"]} - opened or {""}
                if link:
                    opened.add(link)
                    await browse(link, name)
                else:
                    await anyio.sleep(0.1)


@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_two_people_sign_in_during_calls_of_one_gateway_process_and_keep_their_rights(
    world: World, tmp_path: Path, era: Era
) -> None:
    await replace(world, folder=tmp_path / "data" / "shortlist").sign_in("ada")  # the shared login lists the tools
    options = {"identity": "per_principal", "oauth": {"scopes": ["openid"]}}
    server = {"type": "http", "url": world.target.url, "shortlist": options}
    said: dict[str, str] = {}
    asked: list[str] = []

    async def call(url: str, name: str) -> None:
        async def person(_: Any, params: Any) -> types.ElicitResult:
            asked.append(name)
            await browse(params.url, name)
            return types.ElicitResult(action="accept")

        async with connect(url, era, f"slt_{name}", elicitation_callback=person) as client:
            said[name] = await called(client, "notes__echo", {"text": f"hello {name}"}, name)

    with gateway_process(tmp_path, {"notes": server}) as url:
        async with anyio.create_task_group() as tasks:
            for name in ("ada", "bob"):
                tasks.start_soon(call, url, name)
    assert said["ada"] == "hello ada"
    assert "NOT invoked" in said["bob"]
    assert sorted(asked) == (["ada", "bob"] if era == "modern" else [])


@pytest.mark.parametrize("sessions", ["auto", "per_principal"])
async def test_the_roots_of_one_client_never_become_those_of_another(
    foreign: Foreign, tmp_path: Path, sessions: str
) -> None:
    """With `auto`, a server that asked for roots before any client was there goes on with the folder it was given."""
    folders = {name: tmp_path / f"of-{name}" for name in ("ada", "bob", "nobody")}
    for folder in folders.values():
        folder.mkdir()
    node, *arguments = [*foreign.package("server-filesystem", "dist/index.js"), str(folders["nobody"])]
    both, seen = anyio.Event(), dict[str, list[str]]()

    async def look(url: str, name: str) -> None:
        async def roots(_: Any) -> types.ListRootsResult:
            return types.ListRootsResult(roots=[types.Root(uri=FileUrl(folders[name].as_uri()))])

        async with connect(url, "legacy", f"slt_{name}", list_roots_callback=roots) as client:
            tool = "filesystem__list_allowed_directories"
            seen[name] = [await called(client, tool, {}, name)]
            if len(seen) == 2:
                both.set()
            with anyio.fail_after(START_SECONDS):
                await both.wait()
                while True:  # the other client is there, too, and the server asks for roots when it is ready
                    seen[name].append(await called(client, tool, {}, name))
                    if sessions == "auto" or f"of-{name}" in seen[name][-1]:
                        break

    server = {"command": node, "args": arguments, "shortlist": {"sessions": sessions}}
    with gateway_process(tmp_path, {"filesystem": server}) as url:
        async with anyio.create_task_group() as tasks:
            for name in ("ada", "bob"):
                tasks.start_soon(look, url, name)
    for name, other in (("ada", "bob"), ("bob", "ada")):
        assert not any(f"of-{other}" in text for text in seen[name])
        assert f"of-{name}" in seen[name][-1] or sessions == "auto"
