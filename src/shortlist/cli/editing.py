"""Edits of a configuration file, for the commands and the dashboard; comments and order stay."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from shortlist.catalog.naming import SEPARATOR
from shortlist.config.clients.known import Place, server_entries
from shortlist.config.clients.texts import decoded, format_of, put, read_bytes, remove, replace_file, tree_of
from shortlist.errors import InvalidInput
from shortlist.models import Json, ToolId

Edit: TypeAlias = Callable[[str], str]

OWN_EXPANSIONS = "expansions.txt"
"""Beside the configuration, where it names no other file."""


@dataclass(frozen=True, slots=True)
class ConfigSwitch:
    """Turns servers and tools of a configuration file on and off; comments and order stay."""

    path: Path

    def turn(self, name: str, *, on: bool) -> None:
        """Enable or disable SERVER, SERVER/TOOL or SERVER__TOOL."""
        path = self.path
        server, tool = self._parts(name)
        keys = keys_of(path, server)
        if tool:
            self._turn_tool(keys, tool, on=on)
        elif on:
            change(
                path, lambda text: _kept(_kept(text, path, (*keys, "disabled"), None), path, (*keys, "enabled"), None)
            )
        else:
            change(path, lambda text: put(text, format_of(path), (*keys, "disabled"), True))

    def disabled(self) -> list[str]:
        """Return the servers that are disabled, and the tools as SERVER/TOOL, in the order of the file."""
        entries = {name: _entry(self.path, keys) for name, keys in servers_in(self.path).items()}
        off = [name for name, each in entries.items() if each.get("disabled") is True or each.get("enabled") is False]
        return off + [f"{name}/{tool}" for name, each in entries.items() for tool in _list(each, "disabledTools")]

    def _turn_tool(self, keys: Sequence[str], tool: str, *, on: bool) -> None:
        path, hidden = self.path, _list(_entry(self.path, keys), "disabledTools")
        if on and tool not in hidden:
            raise InvalidInput(
                f"The tool {tool!r} of {keys[-1]!r} is not disabled. Disabled are {', '.join(hidden) or 'none'}."
            )
        left = [each for each in hidden if each != tool] if on else list(dict.fromkeys([*hidden, tool]))
        change(path, lambda text: _kept(text, path, (*keys, "disabledTools"), left or None))

    def _parts(self, name: str) -> tuple[str, str]:
        """Split the name of a tool as `tools` lists it, or as its id is written."""
        present = servers_in(self.path)
        if name in present:
            return name, ""
        for mark in ("/", SEPARATOR):
            for server in present:
                if name.startswith(f"{server}{mark}"):
                    return server, name.removeprefix(f"{server}{mark}")
        server, _, tool = name.partition("/")
        return server, tool


def add_keyword(path: Path, tool: ToolId, keyword: str) -> None:
    """Add a keyword to a tool in a configuration file."""
    server, _, name = tool.partition("/")
    keys = (*keys_of(path, server), "shortlist", "tools", name, "keywords")
    present = _list(_entry(path, keys[:-1]), "keywords")
    change(path, lambda text: put(text, format_of(path), keys, list(dict.fromkeys([*present, keyword]))))


def expansions_of(path: Path) -> Path:
    """Return the first expansion file of a configuration; one beside it is added where there is none."""
    present = _list(_entry(path, ("shortlist",)), "expansions")
    file = path.parent / Path((present or [OWN_EXPANSIONS])[0]).expanduser()
    if not file.exists():
        replace_file(file, b"# What people write => what tools call it\n", expected=None)
    if not present:
        change(path, lambda text: put(text, format_of(path), ("shortlist", "expansions"), [OWN_EXPANSIONS]))
    return file


def servers_in(path: Path) -> dict[str, tuple[str, ...]]:
    """Return the keys that lead to each server of a configuration."""
    raw = read_bytes(path)
    try:
        tree = tree_of(decoded(raw, path), format_of(path))
    except ValueError as error:
        raise InvalidInput(f"{path} cannot be read: {error}. Correct it first.") from None
    return {keys[-1]: keys for keys, _ in server_entries("file", tree, Place())}


def keys_of(path: Path, name: str) -> tuple[str, ...]:
    """Return the keys that lead to a server; raise InvalidInput where there is none of this name."""
    present = servers_in(path)
    if name not in present:
        raise InvalidInput(f"No server {name!r} in {path}. There are {', '.join(present) or 'none'}.")
    return present[name]


def _entry(path: Path, keys: Sequence[str]) -> Mapping[str, Json]:
    tree: Any = tree_of(decoded(read_bytes(path), path), format_of(path))
    for key in keys:
        tree = tree.get(key) if isinstance(tree, Mapping) else None
    return tree if isinstance(tree, Mapping) else {}


def _list(entry: Mapping[str, Json], key: str) -> list[str]:
    return [str(each) for each in entry.get(key) or ()]


def change(path: Path, edit: Edit) -> None:
    """Replace the file by its edited text, unless another program changed it meanwhile."""
    before = read_bytes(path)
    replace_file(path, edit(decoded(before, path)).encode(), expected=before)


def _kept(text: str, path: Path, keys: Sequence[str], value: Json) -> str:
    form = format_of(path)
    return remove(text, form, keys) if value is None else put(text, form, keys, value)
