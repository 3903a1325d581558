"""How isolated servers are started, and that an isolation that cannot be enforced is refused."""

import os
import subprocess
from pathlib import Path

import pytest

from shortlist.config.load import settings_of
from shortlist.config.settings import IsolationSettings, StdioTransport
from shortlist.errors import InvalidConfig
from shortlist.upstream import isolation
from shortlist.upstream.isolation import CannotIsolate, containered, isolated, sandboxed

COMMAND = ["/usr/bin/node", "server.js"]


def configured(**ours: object) -> IsolationSettings:
    tree = {"mcpServers": {"files": {"command": "node", "shortlist": ours}}}
    transport = settings_of(tree, source="test").servers["files"].transport
    assert isinstance(transport, StdioTransport)
    return transport.isolation


def test_servers_are_not_isolated_unless_the_configuration_says_so() -> None:
    started = isolated(configured(), COMMAND, {"A": "1"}, "/srv")
    assert (started.command, started.environment, started.directory) == (tuple(COMMAND), {"A": "1"}, "/srv")
    assert not started.limits


def test_a_sandbox_has_a_read_only_system_its_own_home_and_the_declared_folders(tmp_path: Path) -> None:
    settings = configured(isolation="sandbox", sandbox={"read": ["/data"], "write": ["~/docs"]})
    line = list(sandboxed(settings, COMMAND, "/srv/app", tmp_path))
    home = str(Path.home())

    assert line[:4] == ["bwrap", "--die-with-parent", "--new-session", "--unshare-all"]
    assert "--share-net" not in line
    binds = [tuple(line[i : i + 3]) for i, word in enumerate(line) if word in ("--bind", "--ro-bind", "--ro-bind-try")]
    assert [bind for bind in binds if bind[0] == "--bind"] == [
        ("--bind", str(tmp_path), home),
        ("--bind", os.path.expanduser("~/docs"), os.path.expanduser("~/docs")),
    ]
    assert ("--ro-bind", "/data", "/data") in binds
    assert ("--ro-bind", "/srv/app", "/srv/app") in binds
    assert not any(target in ("/", "/etc", "/home", "/root", "/var") for _, _, target in binds if target != home)
    assert line[-4:] == ["/srv/app", "--", *COMMAND]


def test_the_network_is_shared_only_where_it_is_allowed(tmp_path: Path) -> None:
    settings = configured(isolation="sandbox", sandbox={"network": True})
    assert "--share-net" in sandboxed(settings, COMMAND, None, tmp_path)


def test_the_folder_of_a_program_outside_of_the_system_can_be_read(tmp_path: Path) -> None:
    (tmp_path / "venv" / "bin").mkdir(parents=True)
    (tmp_path / "python" / "bin").mkdir(parents=True)
    (tmp_path / "python" / "bin" / "python3").touch()
    (tmp_path / "venv" / "bin" / "python").symlink_to(tmp_path / "python" / "bin" / "python3")
    line = list(sandboxed(IsolationSettings(kind="sandbox"), [str(tmp_path / "venv/bin/python")], None, tmp_path))
    assert str(tmp_path / "venv") in line
    assert str(tmp_path / "python") in line


@pytest.mark.parametrize(
    ("program", "readable"),
    [
        ("server", ["server"]),
        ("bin/server", ["bin"]),
        (".local/bin/server", [".local/bin", ".local/lib"]),
        (".cargo/bin/server", [".cargo/bin"]),
        ("code/bin/server", ["code"]),
        ("code/tools/linked", ["bin", "code/tools"]),
        (".ssh/server", [".ssh/server"]),
    ],
)
def test_a_program_in_the_home_folder_shows_nothing_else_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, program: str, readable: list[str]
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    for folder in ("bin", ".local/bin", ".local/lib", ".local/share", ".cargo/bin", "code/bin", "code/tools", ".ssh"):
        (tmp_path / folder).mkdir(parents=True, exist_ok=True)
    (tmp_path / "bin" / "server").touch()
    (tmp_path / "code/tools/linked").symlink_to("../../bin/server")
    line = list(sandboxed(IsolationSettings(kind="sandbox"), [str(tmp_path / program)], None, tmp_path / "own"))
    bound = [line[i + 1] for i, word in enumerate(line) if word == "--ro-bind"]
    assert sorted(bound) == sorted(str(tmp_path / each) for each in readable)


def mounted(line: list[str]) -> list[tuple[str, str]]:
    """Return the folders that are mounted after the home folder, in their order."""
    binds = [(word, line[i + 2]) for i, word in enumerate(line) if word in ("--bind", "--ro-bind")]
    return binds[1:]


def test_of_nested_folders_the_innermost_counts_and_cannot_be_replaced(tmp_path: Path) -> None:
    settings = configured(
        isolation="sandbox", sandbox={"read": ["/w/a/b/ro", "/r"], "write": ["/w", "/r/out", "/w/a/b/ro/in"]}
    )
    assert mounted(list(sandboxed(settings, COMMAND, None, tmp_path))) == [
        ("--ro-bind", "/r"),
        ("--bind", "/w"),
        ("--bind", "/r/out"),
        ("--bind", "/w/a"),
        ("--bind", "/w/a/b"),
        ("--ro-bind", "/w/a/b/ro"),
        ("--bind", "/w/a/b/ro/in"),
    ]
    line = " ".join(containered(settings, ("podman", "box"), COMMAND, {}, None))
    assert line.index("/w:/w ") < line.index("/w/a/b/ro:/w/a/b/ro:ro") < line.index("/w/a/b/ro/in:")


