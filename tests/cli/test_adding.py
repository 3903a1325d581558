"""Servers added, switched off and removed from a terminal; comments stay, and a registry that lies is refused."""

import hashlib
import io
import json
import os
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from shortlist.cli import main
from shortlist.cli.adding import _described
from shortlist.config.clients.registry import RegistryServer, offers
from shortlist.config.load import load_settings
from shortlist.config.settings import StdioTransport
from tests.servers.registry import Registry, serve_registry

OWN = """{
  // my servers
  "mcpServers": {
    "git": {"command": "uvx", "args": ["mcp-server-git"]}, // version control
    "web": {
      "url": "https://example.com/mcp"
    }
  }
}
"""


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path))
    for kind in ("CONFIG", "DATA", "CACHE"):
        monkeypatch.setenv(f"XDG_{kind}_HOME", str(tmp_path / kind.lower()))
    path = tmp_path / "config" / "shortlist" / "config.json"
    path.parent.mkdir(parents=True)
    path.write_text(OWN)
    return path


@pytest.fixture
def registry() -> Iterator[Registry]:
    with serve_registry() as server:
        yield server


def servers(path: Path) -> dict[str, Any]:
    return dict(load_settings(path, {"PATH": "/bin"}).servers)


def test_a_command_is_added_and_every_other_character_stays(own: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["add", "memory", "--env", "K=hunter22", "--yes", "--", "npx", "-y", "server-memory", "--fast"]) == 0
    assert "hunter22" not in capsys.readouterr().out
    transport = servers(own)["memory"].transport
    assert isinstance(transport, StdioTransport)
    assert (transport.command, transport.args) == ("npx", ("-y", "server-memory", "--fast"))
    assert transport.environment["K"] == "hunter22"
    assert own.read_text().startswith(OWN.partition("\n    }\n")[0])
    assert main(["remove", "memory"]) == 0
    assert own.read_text() == OWN


def test_nothing_is_added_unasked(own: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["add", "memory", "--", "npx", "server-memory"]) == 0
    assert capsys.readouterr().out == "memory: npx server-memory\nNothing was written. Add --yes to write it.\n"
    assert own.read_text() == OWN


def test_an_address_is_added_under_the_name_of_its_host(own: Path) -> None:
    assert main(["add", "https://mcp.linear.app/mcp", "--header", "Authorization=Bearer ${T:-}", "--yes"]) == 0
    assert servers(own)["linear"].transport.url == "https://mcp.linear.app/mcp"


def test_a_first_server_makes_the_file(own: Path) -> None:
    own.unlink()
    assert main(["add", "a", "--yes", "--", "x"]) == 0
    assert list(servers(own)) == ["a"]


def test_nobody_else_may_write_to_a_folder_that_is_made_for_the_configuration(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "new"))
    before = os.umask(0)
    try:
        assert main(["add", "a", "--yes", "--", "x"]) == 0
    finally:
        os.umask(before)
    made = (tmp_path / "new", tmp_path / "new" / "shortlist", tmp_path / "new" / "shortlist" / "config.json")
    assert [path.stat().st_mode & 0o077 for path in made] == [0, 0, 0]


def test_what_a_registry_says_of_a_server_has_no_terminal_escapes() -> None:
    odd = "1\x1b[2J\x9b2J\u202e"
    remote = {"type": "streamable-http", "url": "https://h/mcp", "headers": [{"name": f"X{odd}", "description": odd}]}
    raw = {"name": "io.example/odd", "version": odd, "description": odd, "remotes": [remote]}
    server = RegistryServer.model_validate(raw)
    said = "".join(_described(server, offer) for offer in offers(server))
    assert "io.example/odd" in said
    assert not {"\x1b", "\x9b", "\u202e"} & set(said)


