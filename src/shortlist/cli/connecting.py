"""`shortlist connect`, `disconnect` and `setup`: the gateway in the configuration of MCP clients."""

import argparse
import shlex
import sys
from pathlib import Path
from typing import Any

from shortlist.cli.arguments import add_command, add_json
from shortlist.cli.asking import confirmed
from shortlist.cli.importing import described
from shortlist.cli.shown import shown_json
from shortlist.config.clients.connecting import (
    ConnectPlan,
    Disconnection,
    connect,
    disconnect,
    plan_connection,
    plan_disconnection,
)
from shortlist.config.clients.importing import Plan, apply, plan_import
from shortlist.config.clients.known import (
    CLIENTS,
    KnownClient,
    Launch,
    Place,
    client_named,
    is_installed,
    well_known_files,
)
from shortlist.errors import InvalidInput
from shortlist.models import Json
from shortlist.paths import data_folder, user_config_path
from shortlist.text.tokens import one_line

NAMES = tuple(client.name for client in CLIENTS)
_EPHEMERAL = ("archive-v0", "uv/cache", "uv\\cache")
"""Parts of the path of an environment that `uvx` made and may delete."""


def register(subparsers: Any) -> None:
    """Add `connect`, `disconnect` and `setup`."""
    parser = add_command(subparsers, "connect")
    parser.add_argument(
        "clients",
        nargs="*",
        metavar="CLIENT",
        help=f"clients to connect (default: all that are found): {', '.join(NAMES)}",
    )
    parser.add_argument("--keep-servers", action="store_true", help="leave the client's own servers where they are")
    parser.add_argument(
        "--config", type=Path, help="the configuration to serve and to move servers to (default: yours)"
    )
    parser.add_argument("--yes", action="store_true", help="write without asking")
    add_json(parser)
    parser.set_defaults(run=_connect)
    undo = add_command(subparsers, "disconnect")
    undo.add_argument(
        "clients", nargs="*", metavar="CLIENT", help="clients to disconnect (default: all that are connected)"
    )
    undo.add_argument("--yes", action="store_true", help="write without asking")
    add_json(undo)
    undo.set_defaults(run=_disconnect)
    setup = add_command(subparsers, "setup")
    setup.add_argument("--config", type=Path, help="the configuration to write (default: your own)")
    setup.add_argument("--yes", action="store_true", help="write without asking")
    setup.add_argument("--no-check", action="store_true", help="do not start the servers to check them")
    setup.set_defaults(run=_setup)


def launch(config: Path | None = None) -> Launch:
    """Return the command that starts this very installation, by its whole path: few clients know your PATH."""
    own = Path(sys.executable).with_name("shortlist.exe" if sys.platform == "win32" else "shortlist")
    arguments = ("serve", *(("--config", str(config.resolve())) if config else ()))
    if any(part in str(own) for part in _EPHEMERAL):
        return Launch("uvx", ("shortlist-mcp", *arguments))
    return Launch(str(own) if own.exists() else "shortlist", arguments)


def _connect(arguments: argparse.Namespace) -> int:
    place = Place()
    target = arguments.config or user_config_path(place.environment)
    plans = [
        plan_connection(client, place, target, launch(arguments.config), keep=arguments.keep_servers)
        for client in _chosen(arguments.clients, place)
    ]
    pending = [plan for plan in plans if plan.changes]
    if not arguments.json:
        for plan in plans:
            print(_described(plan))
        if not plans:
            print(f"No client was found. Name one: shortlist connect {NAMES[0]}. Known are {', '.join(NAMES)}.")
    names = ", ".join(plan.client.title for plan in pending)
    written = bool(pending) and (arguments.yes or (not arguments.json and confirmed(f"Connect {names}?")))
    if written:
        _write(pending, place, target, arguments)
    if arguments.json:
        print(shown_json([_data(plan, written) for plan in plans], indent=2))
    elif pending and not written:
        print(f"Nothing was written. To connect: {_again('connect', arguments)} --yes")
    return 0


def _write(plans: list[ConnectPlan], place: Place, target: Path, arguments: argparse.Namespace) -> None:
    """Connect one after the other; each plan is made again, since the ones before it have changed our own file."""
    for plan in plans:
        fresh = plan_connection(plan.client, place, target, launch(arguments.config), keep=arguments.keep_servers)
        backup = connect(fresh, _records())
        if not arguments.json:
            count = len(fresh.moved)
            moved = f" {count} server{'' if count == 1 else 's'} moved to {target}." if count else ""
            print(f"{plan.client.title} is connected.{moved} {plan.client.restart} (backup: {backup})")


