"""`shortlist data`: export or erase what is kept about one caller."""

import argparse
import json
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from dataclasses import asdict, dataclass
from typing import Any

from shortlist.cli.arguments import add_command, add_json
from shortlist.cli.asking import confirmed
from shortlist.cli.grants import GRANT, login_places
from shortlist.cli.logins import caller_key
from shortlist.cli.reading import say
from shortlist.cli.restarts import request_restart
from shortlist.cli.shown import shown_json
from shortlist.cli.storing import configured_storage
from shortlist.errors import InvalidInput, NothingRecorded, StoreError
from shortlist.models import Json
from shortlist.storage.port import EventQuery, Storage
from shortlist.storage.secrets import FileSecrets, SharedSecrets
from shortlist.upstream.grants import TokenGrant


def register(subparsers: Any) -> None:
    """Add `data` with its actions."""
    actions = add_command(subparsers, "data").add_subparsers(metavar="ACTION", required=True)
    export = add_command(actions, "export", "print everything that is kept about a caller, one JSON object per line")
    erase = add_command(
        actions, "erase", "delete everything that is kept about a caller; the audit log keeps a pseudonym"
    )
    for parser, run in ((export, _export), (erase, _erase)):
        parser.add_argument("principal", metavar="PRINCIPAL", type=caller_key, help="the caller, as in token:ci")
        parser.add_argument("--config", help="a configuration file (default: your own)")
        parser.set_defaults(run=run)
    erase.add_argument("--yes", action="store_true", help="do not ask")
    add_json(erase)


def _export(arguments: argparse.Namespace) -> int:
    unread: list[Exception] = []
    with closing(configured_storage(arguments.config)) as storage:
        for kind, record in _kept(storage, arguments.principal, unread.append):
            print(shown_json({"record": kind, **record}))
    if unread:
        say(f"of {len(unread):,} logins only the server is exported: {unread[0]}")
    return 1 if unread else 0


def _kept(
    storage: Storage, principal: str, unread: Callable[[Exception], None]
) -> Iterator[tuple[str, dict[str, Json]]]:
    """Yield what is kept about a caller, by kind; credentials and hashes of them are left out.

    `unread` is told of each login that cannot be decrypted.
    """
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
    for login in _logins(storage, principal):
        try:
            grant = TokenGrant.load(login.place.get(login.name) or "{}")
        except (StoreError, ValueError) as error:
            unread(error)
            yield "grant", {"server": login.server, "resource": login.resource}
            continue
        facts = {"server": login.server, "issuer": grant.issuer, "scope": grant.scope, "resource": grant.resource}
        yield "grant", facts
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
    logins = tuple(_logins(storage, principal))
    for login in logins:
        login.place.remove(login.name)
        request_restart(login.server)
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
        "logins": len({login.name for login in logins}),
        "tokens": int(kind == "token" and storage.tokens.remove(name)),
        "pseudonyms": int(storage.audit.erase(principal)),
    }


@dataclass(frozen=True, slots=True)
class _Login:
    """A login of a caller; its name is `grant:PRINCIPAL:SERVER:URL`."""

    place: FileSecrets | SharedSecrets
    name: str
    server: str
    resource: str


def _logins(storage: Storage, principal: str) -> Iterator[_Login]:
    """Yield the logins of a caller, wherever they are kept."""
    start = f"{GRANT}{principal}:"
    for place in login_places(storage):
        for name in place.names():
            server, _, resource = name.removeprefix(start).partition(":")
            if name.startswith(start) and resource.startswith("http"):
                yield _Login(place, name, server, resource)


def _recorded(events: Iterable[Any]) -> Iterator[Any]:
    try:
        yield from events
    except NothingRecorded:
        return
