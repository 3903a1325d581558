"""The client command of the conformance suite: a gateway whose only server is the suite's.

    python -m tests_all.identity.driver URL

A person without a browser signs in when the server needs it; then every tool is called through the gateway.
"""

import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx2
from mcp import Client, MCPError

from shortlist.cli.grants import open_logins
from shortlist.cli.stack import Stack, open_stack, run_plainly
from shortlist.config.load import settings_of
from shortlist.config.settings import Settings
from shortlist.errors import ShortlistError
from shortlist.gateway.view import ServeOptions
from shortlist.upstream.grants import SHARED
from shortlist.upstream.login import login_target

SERVER = "suite"
REDIRECT = "http://localhost:3000/callback"
MOST_LOGINS = 3
SETTLE_SECONDS = 15.0
DOCUMENT = "https://conformance-test.local/client-metadata.json"


def settings(url: str) -> Settings:
    given = json.loads(os.environ.get("MCP_CONFORMANCE_CONTEXT") or "{}")
    oauth = {key: given[key] for key in ("client_id", "client_secret") if key in given}
    options = {"oauth": {**oauth, "client_metadata_url": DOCUMENT}, "trust": "auto"}
    tree = {"mcpServers": {SERVER: {"type": "http", "url": url, "shortlist": options}}}
    return settings_of(tree, source="driver", environment=os.environ)


async def sign_in(stack: Stack, whole: Settings) -> None:
    """Open the link of a login and bring its answer back, as a browser does."""
    logins, target = open_logins(stack.storage), login_target(SERVER, whole.servers[SERVER].transport)
    assert target is not None
    link = await logins.begin(target, SHARED, REDIRECT)
    async with httpx2.AsyncClient() as browser:
        answer = await browser.get(link, follow_redirects=False)
    given = {name: values[0] for name, values in parse_qs(urlsplit(answer.headers["location"]).query).items()}
    await logins.finish(given.get("state", ""), given.get("code"), given.get("iss"), given.get("error"))


async def reconnect(stack: Stack, whole: Settings) -> None:
    await stack.pool.reload({})
    await stack.pool.reload(whole.servers)
    await stack.pool.settled(SETTLE_SECONDS)
    await stack.gateway.settled()


async def use(stack: Stack) -> bool:
    """List and call every tool; return whether the server asks for another login."""
    async with Client(stack.front.server) as client:
        refused = False
        for tool in (await client.list_tools()).tools:
            try:
                said: Any = await client.call_tool(tool.name, {})
                refused = refused or "shortlist login" in str(said)
            except MCPError as error:
                refused = refused or "shortlist login" in str(error)
        return refused or stack.pool.status()[SERVER].state == "needs_auth"


async def main(url: str) -> None:
    whole = settings(url)
    async with open_stack(whole, ServeOptions(mode="passthrough"), models=False) as stack:
        await stack.pool.settled(SETTLE_SECONDS)
        await stack.gateway.settled()
        for _ in range(MOST_LOGINS):
            status = stack.pool.status()[SERVER]
            if status.state == "ready" and not await use(stack):
                return
            await sign_in(stack, whole)
            await reconnect(stack, whole)
        await use(stack)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as home:
        for kind in ("DATA", "STATE", "CACHE", "CONFIG"):
            os.environ[f"XDG_{kind}_HOME"] = str(Path(home) / kind.lower())
        try:
            run_plainly(lambda: main(sys.argv[-1]))
        except ShortlistError as error:
            print(error, file=sys.stderr)
            sys.exit(1)