@pytest.mark.skipif(isolation.sandbox_problem() is not None, reason="needs bubblewrap")
def test_a_home_with_a_limit_is_empty_and_full_beyond_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    command = ["/bin/sh", "-c", 'cd "$HOME" && ls -A && head -c 3000000 /dev/zero > much']
    settings = configured(isolation="sandbox", sandbox={"home_megabytes": 2})
    line = list(sandboxed(settings, command, None, tmp_path / "own"))
    done = subprocess.run(line, capture_output=True, timeout=30, check=False)
    assert (done.returncode != 0, done.stdout) == (True, b"")
    assert b"No space left" in done.stderr
    assert "/home/server:size=2m" in containered(settings, ("podman", "box"), COMMAND, {}, None)


def test_a_folder_that_is_both_read_and_written_is_written(tmp_path: Path) -> None:
    settings = configured(isolation="sandbox", sandbox={"read": ["/srv"], "write": ["/srv"]})
    assert mounted(list(sandboxed(settings, COMMAND, "/srv", tmp_path))) == [("--bind", "/srv")]


SCRIPT = """
cd "$1"
touch out/new && touch out/deep/keep/in/new || exit 1
touch out/deep/keep/new && exit 2
touch new && exit 3
mv out/deep out/moved && exit 4
mv out/deep/keep out/deep/other && exit 5
exit 0
"""


@pytest.mark.skipif(isolation.sandbox_problem() is not None, reason="needs bubblewrap")
def test_nested_folders_are_enforced(tmp_path: Path) -> None:
    keep = tmp_path / "out" / "deep" / "keep"
    (keep / "in").mkdir(parents=True)
    (tmp_path / "home").mkdir()
    sandbox = {"read": [str(tmp_path), str(keep)], "write": [str(tmp_path / "out"), str(keep / "in")]}
    command = ["/bin/sh", "-c", SCRIPT, "sh", str(tmp_path)]
    line = list(sandboxed(configured(isolation="sandbox", sandbox=sandbox), command, None, tmp_path / "home"))
    done = subprocess.run(line, capture_output=True, timeout=30, check=False)
    assert done.returncode == 0, done.stderr
    assert (keep / "in" / "new").exists()
    assert not (keep / "new").exists()


@pytest.mark.skipif(isolation.sandbox_problem() is not None, reason="needs bubblewrap")
def test_a_folder_that_the_server_could_have_replaced_by_a_link_is_refused(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "secret").mkdir()
    (tmp_path / "out" / "data").symlink_to(tmp_path / "secret")
    sandbox = {"read": [str(tmp_path / "out" / "data")], "write": [str(tmp_path / "out")]}
    with pytest.raises(CannotIsolate, match="leads out of"):
        isolated(configured(isolation="sandbox", sandbox=sandbox), COMMAND, {}, None)


@pytest.mark.parametrize("name", [".", ".."])
def test_no_server_has_a_name_that_leads_out_of_its_own_home(name: str) -> None:
    with pytest.raises(InvalidConfig, match="rename it"):
        settings_of({"mcpServers": {name: {"command": "node"}}}, source="test")


def test_a_container_is_read_only_bounded_and_shows_no_values_of_variables() -> None:
    settings = configured(
        isolation="container",
        sandbox={
            "image": "node:22-slim",
            "read": ["/data"],
            "write": ["/out"],
            "memory_megabytes": 256,
            "processes": 9,
        },
    )
    line = list(containered(settings, ("podman", "box"), ["node", "s.js"], {"TOKEN": "secret", "PATH": "/x"}, "/srv"))
    said = " ".join(line)

    assert line[:2] == ["podman", "run"]
    for part in ("--network none", "--read-only", "--cap-drop ALL", "no-new-privileges", "--memory 256m", "--name box"):
        assert part in said
    assert "--pids-limit 9" in said
    assert "--env TOKEN" in said
    assert "secret" not in said
    assert "--volume /data:/data:ro" in said
    assert "--volume /out:/out " in said
    assert line[-3:] == ["node:22-slim", "node", "s.js"]


@pytest.mark.parametrize("kind", ["sandbox", "container"])
def test_an_isolation_that_cannot_be_enforced_is_refused(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    isolation.sandbox_problem.cache_clear()
    isolation.container_problem.cache_clear()
    try:
        with pytest.raises(CannotIsolate, match=r"cannot be enforced: .*(installed|Linux only)"):
            isolated(IsolationSettings(kind=kind, server="files", image="x"), COMMAND, {}, None)  # type: ignore[arg-type]
    finally:
        isolation.sandbox_problem.cache_clear()
        isolation.container_problem.cache_clear()


@pytest.mark.parametrize(
    ("entry", "problem"),
    [
        ({"command": "x", "shortlist": {"isolation": "container"}}, "a container needs 'sandbox.image'"),
        ({"url": "https://h", "shortlist": {"isolation": "sandbox"}}, "only local servers can be isolated"),
        ({"command": "x", "shortlist": {"isolation": "chroot"}}, "isolation"),
    ],
)
def test_an_isolation_that_makes_no_sense_is_a_configuration_error(entry: dict[str, object], problem: str) -> None:
    with pytest.raises(InvalidConfig, match=problem):
        settings_of({"mcpServers": {"files": entry}}, source="test")
