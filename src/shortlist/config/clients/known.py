"""The MCP clients that are known: where each keeps its servers, in which form, and what our entry looks like there."""

import os
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeAlias

from shortlist.models import Json

ClientName: TypeAlias = Literal[
    "claude-desktop",
    "claude-code",
    "cursor",
    "vscode",
    "windsurf",
    "gemini",
    "codex",
    "zed",
    "copilot",
    "cline",
    "goose",
    "lm-studio",
    "file",
]
ServerEntry: TypeAlias = dict[str, Json]

OURS = "shortlist"


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where the files of clients may be."""

    home: Path = field(default_factory=Path.home)
    project: Path = field(default_factory=Path.cwd)
    platform: str = sys.platform
    environment: Mapping[str, str] = field(default_factory=lambda: os.environ, repr=False)

    @property
    def applications(self) -> Path:
        """Return the folder in which desktop programs keep their settings on this system."""
        if self.platform == "darwin":
            return self.home / "Library" / "Application Support"
        if self.platform == "win32":
            return Path(self.environment.get("APPDATA") or self.home / "AppData" / "Roaming")
        return Path(self.environment.get("XDG_CONFIG_HOME") or self.home / ".config")

    @property
    def dotconfig(self) -> Path:
        """Return the folder of programs that use ~/.config on macOS as well."""
        return self.applications if self.platform == "win32" else self.home / ".config"


@dataclass(frozen=True, slots=True)
class Launch:
    """How a client starts the gateway."""

    command: str
    args: tuple[str, ...]


def _plain(launch: Launch) -> ServerEntry:
    return {"command": launch.command, "args": list(launch.args)}


def _as_it_is(entry: ServerEntry) -> ServerEntry | None:
    return entry


def _no_files(_: Place) -> tuple[Path, ...]:
    return ()


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownClient:
    """One client: its user's file, the keys that lead to its servers, and its words for them."""

    name: ClientName
    title: str
    file: Callable[[Place], Path]
    more: Callable[[Place], tuple[Path, ...]] = _no_files
    """Further files that hold servers, which are imported from and never changed."""
    keys: tuple[str, ...] = ("mcpServers",)
    write: Callable[[Launch], ServerEntry] = _plain
    read: Callable[[ServerEntry], ServerEntry | None] = _as_it_is
    """Translate one of its servers into our words; None for what is not an MCP server to start or reach."""
    restart: str = "Restart it to load the change."


def _typed(kind: str) -> Callable[[Launch], ServerEntry]:
    return lambda launch: {"type": kind, "command": launch.command, "args": list(launch.args)}


def _write_zed(launch: Launch) -> ServerEntry:
    return {"source": "custom", "command": launch.command, "args": list(launch.args), "env": {}}


def _write_copilot(launch: Launch) -> ServerEntry:
    return {"type": "local", "command": launch.command, "args": list(launch.args), "tools": ["*"]}


def _write_cline(launch: Launch) -> ServerEntry:
    return {"command": launch.command, "args": list(launch.args), "disabled": False, "autoApprove": []}


def _write_goose(launch: Launch) -> ServerEntry:
    return {
        "name": OURS,
        "type": "stdio",
        "enabled": True,
        "cmd": launch.command,
        "args": list(launch.args),
        "envs": {},
        "timeout": 300,
    }


def _read_zed(entry: ServerEntry) -> ServerEntry | None:
    command = entry.get("command")
    if isinstance(command, dict):  # as it was written before 2025
        return {"command": command.get("path"), **{key: command[key] for key in ("args", "env") if command.get(key)}}
    return entry if command or entry.get("url") else None


def _read_goose(entry: ServerEntry) -> ServerEntry | None:
    kind = entry.get("type")
    found: ServerEntry
    if kind == "stdio":
        found = {"command": entry.get("cmd"), "args": entry.get("args") or []}
        envs = {**(entry.get("envs") or {}), **{key: f"${{{key}}}" for key in entry.get("env_keys") or ()}}
        found |= {"env": envs} if envs else {}
    elif kind in ("streamable_http", "sse"):
        found = {"type": "sse" if kind == "sse" else "http", "url": entry.get("uri")}
        found |= {"headers": entry["headers"]} if entry.get("headers") else {}
    else:
        return None
    return found | ({} if entry.get("enabled", True) else {"disabled": True})


_CODEX_KEYS = {"env_vars": "inherit_env", "enabled_tools": "includeTools", "disabled_tools": "disabledTools"}
_CODEX_TIMES = {"startup_timeout_sec": "start_timeout", "tool_timeout_sec": "timeout"}


def _read_codex(entry: ServerEntry) -> ServerEntry:
    found = {_CODEX_KEYS.get(key, key): value for key, value in entry.items() if key not in _CODEX_TIMES}
    headers = dict(found.pop("http_headers", None) or {})
    headers |= {name: f"${{{variable}}}" for name, variable in (found.pop("env_http_headers", None) or {}).items()}
    if variable := found.pop("bearer_token_env_var", None):
        headers["Authorization"] = f"Bearer ${{{variable}}}"
    times = {ours: entry[theirs] for theirs, ours in _CODEX_TIMES.items() if theirs in entry}
    return found | ({"headers": headers} if headers else {}) | ({"shortlist": times} if times else {})


