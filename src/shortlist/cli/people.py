"""`shortlist data`: export or erase what is kept about one caller."""

import argparse
import json
from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import asdict
from typing import Any

from shortlist.cli.arguments import add_command, add_json
from shortlist.cli.asking import confirmed
from shortlist.cli.grants import GRANT, login_secrets
from shortlist.cli.logins import caller_key
from shortlist.cli.reading import say
from shortlist.cli.restarts import request_restart
from shortlist.cli.storing import configured_storage
from shortlist.errors import InvalidInput, NothingRecorded
from shortlist.models import Json
from shortlist.storage.port import EventQuery, Storage
from shortlist.storage.secrets import FileSecrets, SharedSecrets
from shortlist.upstream.grants import TokenGrant


def register(subparsers: Any) -> None:
    """Add `data` with its actions."""
    actions = add_command(subparsers, "data").add_subparsers(metavar="ACTION", required=True)
    export = add_command(actions, "export", "print everything that is kept about a caller, one JSON object per line")
    erase = add_command(actions, "erase", "delete it; the audit log keeps a pseudonym")
    for parser, run in ((export, _export), (erase, _erase)):
        parser.add_argument("principal", metavar="PRINCIPAL", type=caller_key, help="the caller, as in token:ci")
        parser.add_argument("--config", help="a configuration file (default: your own)")
        parser.set_defaults(run=run)
    erase.add_argument("--yes", action="store_true", help="do not ask")
    add_json(erase)


def _export(arguments: argparse.Namespace) -> int:
    with closing(configured_storage(arguments.config)) as storage:
        for kind, record in _kept(storage, arguments.principal):
            print(json.dumps({"record": kind, **record}, ensure_ascii=False))
    return 0


def _kept(storage: Storage, principal: str) -> Iterator[tuple[str, dict[str, Json]]]:
    """Yield what is kept about a caller, by kind; credentials and hashes of them are left out."""
    kind, _, name = principal.partition(":")
    for event in _recorded(storage.events.events(EventQuery(caller=name))):
        yield "event", event.json()
    try:
        for pair in storage.exemplars.pairs(caller=name):
            yield "learned", asdict(pair)
    except NothingRecorded:
        pass
    for workspace in storage.workspaces.of_owner(name):
        yield "workspace", {"loaded": dict(workspace.loaded), "used": workspace.used}
    secrets = login_secrets(storage)
    for server, stored in _grants(secrets, principal):
        grant = TokenGrant.load(secrets.get(stored) or "{}")
        yield "grant", {"server": server, "issuer": grant.issuer, "scope": grant.scope, "resource": grant.resource}
    token = storage.tokens.load().get(name) if kind == "token" else None
    if token is not None:
        yield "token", {key: value for key, value in asdict(token).items() if key != "hash"}
    for record in storage.audit.records():
        if record["principal"] == principal:
            yield "audit", record


def _erase(arguments: argparse.Namespace) -> int:
    principal: str = arguments.principal
    if not arguments.yes and not confirmed(f"Delete everything that is kept about {principal!r}?"):
        raise InvalidInput(f"Nothing was deleted. To delete without a question: shortlist data erase {principal} --yes")
    with closing(configured_storage(arguments.config)) as storage:
        counts = _erased(storage, principal)
    if arguments.json:
        print(json.dumps(counts, indent=2))
    say("erased " + ", ".join(f"{count:,} {what}" for what, count in counts.items()))
    say("a running gateway keeps results of its last calls in memory until they expire (limits.result_seconds)")
    return 0


def _erased(storage: Storage, principal: str) -> dict[str, int]:
    kind, _, name = principal.partition(":")
    secrets = login_secrets(storage)
    grants = tuple(_grants(secrets, principal))
    for server, stored in grants:
        secrets.remove(stored)
        request_restart(server)
    try:
        # First what was learned: clearing it takes account of the newest events, which are then erased.
        learned, events = storage.exemplars.clear(caller=name), storage.events.erase(name)
    except NothingRecorded:
        learned = events = 0
    return {
        "events": events,
        "learned pairs": learned,
        "workspaces": storage.workspaces.erase(name),
        "results": storage.results.erase(principal),
        "logins": len(grants),
        "tokens": int(kind == "token" and storage.tokens.remove(name)),
        "pseudonyms": int(storage.audit.erase(principal)),
    }


def _grants(secrets: FileSecrets | SharedSecrets, principal: str) -> Iterator[tuple[str, str]]:
    """Yield the servers that a caller is signed in to, and the name of each grant: `grant:PRINCIPAL:SERVER:URL`."""
    start = f"{GRANT}{principal}:"
    for name in secrets.names():
        server, _, resource = name.removeprefix(start).partition(":")
        if name.startswith(start) and resource.startswith("http"):
            yield server, name


def _recorded(events: Iterable[Any]) -> Iterator[Any]:
    try:
        yield from events
    except NothingRecorded:
        return