def _disconnect(arguments: argparse.Namespace) -> int:
    place = Place()
    asked = [_named(name) for name in arguments.clients] or list(CLIENTS)
    plans = [plan_disconnection(client, place, _records()) for client in asked]
    pending = [plan for plan in plans if plan.changes]
    if not arguments.json:
        for plan in pending:
            exact = "restored byte for byte" if plan.exact else "edited since: our entry goes, its servers come back"
            print(f"{plan.client.title}  {plan.path}  ({exact})\n{plan.diff()}\n")
    names = ", ".join(plan.client.title for plan in pending)
    written = bool(pending) and (arguments.yes or (not arguments.json and confirmed(f"Disconnect {names}?")))
    for plan in pending if written else ():
        disconnect(plan, _records())
    if arguments.json:
        print(shown_json([_undone(plan, written) for plan in pending], indent=2))
    elif not pending:
        print("No client is connected.")
    elif written:
        print(f"Disconnected {names}. Your servers stay in {user_config_path(place.environment)} as well.")
    else:
        print(f"Nothing was written. To disconnect: {_again('disconnect', arguments)} --yes")
    return 0


def _setup(arguments: argparse.Namespace) -> int:
    """Import, connect and check, with one question."""
    place = Place()
    target = arguments.config or user_config_path(place.environment)
    imports = plan_import(well_known_files(place), target, place)
    plans = [plan_connection(client, place, target, launch(arguments.config)) for client in _chosen((), place)]
    pending = [plan for plan in plans if plan.changes]
    _show_setup(imports, plans, target)
    if imports.additions or pending:
        if not (arguments.yes or confirmed("Write this?")):
            print(f"Nothing was written. To do it: {_again('setup', arguments)} --yes")
            return 0
        if imports.additions:
            apply(imports)
        arguments.keep_servers, arguments.json = False, False
        _write(pending, place, target, arguments)
    elif not plans:
        print(
            f"No client was found. Add a server with: shortlist add NAME -- COMMAND. Then connect a client: "
            f"shortlist connect CLIENT, where CLIENT is {', '.join(NAMES[:-1])} or {NAMES[-1]}."
        )
    if arguments.no_check or not target.is_file():
        return 0
    # Checking starts servers, and so needs the client of their protocol.
    from shortlist.cli.doctor import examine  # noqa: PLC0415

    return examine(target)


def _show_setup(imports: Plan, plans: list[ConnectPlan], target: Path) -> None:
    names = ", ".join(one_line(each.name) for each in imports.additions)
    print(f"Servers to add to {target}: {names or 'none'}")
    for each in imports.additions:
        print(f"  + {one_line(each.name)}: {described(each)}")
    for problem in imports.problems:
        print(f"! {one_line(problem)}")
    for each in imports.candidates:
        if each.verdict == "left_out" and "this gateway" not in each.reason:
            print(f"! {each.name} of {each.client} stays where it is: {one_line(each.reason)}")
    for plan in plans:
        print(f"\n{_described(plan)}", end="")


def _chosen(names: list[str] | tuple[str, ...], place: Place) -> list[KnownClient]:
    return [_named(name) for name in names] or [client for client in CLIENTS if is_installed(client, place)]


def _named(name: str) -> KnownClient:
    if name not in NAMES:
        raise InvalidInput(f"No client {name!r} is known. There are {', '.join(NAMES)}.")
    return client_named(name)


def _described(plan: ConnectPlan) -> str:
    if not plan.changes:
        return f"{plan.client.title}  {plan.path}  (already connected)\n"
    lines = [f"{plan.client.title}  {plan.path}", plan.diff()]
    lines += [f"! {one_line(each.name)} stays here: {one_line(each.reason)}" for each in plan.stays]
    return "\n".join(lines) + "\n"


def _again(command: str, arguments: argparse.Namespace) -> str:
    options = ["--keep-servers"] if getattr(arguments, "keep_servers", False) else []
    config = ["--config", str(arguments.config)] if getattr(arguments, "config", None) else []
    return shlex.join(["shortlist", command, *getattr(arguments, "clients", ()), *options, *config])


def _data(plan: ConnectPlan, written: bool) -> dict[str, Json]:
    return {
        "client": plan.client.name,
        "file": str(plan.path),
        "changes": plan.changes,
        "written": written and plan.changes,
        "moved": [each.keys[-1] for each in plan.moved],
        "stays": {each.name: each.reason for each in plan.stays},
        "diff": plan.diff(),
    }


def _undone(plan: Disconnection, written: bool) -> dict[str, Json]:
    return {
        "client": plan.client.name,
        "file": str(plan.path),
        "written": written,
        "exact": plan.exact,
        "diff": plan.diff(),
    }


def _records() -> Path:
    return data_folder() / "connections"