@pytest.mark.parametrize(
    ("typed", "answer"),
    [
        (["add", "git", "--yes", "--", "x"], "There is a server 'git' already"),
        (["add", "new"], "How is 'new' started?"),
        (["add", "a/b", "--yes", "--", "x"], "a server's name is 1 to 64"),
        (["add", "new", "--env", "K", "--yes", "--", "x"], "--env takes NAME=VALUE, not 'K'"),
        (["add", "new", "--env", "K=${NOPE}", "--yes", "--", "x"], "environment variable 'NOPE' is not set"),
        (["remove", "gti"], "No server 'gti'"),
        (["disable", "gti"], "There are git, web"),
        (["enable", "git/push"], "is not disabled"),
        (["restart", "gti"], "No server 'gti'"),
        (["add", "@a/b", "--registry", "example.com"], "is not the address of a registry"),
    ],
)
def test_a_mistake_is_answered_and_the_file_stays(
    own: Path, typed: list[str], answer: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(typed) == 2
    assert answer in capsys.readouterr().err
    assert own.read_text() == OWN


def test_a_server_and_a_tool_are_disabled_and_enabled_again(own: Path) -> None:
    assert main(["disable", "git"]) == 0
    assert set(servers(own)) == {"web"}
    assert main(["enable", "git"]) == 0
    assert main(["disable", "git/push"]) == 0
    assert main(["disable", "git/reset"]) == 0
    assert servers(own)["git"].exclude == ("push", "reset")
    assert main(["enable", "git/push"]) == 0
    assert servers(own)["git"].exclude == ("reset",)
    assert main(["enable", "git/reset"]) == 0
    assert "// my servers" in own.read_text()
    assert "// version control" in own.read_text()
    assert json.dumps(servers(own)["git"].transport.args) == '["mcp-server-git"]'


def test_a_server_of_a_registry_is_added_with_what_it_asks_for(
    own: Path, registry: Registry, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = ["add", "@com.example/brave-search", "--registry", registry.url, "--yes"]
    assert main(asked) == 2
    said = capsys.readouterr()
    assert "asks for BRAVE_API_KEY (secret, required)  Your key" in said.out
    assert "needs folder, BRAVE_API_KEY: add --set folder=VALUE" in said.err
    assert main([*asked, "--set", "folder=/srv", "--set", "BRAVE_API_KEY=hunter22"]) == 0
    assert "hunter22" not in capsys.readouterr().out
    transport = servers(own)["brave-search"].transport
    assert (transport.command, transport.args) == (
        "npx",
        ("-y", "@example/brave-search@1.2.0", "--mode", "stdio", "/srv"),
    )
    assert (transport.environment["BRAVE_API_KEY"], transport.environment["BRAVE_REGION"]) == ("hunter22", "us")


def test_a_secret_in_the_environment_is_added_by_reference(
    own: Path, registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BRAVE_API_KEY", "hunter22")
    asked = ["add", "@com.example/brave-search", "--registry", registry.url, "--with", "oci", "--yes"]
    assert main(asked) == 0
    assert "hunter22" not in own.read_text()
    entry = json.loads(own.read_text().replace("// my servers", "").replace("// version control", ""))
    assert entry["mcpServers"]["brave-search"] == {
        "command": "docker",
        "args": [
            *("run", "-i", "--rm", "-e", "BRAVE_API_KEY", "--network", "host"),
            "docker.io/example/brave-search:1.2.0",
        ],
        "env": {"BRAVE_API_KEY": "${BRAVE_API_KEY}"},
    }


@pytest.mark.parametrize(
    ("name", "kind", "command", "args"),
    [
        ("com.example/weather", "pypi", "uvx", ("example-weather@0.3.1",)),
        ("com.example/weather", "nuget", "dnx", ("Example.Weather@0.3.1", "--yes")),
    ],
)
def test_every_kind_of_package_has_its_runner(
    own: Path, registry: Registry, name: str, kind: str, command: str, args: tuple[str, ...]
) -> None:
    assert main(["add", f"@{name}", "--registry", registry.url, "--with", kind, "--yes"]) == 0
    transport = servers(own)["weather"].transport
    assert (transport.command, transport.args) == (command, args)


def test_a_remote_of_a_registry_is_filled_in(own: Path, registry: Registry) -> None:
    given = ["--set", "tenant=acme", "--set", "token=t0ken"]
    assert main(["add", "@com.example/remote", "--registry", registry.url, "--yes", *given]) == 0
    transport = servers(own)["remote"].transport
    assert transport.url == "https://acme.example.com/mcp"
    assert transport.headers == {"Authorization": "Bearer t0ken"}


def test_a_snapshot_holds_current_servers_and_answers_without_a_network(
    own: Path, registry: Registry, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["registry", "sync", "--registry", registry.url, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["servers"] == 4
    asked = len(registry.asked)
    assert main(["registry", "search", "web", "search", "--registry", registry.url, "--json"]) == 0
    assert [row["name"] for row in json.loads(capsys.readouterr().out)] == ["com.example/brave-search"]
    assert main(["registry", "show", "com.example/weather", "--registry", registry.url]) == 0
    assert "com.example/weather 0.3.1" in capsys.readouterr().out
    assert main(["add", "@com.example/weather", "--registry", registry.url, "--yes"]) == 0
    assert main(["registry", "search", "xyzzy", "--registry", registry.url, "--json"]) == 1
    assert len(registry.asked) == asked


@pytest.mark.parametrize(
    ("status", "body", "answer"),
    [
        (500, b"", "answered HTTP 500"),
        (404, b"", "is not there (HTTP 404)"),
        (200, b"<html>", "does not answer with JSON"),
        (200, b"[]", "does not answer as a registry does"),
        (200, b'{"server": {"name": "../../etc", "packages": "no"}}', "describes a server that cannot be used"),
        (
            200,
            b'{"server": {"name": "a/b", "packages": [{"registryType": "npm", "identifier": "--evil"}]}}',
            "describes a server that cannot be used",
        ),
        (200, b'{"server": {"name": "a/b"}}', "offers no package or address"),
    ],
)
def test_a_registry_that_is_down_or_lies_is_refused(
    own: Path, registry: Registry, status: int, body: bytes, answer: str, capsys: pytest.CaptureFixture[str]
) -> None:
    registry.answers["/v0.1/servers/a%2Fb/versions/latest"] = (status, body)
    assert main(["add", "@a/b", "--registry", registry.url, "--yes"]) in (1, 2)
    assert answer in capsys.readouterr().err
    assert own.read_text() == OWN


def test_a_registry_that_cannot_be_reached_is_named(own: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["registry", "sync", "--registry", "http://127.0.0.1:9"]) == 1
    assert "http://127.0.0.1:9/v0.1/servers" in capsys.readouterr().err


def bundle(**files: str) -> bytes:
    held = io.BytesIO()
    with zipfile.ZipFile(held, "w") as archive:
        for name, text in files.items():
            archive.writestr(name.replace("__", "/"), text)
    return held.getvalue()


MANIFEST = json.dumps({"server": {"mcp_config": {"command": "node", "args": ["${__dirname}/index.js"]}}})


@pytest.mark.parametrize(
    ("data", "lie", "answer"),
    [
        (bundle(**{"manifest.json": MANIFEST, "index.js": ""}), False, ""),
        (bundle(**{"manifest.json": MANIFEST}), True, "does not have the SHA-256"),
        (bundle(**{"manifest.json": "{}"}), False, "is not a bundle that can be used"),
        (bundle(**{"..__..__evil": "x", "manifest.json": MANIFEST}), False, "it contains the path"),
        (b"no zip", False, "is not a bundle that can be used"),
    ],
)
def test_a_bundle_is_checked_before_it_is_unpacked(  # noqa: PLR0917
    own: Path,
    registry: Registry,
    tmp_path: Path,
    data: bytes,
    lie: bool,
    answer: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    digest = hashlib.sha256(b"other" if lie else data).hexdigest()
    package = {"registryType": "mcpb", "identifier": f"{registry.url}/a.mcpb", "fileSha256": digest}
    described = json.dumps({"server": {"name": "a/b", "version": "1", "packages": [package]}}).encode()
    registry.answers["/v0.1/servers/a%2Fb/versions/latest"] = (200, described)
    registry.answers["/a.mcpb"] = (200, data)
    status = main(["add", "@a/b", "--registry", registry.url, "--yes"])
    assert (status == 0) == (not answer)
    assert answer in capsys.readouterr().err
    if not answer:
        assert Path(servers(own)["b"].transport.args[0]).read_text() == ""
    assert not (tmp_path.parent / "evil").exists()