CLIENTS: tuple[KnownClient, ...] = (
    KnownClient(
        name="claude-desktop",
        title="Claude Desktop",
        file=lambda place: place.applications / "Claude" / "claude_desktop_config.json",
        restart="Quit and start Claude Desktop to load the change.",
    ),
    KnownClient(
        name="claude-code",
        title="Claude Code",
        file=lambda place: place.home / ".claude.json",
        more=lambda place: (place.project / ".mcp.json",),
        write=_typed("stdio"),
        restart="Start a new Claude Code session to load the change.",
    ),
    KnownClient(
        name="cursor",
        title="Cursor",
        file=lambda place: place.home / ".cursor" / "mcp.json",
        more=lambda place: (place.project / ".cursor" / "mcp.json",),
        restart="Cursor loads the change by itself; see Settings, MCP.",
    ),
    KnownClient(
        name="vscode",
        title="VS Code",
        file=lambda place: place.applications / "Code" / "User" / "mcp.json",
        more=lambda place: (
            place.applications / "Code" / "User" / "settings.json",
            place.project / ".vscode" / "mcp.json",
        ),
        keys=("servers",),
        write=_typed("stdio"),
        restart="Run 'MCP: List Servers' in VS Code and start shortlist.",
    ),
    KnownClient(
        name="windsurf",
        title="Windsurf",
        file=lambda place: place.home / ".codeium" / "windsurf" / "mcp_config.json",
        restart="Refresh the MCP servers in Windsurf to load the change.",
    ),
    KnownClient(
        name="gemini",
        title="Gemini CLI",
        file=lambda place: place.home / ".gemini" / "settings.json",
        more=lambda place: (place.project / ".gemini" / "settings.json",),
    ),
    KnownClient(
        name="codex",
        title="Codex",
        file=lambda place: Path(place.environment.get("CODEX_HOME") or place.home / ".codex") / "config.toml",
        keys=("mcp_servers",),
        read=_read_codex,
    ),
    KnownClient(
        name="zed",
        title="Zed",
        file=lambda place: (
            (place.applications / "Zed" if place.platform == "win32" else place.dotconfig / "zed") / "settings.json"
        ),
        keys=("context_servers",),
        write=_write_zed,
        read=_read_zed,
        restart="Zed loads the change by itself.",
    ),
    KnownClient(
        name="copilot",
        title="Copilot CLI",
        file=lambda place: place.home / ".copilot" / "mcp-config.json",
        write=_write_copilot,
    ),
    KnownClient(
        name="cline",
        title="Cline",
        file=lambda place: (
            place.applications / "Code/User/globalStorage/saoudrizwan.claude-dev/settings/cline_mcp_settings.json"
        ),
        write=_write_cline,
        restart="Cline loads the change by itself.",
    ),
    KnownClient(
        name="goose",
        title="Goose",
        file=lambda place: (
            place.applications / "Block" / "goose" / "config" / "config.yaml"
            if place.platform == "win32"
            else place.dotconfig / "goose" / "config.yaml"
        ),
        keys=("extensions",),
        write=_write_goose,
        read=_read_goose,
        restart="Start a new Goose session to load the change.",
    ),
    KnownClient(
        name="lm-studio",
        title="LM Studio",
        file=lambda place: place.home / ".lmstudio" / "mcp.json",
        restart="LM Studio loads the change by itself.",
    ),
)


def client_named(name: str) -> KnownClient:
    return next(client for client in CLIENTS if client.name == name)


def well_known_files(place: Place) -> tuple[tuple[ClientName, Path], ...]:
    """List every file that a client may keep its servers in, whether it is there or not."""
    return tuple((client.name, path) for client in CLIENTS for path in (client.file(place), *client.more(place)))


def is_installed(client: KnownClient, place: Place) -> bool:
    """Return whether a client is installed: its file or the folder for it exists."""
    file = client.file(place)
    return file.exists() or (file.parent.is_dir() and file.parent != place.home)


_COMMON: tuple[tuple[str, ...], ...] = (("mcpServers",), ("servers",), ("mcp", "servers"))
"""Where files of several clients have their servers."""


def server_entries(
    client: ClientName, tree: Mapping[str, Any], place: Place
) -> Iterator[tuple[tuple[str, ...], ServerEntry]]:
    """Yield each server of a client's file: the keys that lead to it, and its entry in our words."""
    known = [client_named(client)] if client != "file" else list(CLIENTS)
    groups = (*_COMMON, *(each.keys for each in known), ("projects", str(place.project), "mcpServers"))
    for keys in dict.fromkeys(groups):
        read = next((each.read for each in known if each.keys == keys), _as_it_is)
        group: Any = tree
        for key in keys:
            group = group.get(key) if isinstance(group, Mapping) else None
        for name, raw in group.items() if isinstance(group, Mapping) else ():
            entry = read(dict(raw)) if isinstance(raw, Mapping) else None
            if entry is not None:
                yield (*keys, name), entry
