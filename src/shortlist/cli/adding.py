"""`shortlist add`, `remove`, `enable`, `disable`, `edit`, `restart` and `registry`: servers in your configuration."""

import argparse
import getpass
import hashlib
import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from shortlist.cli.arguments import add_command, add_json, count
from shortlist.cli.asking import confirmed
from shortlist.cli.editing import ConfigSwitch, change, keys_of, servers_in
from shortlist.cli.registries import find_server, registry_url, search, sync, unpack
from shortlist.cli.restarts import request_restart
from shortlist.cli.shown import shown_json
from shortlist.config.clients.registry import Need, Offer, Package, RegistryServer, offers, short_name
from shortlist.config.clients.texts import format_of, put, remove
from shortlist.config.load import settings_of
from shortlist.config.masking import masked
from shortlist.errors import InvalidInput
from shortlist.models import Json
from shortlist.paths import find_config, user_config_path
from shortlist.text.tokens import one_line
from shortlist.web.controls import NewServer, Proposal

OK = 0


def register(subparsers: Any) -> None:
    """Add every command that changes servers."""
    _register_add(subparsers)
    for name, run in (("remove", _remove), ("enable", _enable), ("disable", _disable)):
        parser = add_command(subparsers, name)
        what = "a server" if name == "remove" else "SERVER, or SERVER/TOOL for a single tool"
        parser.add_argument("name", metavar="SERVER" if name == "remove" else "NAME", help=what)
        _common(parser)
        parser.set_defaults(run=run)
    edit = add_command(subparsers, "edit")
    edit.add_argument("--config", type=Path, help="a configuration file (default: your own)")
    edit.set_defaults(run=_edit)
    restart = add_command(subparsers, "restart")
    restart.add_argument("name", metavar="SERVER", help="its name in your configuration")
    _common(restart)
    restart.set_defaults(run=_restart)
    _register_registry(subparsers)


def _register_add(subparsers: Any) -> None:
    parser = add_command(subparsers, "add")
    parser.add_argument(
        "name",
        metavar="NAME",
        help="a name, with the command after -- (add web -- npx …), a URL, or @NAME in a registry",
    )
    parser.add_argument("--as", dest="called", metavar="NAME", help="name of the server in your configuration")
    parser.add_argument(
        "--env",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="an environment variable of the server (repeatable)",
    )
    parser.add_argument(
        "--header", action="append", default=[], metavar="NAME=VALUE", help="an HTTP header for the server (repeatable)"
    )
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="a value that the registry entry requires (repeatable)",
    )
    parser.add_argument("--with", dest="kind", help="how to run it: remote, npm, pypi, nuget, oci or mcpb")
    parser.add_argument("--registry", metavar="URL", help="another registry, by its URL")
    parser.add_argument("--yes", action="store_true", help="add without asking")
    _common(parser)
    parser.set_defaults(run=_add, ask=True)


def _register_registry(subparsers: Any) -> None:
    actions = add_command(subparsers, "registry").add_subparsers(metavar="ACTION", required=True)
    for name, run, what in (
        ("sync", _sync, "save the list of all servers, to search and add offline"),
        ("search", _search, "find servers by words"),
        ("show", _show, "show how a server runs and which values it needs"),
    ):
        parser = add_command(actions, name, what)
        if name == "search":
            parser.add_argument("words", nargs="+", metavar="WORD", help="what the server should do")
            parser.add_argument("--limit", type=count, default=10, help="how many servers to show (default: 10)")
        elif name == "show":
            parser.add_argument("name", help="its name in the registry")
        parser.add_argument("--registry", metavar="URL", help="another registry, by its URL")
        add_json(parser)
        parser.set_defaults(run=run)


