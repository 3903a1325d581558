"""`shortlist secret`, and `${keyring:NAME}` in a configuration."""

import io
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from shortlist.cli import main
from shortlist.cli.restarts import Restarts
from shortlist.cli.vault import revealed, stored_secret
from shortlist.config.load import load_settings, settings_of
from shortlist.config.settings import HttpTransport
from shortlist.errors import InvalidConfig
from shortlist.storage.opening import open_storage
from shortlist.upstream.pool import UpstreamPool

SHOW = "import os, sys; print(os.environ['TOKEN'][::-1], os.environ['TOKEN'], file=sys.stderr)"


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for kind in ("CONFIG", "DATA", "STATE"):
        monkeypatch.setenv(f"XDG_{kind}_HOME", str(tmp_path / kind.lower()))
    return tmp_path


def configured(home: Path, entry: dict[str, Any]) -> Path:
    path = home / "config.json"
    path.write_text(json.dumps({"mcpServers": {"lab": entry}}))
    return path


def put(monkeypatch: pytest.MonkeyPatch, name: str, value: str, *more: str) -> int:
    monkeypatch.setattr(sys, "stdin", io.StringIO(value))
    return main(["secret", "set", name, *more])


def test_a_secret_comes_from_stdin_and_is_listed_by_name_alone(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert put(monkeypatch, "github", "ghp_very_secret\n") == 0
    assert main(["secret", "list", "--json"]) == 0
    shown = capsys.readouterr()
    assert json.loads(shown.out)["names"] == ["github"]
    assert "ghp_very_secret" not in shown.out + shown.err
    assert stored_secret("github") == "ghp_very_secret"
    assert main(["secret", "remove", "github"]) == 0
    assert stored_secret("github") is None


def test_mistakes_are_refused_with_a_remedy(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert put(monkeypatch, "github", "") == 2
    assert put(monkeypatch, "github", "x" * 70_000) == 2
    put(monkeypatch, "github", "x")
    assert main(["secret", "remove", "githb"]) == 2
    assert "Did you mean 'github'?" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main(["secret", "set", "a name", "value"])


def test_a_new_value_restarts_the_servers_that_use_it(monkeypatch: pytest.MonkeyPatch, home: Path) -> None:
    path, restarts = configured(home, {"command": "x", "env": {"TOKEN": "${keyring:wiki}"}}), Restarts()
    put(monkeypatch, "other", "1", "--config", str(path))
    assert restarts.asked() == []
    put(monkeypatch, "wiki", "1", "--config", str(path))
    assert restarts.asked() == ["lab"]
    assert restarts.asked() == []
    monkeypatch.setattr("shortlist.cli.restarts.time.time", lambda: 0.0)  # the clock was set back
    put(monkeypatch, "wiki", "2", "--config", str(path))
    assert restarts.asked() == ["lab"]


@pytest.mark.anyio
async def test_a_server_gets_its_secret_when_it_starts_and_neither_settings_nor_its_log_hold_it(
    monkeypatch: pytest.MonkeyPatch, home: Path
) -> None:
    entry = {"command": sys.executable, "args": ["-c", SHOW], "env": {"TOKEN": "one ${keyring:wiki}"}}
    settings = load_settings(configured(home, entry))
    put(monkeypatch, "wiki", "hidden word")
    assert "hidden" not in repr(settings)
    assert "drow neddih eno ••••" in await reason(settings.servers)


@pytest.mark.anyio
async def test_a_server_whose_secret_is_not_stored_says_how_to_store_it(home: Path) -> None:
    for entry in (
        {"command": sys.executable, "args": ["-c", SHOW], "env": {"TOKEN": "${keyring:wiki}"}},
        {"url": "http://127.0.0.1:9/mcp", "headers": {"Authorization": "Bearer ${keyring:wiki}"}},
    ):
        why = await reason(load_settings(configured(home, entry)).servers)
        assert "the secret 'wiki' is not stored; run `shortlist secret set wiki`" in why


async def reason(servers: Any) -> str:
    """Return why a server did not get ready, with the last line that it wrote."""
    async with UpstreamPool(servers, on_event=lambda _: None, secrets=stored_secret) as pool:
        await pool.settled(60)
        found = pool.status()["lab"].error or ""
    return found.partition("it last said: ")[2] or found


OURS: dict[str, Any] = {
    "storage": "postgresql://gateway:${keyring:wiki}@db/shortlist",
    "search": {
        "embedder": {"provider": "openai", "api_key": "${keyring:wiki}"},
        "reranker": {"provider": "cohere", "api_key": "${keyring:wiki}"},
    },
    "smart_select": {"provider": "openai", "api_key": "${keyring:wiki}"},
    "oauth": {
        "resource": "https://tools.example.com/mcp",
        "issuers": {
            "company": {
                "issuer": "https://login.example.com",
                "rules": [{}],
                "introspection": {
                    "url": "https://login.example.com/i",
                    "client_id": "g",
                    "client_secret": "${keyring:wiki}",
                },
            }
        },
    },
}


@pytest.mark.parametrize("section", OURS)
def test_every_secret_of_the_gateways_own_settings_can_be_a_stored_one(
    section: str, monkeypatch: pytest.MonkeyPatch, home: Path
) -> None:
    settings = settings_of({"shortlist": {section: OURS[section]}}, source="here")
    with pytest.raises(InvalidConfig, match="the secret 'wiki' is not stored; run `shortlist secret set wiki`"):
        revealed(settings)
    put(monkeypatch, "wiki", "hidden word")
    found = revealed(settings)
    issuers = [issuer.introspection for issuer in found.oauth.issuers.values()]
    values: list[Any] = [
        found.storage,
        found.search.embedder,
        found.search.reranker,
        found.smart_select and found.smart_select.api_key,
    ]
    values += [issuer.client_secret for issuer in issuers if issuer is not None]
    assert "hidden word" in str(values)
    assert "keyring" not in str(values)


def test_a_stored_address_that_is_no_database_is_refused_without_showing_it() -> None:
    with pytest.raises(InvalidConfig, match="postgresql://") as refused:
        open_storage("mysql://bob:hunter2@db")
    assert "hunter2" not in str(refused.value)


@pytest.mark.parametrize("entry", [{"command": "x", "args": ["--token", "${keyring:a}"]}, {"command": "${keyring:a}"}])
def test_a_secret_in_a_command_line_is_refused(home: Path, entry: dict[str, Any]) -> None:
    with pytest.raises(InvalidConfig, match="visible to other users; put the secret into 'env'"):
        load_settings(configured(home, entry))


def test_a_reference_in_a_header_is_kept_as_it_is(home: Path) -> None:
    entry = {"url": "https://example.com", "headers": {"Authorization": "Bearer ${keyring:a}"}}
    transport = load_settings(configured(home, entry)).servers["lab"].transport
    assert isinstance(transport, HttpTransport)
    assert transport.headers == {"Authorization": "Bearer ${keyring:a}"}
