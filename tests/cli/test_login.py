"""`shortlist login` and `logout`, with a browser, a gateway and an authorization server that are all real."""

import html
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import httpx2
import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

from shortlist.cli import main
from tests.servers.protected import Protected, protected_server

PROGRAM = [sys.executable, "-c", "import sys; from shortlist.cli import main; sys.exit(main())"]
SECONDS = 180


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for kind in ("CONFIG", "DATA", "CACHE", "STATE"):
        monkeypatch.setenv(f"XDG_{kind}_HOME", str(tmp_path / kind.lower()))
    monkeypatch.setenv("HOME", str(tmp_path))
    return tmp_path


@pytest.fixture
def wiki(home: Path) -> Iterator[Protected]:
    """Run a server that needs a login, and configure it."""
    with protected_server() as server:
        configure(home, {"wiki": {"type": "http", "url": f"{server.url}/mcp"}})
        yield server


def configure(home: Path, servers: dict[str, Any]) -> None:
    path = home / "config" / "shortlist" / "config.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"mcpServers": servers}))


def sign_in(answer: str = "") -> tuple[int, str]:
    """Run `shortlist login wiki` with an HTTP client as its browser; return its exit status and what it said."""
    command = [*PROGRAM, "login", "wiki", "--no-browser"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        link = process.stdout.readline().strip()
        back = httpx2.URL(httpx2.get(link).headers["location"])
        assert httpx2.get(str(back.copy_merge_params({"state": "guessed"}))).status_code == 404
        assert httpx2.get(answer.format(back=back) or str(back)).status_code == 200
        said = process.stderr.read()
        return process.wait(SECONDS), said


async def ask(url: str) -> str:
    async with (
        httpx2.AsyncClient(timeout=SECONDS) as http,
        Client(streamable_http_client(url, http_client=http)) as client,
    ):
        result: Any = await client.call_tool("call_tool", {"name": "wiki__whoami", "arguments": {}})
        return str(result.content[0].text)


@pytest.mark.anyio
async def test_a_login_opens_a_server_of_a_running_gateway_until_it_is_revoked(home: Path, wiki: Protected) -> None:
    command = [*PROGRAM, "serve", "--http", "127.0.0.1:0", "--open", "--embedder", "none", "--no-dashboard"]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        lines = process.stderr
        try:
            url = next(line.partition("serving ")[2].strip() for line in lines if "serving " in line)
            next(line for line in lines if "needs_auth" in line and "`shortlist login wiki`" in line)
            status, said = await anyio.to_thread.run_sync(sign_in)
            assert (status, "signed in to 'wiki'" in said) == (0, True)
            next(line for line in lines if "is ready: 1 tools" in line)
            assert await ask(url) == "you are signed in"
            wiki.expire()
            assert await ask(url) == "you are signed in"
            assert wiki.refreshes == 1
            wiki.revoke()
            assert "`shortlist login wiki`" in await ask(url)
        finally:
            process.terminate()
            lines.read()
    kept = [path.read_bytes() for path in home.rglob("*") if path.is_file()]
    assert len(wiki.called_with) == 2
    assert not [token for token in wiki.called_with for content in kept if token.encode() in content]


def test_the_commands_use_a_login_until_the_logout(
    home: Path, wiki: Protected, capsys: pytest.CaptureFixture[str]
) -> None:
    assert sign_in()[0] == 0
    assert main(["call", "wiki__whoami"]) == 0
    assert "you are signed in" in capsys.readouterr().out
    (kept,) = home.rglob("secrets.json")
    assert kept.stat().st_mode & 0o777 == 0o600
    assert main(["logout", "wiki"]) == 0
    assert "signed out of 'wiki'" in capsys.readouterr().err
    assert main(["call", "wiki__whoami"]) == 1
    assert "`shortlist login wiki`" in capsys.readouterr().err
    assert main(["logout", "wiki"]) == 0
    assert "nobody was signed in to 'wiki'" in capsys.readouterr().err


def test_a_login_that_is_not_granted_stores_nothing(home: Path, wiki: Protected) -> None:
    status, said = sign_in("{back}&error=access_denied")
    assert status == 1
    assert "the login was not granted (access_denied)" in said
    assert not list(home.rglob("secrets.json"))


@pytest.mark.parametrize(
    ("server", "complaint"),
    [
        ("wikki", "No server 'wikki'. Did you mean 'wiki'?"),
        ("clock", "Server 'clock' has no login"),
        ("fixed", "Remove 'Authorization' from its 'headers'"),
    ],
)
@pytest.mark.parametrize("command", ["login", "logout"])
def test_a_server_that_cannot_have_a_login_is_refused(
    home: Path, wiki: Protected, capsys: pytest.CaptureFixture[str], command: str, server: str, complaint: str
) -> None:
    configure(
        home,
        {
            "wiki": {"url": f"{wiki.url}/mcp"},
            "clock": {"command": "clock"},
            "fixed": {"url": f"{wiki.url}/mcp", "headers": {"Authorization": "Bearer mine"}},
        },
    )
    assert main([command, server]) == 2
    assert complaint in capsys.readouterr().err


@pytest.mark.anyio
async def test_a_person_signs_in_to_a_server_from_the_dashboard(home: Path, wiki: Protected) -> None:
    command = [*PROGRAM, "serve", "--http", "127.0.0.1:0", "--open", "--embedder", "none"]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        lines = process.stderr
        try:
            link = next(line.partition("dashboard: ")[2].partition(" ")[0] for line in lines if "dashboard: " in line)
            next(line for line in lines if "needs_auth" in line)
            origin = link.partition("/open")[0]
            with httpx2.Client(base_url=origin, headers={"Origin": origin}, timeout=SECONDS) as browser:
                browser.get(link)
                page = browser.get("/servers/wiki").text
                csrf = re.findall('name="csrf" value="([^"]+)"', page)[0]
                begun = browser.post("/servers/wiki/login", data={"csrf": csrf}).text
                login = html.unescape(re.findall('href="(http[^"]+)"', begun)[0])
                back = httpx2.get(login).headers["location"]
                assert back.startswith(f"{origin}/login/callback?")
                assert "Signed in to wiki" in httpx2.get(back).text  # without the cookie, as from another site
                assert httpx2.get(back).status_code == 400  # once
            next(line for line in lines if "is ready: 1 tools" in line)
        finally:
            process.terminate()
            process.wait(SECONDS)