def _common(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--config", type=Path, help="a configuration file (default: your own)")
    add_json(parser)


# add


def _add(arguments: argparse.Namespace) -> int:
    name, entry = _wanted(arguments)
    path = _own(arguments)
    _check_new(name, entry, path)
    if not arguments.json:
        print(f"{name}: {_shown(entry)}")
    written = arguments.yes or (not arguments.json and confirmed(f"Add it to {path}?"))
    if written:
        change(path, lambda text: put(text, format_of(path), ("mcpServers", name), entry))
    if arguments.json:
        print(json.dumps({"name": name, "entry": masked(entry), "file": str(path), "written": written}, indent=2))
    else:
        print(
            f"Added. A running gateway has it within a second; check it with: shortlist doctor {shlex.quote(name)}"
            if written
            else "Nothing was written. Add --yes to write it."
        )
    return OK


def _wanted(arguments: argparse.Namespace) -> tuple[str, dict[str, Json]]:
    """Return the name and the entry of what was typed: a registry's name, an address, or a command."""
    if arguments.name.startswith("@"):
        if arguments.following:
            raise InvalidInput("The registry defines the command of this server. Leave out `--` and what follows it.")
        return _from_registry(arguments)
    if arguments.name.startswith(("http://", "https://")):
        headers = _pairs(arguments.header, "--header")
        name = arguments.called or _host_name(arguments.name)
        return name, {"url": arguments.name, **({"headers": headers} if headers else {})}
    if not arguments.following:
        raise InvalidInput(
            f"How is {arguments.name!r} started? Use `shortlist add {arguments.name} -- COMMAND …`, "
            f"`shortlist add https://…`, or `shortlist add @NAME` for a server in a registry."
        )
    environment = _pairs(arguments.env, "--env")
    entry: dict[str, Json] = {"command": arguments.following[0], "args": arguments.following[1:]}
    return arguments.called or arguments.name, entry | ({"env": environment} if environment else {})


def _from_registry(arguments: argparse.Namespace) -> tuple[str, dict[str, Json]]:
    registry = registry_url(arguments.registry)
    server = find_server(arguments.name[1:], registry)
    offer = _chosen(server, arguments.kind)
    if not arguments.json:
        print(_described(server, offer))
    name = arguments.called or short_name(server)
    if isinstance(offer.source, Package) and offer.kind == "mcpb":
        asks = arguments.ask and confirmed(f"Download and unpack {offer.source.identifier}?")
        if not (arguments.yes or asks):
            raise InvalidInput(
                f"The bundle has to be downloaded to see what it runs: `shortlist add {arguments.name} --yes`."
            )
        return name, unpack(offer.source, name)
    given = _pairs(arguments.set, "--set")
    return name, offer.entry(_answers(offer, given, ask=arguments.ask and not arguments.yes))


def _chosen(server: RegistryServer, kind: str | None) -> Offer:
    found = offers(server)
    if not found:
        raise InvalidInput(f"{server.name} offers no package or address that can be used.")
    chosen = next((offer for offer in found if offer.kind == kind), None) if kind else found[0]
    if chosen is None:
        raise InvalidInput(f"{server.name} cannot be run with {kind!r}. There are {', '.join(o.kind for o in found)}.")
    return chosen


def _answers(offer: Offer, given: Mapping[str, str], *, ask: bool) -> dict[str, str]:
    """Collect what a server needs: from the command line, from the environment by reference, or by asking."""
    answers = dict(given)
    for each in offer.asks:
        if each.name in answers or not each.required:
            continue
        if each.name in os.environ:
            answers[each.name] = f"${{{each.name}}}"
        elif ask and sys.stdin.isatty():
            answers[each.name] = _asked(each)
    return answers


def _asked(each: Need) -> str:
    prompt = f"{each.name}{f' ({one_line(each.description, 80)})' if each.description else ''}: "
    return getpass.getpass(prompt) if each.secret else input(prompt)


def _described(server: RegistryServer, offer: Offer) -> str:
    lines = [f"{server.name} {one_line(server.version)}  {one_line(server.description, 100)}", f"runs as: {offer.kind}"]
    for each in offer.asks:
        kind = "secret" if each.secret else "value"
        need = "required" if each.required else f"default {each.default!r}" if each.default else "optional"
        lines.append(f"asks for {one_line(each.name)} ({kind}, {need})  {one_line(each.description, 80)}".rstrip())
    return "\n".join(lines)


def _check_new(name: str, entry: Mapping[str, Json], path: Path) -> None:
    """Refuse a name that is taken, and what the gateway would refuse, before anything is written."""
    if name in servers_in(path):
        raise InvalidInput(f"There is a server {name!r} already. Remove it first, or choose another name (--as NAME).")
    settings_of({"mcpServers": {name: entry}}, source=str(path))


def _shown(entry: Mapping[str, Json]) -> str:
    safe = masked(entry)
    line = safe.get("url") or shlex.join([str(safe.get("command")), *map(str, safe.get("args") or ())])
    pairs = [f"{key}={value}" for part in ("env", "headers") for key, value in (safe.get(part) or {}).items()]
    return one_line(" ".join([str(line), *pairs]))


def _host_name(url: str) -> str:
    host = (urlsplit(url).hostname or "server").removeprefix("mcp.").removeprefix("www.")
    return re.sub(r"\W", "-", host.partition(".")[0]) or "server"


@dataclass(frozen=True, slots=True)
class ConfigEditor:
    """Adds servers to a configuration file and removes them, as `add` and `remove` do; for the dashboard."""

    path: Path

    def propose(self, server: NewServer) -> Proposal:
        name, entry = self._wanted(server)
        return Proposal(name=name, shown=_shown(entry), file=str(self.path), digest=_digest(name, entry))

    def add(self, server: NewServer, digest: str) -> str:
        name, entry = self._wanted(server)
        if _digest(name, entry) != digest:
            raise InvalidInput("What would be added has changed since it was shown. Check it again.")
        change(self.path, lambda text: put(text, format_of(self.path), ("mcpServers", name), entry))
        return name

    def remove(self, name: str) -> None:
        keys = keys_of(self.path, name)
        change(self.path, lambda text: remove(text, format_of(self.path), keys))

    def _wanted(self, server: NewServer) -> tuple[str, dict[str, Json]]:
        is_command = not server.what.startswith(("@", "http://", "https://"))
        if is_command and not (server.what and server.name):
            raise InvalidInput("A server needs a command and a name, a URL, or @NAME in a registry.")
        pairs = [f"{name}={value}" for name, value in server.values.items()]
        try:
            following = shlex.split(server.what) if is_command else []
        except ValueError as error:
            raise InvalidInput(f"{server.what!r} is not a command line: {error}.") from None
        typed = argparse.Namespace(
            name=server.name if is_command else server.what,
            called=server.name or None,
            following=following,
            env=pairs,
            header=pairs,
            set=pairs,
            kind=None,
            registry=None,
            yes=False,
            json=True,
            ask=False,
        )
        name, entry = _wanted(typed)
        _check_new(name, entry, self.path)
        return name, entry


def _digest(name: str, entry: Mapping[str, Json]) -> str:
    return hashlib.sha256(json.dumps([name, entry], sort_keys=True).encode()).hexdigest()


# remove, enable, disable, edit, restart


def _remove(arguments: argparse.Namespace) -> int:
    path = _own(arguments)
    keys = keys_of(path, arguments.name)
    change(path, lambda text: remove(text, format_of(path), keys))
    return _done(arguments, f"Removed {arguments.name!r} from {path}.")


def _disable(arguments: argparse.Namespace) -> int:
    path = _own(arguments)
    ConfigSwitch(path).turn(arguments.name, on=False)
    return _done(arguments, f"Disabled {arguments.name!r} in {path}.")


def _enable(arguments: argparse.Namespace) -> int:
    path = _own(arguments)
    ConfigSwitch(path).turn(arguments.name, on=True)
    return _done(arguments, f"Enabled {arguments.name!r} in {path}.")


def _edit(arguments: argparse.Namespace) -> int:
    """Open the configuration in an editor, and check it afterwards."""
    path = _own(arguments)
    if not path.is_file():
        raise InvalidInput(f"There is no {path} yet. `shortlist setup` or `shortlist add` writes it.")
    editor = os.environ.get("VISUAL") or os.environ.get("EDITOR") or ("notepad" if sys.platform == "win32" else "vi")
    subprocess.run([*shlex.split(editor), str(path)], check=False)  # noqa: S603 - the user's own editor
    from shortlist.cli import main  # noqa: PLC0415 - the check as its own command reports it

    return main(["config", "check", str(path)])


def _restart(arguments: argparse.Namespace) -> int:
    """Make every running gateway restart a server; each watches this file."""
    path = _own(arguments)
    keys_of(path, arguments.name)
    request_restart(arguments.name)
    return _done(arguments, f"A running gateway restarts {arguments.name!r} within a second.")


def _own(arguments: argparse.Namespace) -> Path:
    found = find_config(str(arguments.config) if arguments.config else None)
    return found or user_config_path()


def _done(arguments: argparse.Namespace, text: str) -> int:
    print(json.dumps({"done": text}) if arguments.json else text)
    return OK


def _pairs(texts: Sequence[str], option: str) -> dict[str, str]:
    pairs = [text.partition("=") for text in texts]
    bad = next((text for text, (name, equals, _) in zip(texts, pairs, strict=True) if not equals or not name), None)
    if bad is not None:
        raise InvalidInput(f"{option} takes NAME=VALUE, not {bad!r}.")
    return {name: value for name, _, value in pairs}


# registry


def _sync(arguments: argparse.Namespace) -> int:
    registry = registry_url(arguments.registry)
    number = sync(registry)
    print(
        json.dumps({"registry": registry, "servers": number})
        if arguments.json
        else f"{number:,} servers of {registry}."
    )
    return OK


def _search(arguments: argparse.Namespace) -> int:
    found = search(" ".join(arguments.words), registry_url(arguments.registry), arguments.limit)
    if arguments.json:
        rows = [server.model_dump(include={"name", "version", "description"}) for server in found]
        print(shown_json(rows, indent=2))
    else:
        lines = [f"@{server.name}  {one_line(server.version)}  {one_line(server.description, 80)}" for server in found]
        print("\n".join(lines) or "No server was found. Try other words, or `shortlist registry sync` first.")
    return OK if found else 1


def _show(arguments: argparse.Namespace) -> int:
    server = find_server(arguments.name.removeprefix("@"), registry_url(arguments.registry))
    if arguments.json:
        print(shown_json(server.model_dump(mode="json", by_alias=True), indent=2))
    else:
        for offer in offers(server):
            print(_described(server, offer))
    return OK
