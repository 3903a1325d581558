"""`shortlist config`: the file that is used, its mistakes, its schema and its reference."""

import argparse
import json
from collections.abc import Callable
from typing import Any

from shortlist.cli.arguments import add_command, add_json
from shortlist.cli.shown import shown_json
from shortlist.config.load import load_settings
from shortlist.errors import InvalidConfig, InvalidInput
from shortlist.paths import find_config, user_config_path


def register(subparsers: Any) -> None:
    """Add `config` and its actions."""
    actions = add_command(subparsers, "config").add_subparsers(metavar="ACTION", required=True)
    check = _action(actions, "check", _check, "read the configuration and report mistakes with line and suggestion")
    check.add_argument("file", nargs="?", help="a configuration file (default: your own)")
    add_json(check)
    path = _action(actions, "path", _path, "print which configuration file is used")
    add_json(path)
    _action(actions, "schema", _schema, 'print the JSON Schema of a configuration file, for `"$schema"`')
    _action(actions, "reference", _reference, "print every key with its type, default and an example, as Markdown")


def _action(actions: Any, name: str, run: Callable[[argparse.Namespace], int], what: str) -> argparse.ArgumentParser:
    parser = add_command(actions, name, what)
    parser.set_defaults(run=run)
    return parser


def _check(arguments: argparse.Namespace) -> int:
    path = find_config(arguments.file)
    if path is None:
        raise InvalidInput(f"There is no configuration at {user_config_path()}. `shortlist setup` writes one.")
    try:
        servers = len(load_settings(path).servers)
    except InvalidConfig as error:
        if not arguments.json:
            raise
        print(shown_json({"file": str(path), "valid": False, "problem": str(error)}))
        return 2
    data = {"file": str(path), "valid": True, "servers": servers}
    print(json.dumps(data) if arguments.json else f"{path} is valid: {servers} server{'' if servers == 1 else 's'}.")
    return 0


def _path(arguments: argparse.Namespace) -> int:
    own = user_config_path()
    exists = own.is_file()
    data = {"file": str(own), "exists": exists}
    print(json.dumps(data) if arguments.json else f"{own}{'' if exists else '  (not there yet: `shortlist setup`)'}")
    return 0


def _schema(_: argparse.Namespace) -> int:
    # Reading the texts of every key takes longer than the other actions together.
    from shortlist.config.reference import SCHEMA  # noqa: PLC0415

    print(SCHEMA.read_text("utf-8"), end="")
    return 0


def _reference(_: argparse.Namespace) -> int:
    from shortlist.config.reference import reference  # noqa: PLC0415

    print(reference(), end="")
    return 0
