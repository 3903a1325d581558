"""`shortlist secret`: store, list and remove the secrets that a configuration names as `${keyring:NAME}`."""

import argparse
import getpass
import json
import re
import sys
from typing import Any

from shortlist.access.catalog import did_you_mean
from shortlist.cli.arguments import add_command, add_json
from shortlist.cli.reading import read_settings, say
from shortlist.cli.restarts import request_restart
from shortlist.cli.vault import SECRET
from shortlist.config.settings import HttpTransport, ServerSettings, SseTransport, StdioTransport
from shortlist.errors import InvalidInput
from shortlist.paths import data_folder
from shortlist.storage.secrets import FileSecrets

MOST_CHARACTERS = 64 * 1024


def register(subparsers: Any) -> None:
    """Add `secret` with its actions."""
    actions = add_command(subparsers, "secret").add_subparsers(metavar="ACTION", required=True)
    put = add_command(actions, "set", "store a secret; its value is read from a prompt or from stdin")
    put.add_argument("name", type=_name, help="its name, as in ${keyring:NAME}")
    put.add_argument("--config", help="the configuration whose servers use it (default: your own)")
    put.set_defaults(run=_set)
    listing = add_command(actions, "list", "list the names of the stored secrets, and say where their key is")
    add_json(listing)
    listing.set_defaults(run=_list)
    remove = add_command(actions, "remove", "delete a secret")
    remove.add_argument("name", help="its name, as `shortlist secret list` shows it")
    remove.set_defaults(run=_remove)


def _set(arguments: argparse.Namespace) -> int:
    value = getpass.getpass(f"{arguments.name}: ") if sys.stdin.isatty() else sys.stdin.read(MOST_CHARACTERS + 1)
    value = value.rstrip("\r\n")
    if not value or len(value) > MOST_CHARACTERS:
        raise InvalidInput(f"The value of {arguments.name!r} must have 1 to {MOST_CHARACTERS:,} characters.")
    store = FileSecrets(data_folder())
    store.put(f"{SECRET}{arguments.name}", value)
    say(f"stored {arguments.name!r}, encrypted with a key in {store.key_place}")
    for name, server in read_settings(arguments.config, reveal=False).servers.items():
        if refers_to(server, arguments.name):
            request_restart(name)
            say(f"a running gateway restarts {name!r} within a second")
    return 0


def _list(arguments: argparse.Namespace) -> int:
    store, names = FileSecrets(data_folder()), _names()
    if arguments.json:
        print(json.dumps({"names": names, "key": store.key_place}, indent=2))
        return 0
    for name in names:
        print(name)
    say(f"{len(names)} secrets; their key is in {store.key_place}")
    return 0


def _remove(arguments: argparse.Namespace) -> int:
    if not FileSecrets(data_folder()).remove(f"{SECRET}{arguments.name}"):
        raise InvalidInput(f"No secret {arguments.name!r}. {did_you_mean(arguments.name, _names())}")
    say(f"removed {arguments.name!r}; servers that are running keep it until they start again")
    return 0


def _names() -> tuple[str, ...]:
    names = FileSecrets(data_folder()).names()
    return tuple(name.removeprefix(SECRET) for name in names if name.startswith(SECRET))


def refers_to(server: ServerSettings, name: str) -> bool:
    """Return whether a server's entry refers to a stored secret."""
    match server.transport:
        case StdioTransport(environment=values):
            texts = [*values.values()]
        case HttpTransport(url=url, headers=values, oauth=oauth) | SseTransport(url=url, headers=values, oauth=oauth):
            texts = [url, *values.values(), oauth.client_secret or ""]
        case _:
            texts = []
    return any(f"${{keyring:{name}}}" in text for text in texts)


def _name(text: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9][\w.@-]{0,99}", text):
        raise argparse.ArgumentTypeError(f"{text!r} is not a name: use 1 to 100 letters, digits, '.', '_', '@' or '-'")
    return text
