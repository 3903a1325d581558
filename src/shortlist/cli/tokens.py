"""`shortlist token`: make, list, revoke and rotate the tokens that let clients in over HTTP."""

import argparse
import json
import re
import time
from argparse import ArgumentTypeError
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, get_args

from shortlist.access.catalog import did_you_mean
from shortlist.access.principal import LOCAL
from shortlist.access.scope import ACTIONS, scope_of, unknown_names
from shortlist.access.tokens import mint, token_settings
from shortlist.cli.arguments import add_command, add_json
from shortlist.cli.reading import read_settings, say
from shortlist.cli.storing import configured_storage
from shortlist.config.settings import Action, Confirm, Settings, TokenSettings, hash_token
from shortlist.errors import InvalidInput, StoreError
from shortlist.models import Json
from shortlist.paths import data_folder
from shortlist.storage.port import StoredToken, TokenStore
from shortlist.storage.private import locked, read_private, write_private

UNITS = {"m": 60, "h": 3_600, "d": 86_400, "w": 7 * 86_400}
USUAL = tuple(action for action in get_args(Action) if action != "admin")
"""What a created token may do unless told otherwise."""


def register(subparsers: Any) -> None:
    """Add `token` with its actions."""
    actions = add_command(subparsers, "token").add_subparsers(metavar="ACTION", required=True)
    create = add_command(actions, "create", "create a token; it is shown once")
    create.add_argument("name", type=_name, help="a name for the token, such as who will use it")
    for option, what in (
        ("--servers", "only these servers, separated by commas"),
        ("--toolsets", "only these toolsets, separated by commas"),
        ("--tools", "only tools that match these globs over tool ids, separated by commas, as in 'wiki/get_*'"),
    ):
        create.add_argument(option, type=_names, help=what)
    create.add_argument("--can", type=_actions, default=USUAL, help=f"what it may do (default: {','.join(USUAL)})")
    create.add_argument("--expires", type=_duration, help="lifetime, as in 12h or 30d (default: unlimited)")
    create.add_argument("--group", help="callers of one group learn from each other's use")
    create.add_argument(
        "--confirm",
        choices=get_args(Confirm),
        default="never",
        help="ask the person before such calls",
    )
    create.add_argument("--config", help="a configuration file, against which names are checked (default: your own)")
    add_json(create)
    create.set_defaults(run=_create)
    listing = add_command(actions, "list", "list the tokens, with their scope and last use")
    add_json(listing)
    listing.set_defaults(run=_list)
    for name, what, run in (
        ("revoke", "revoke a token; running gateways end its connections within a second", _revoke),
        ("rotate", "replace a token by a new one with the same scope; the old one stops working", _rotate),
    ):
        parser = add_command(actions, name, what)
        parser.add_argument("name", help="its name, as `shortlist token list` shows it")
        add_json(parser)
        parser.set_defaults(run=run)


def _create(arguments: argparse.Namespace) -> int:
    settings, store = read_settings(arguments.config), configured_storage(arguments.config).tokens
    if arguments.name in store.load() or arguments.name in settings.tokens:
        raise InvalidInput(
            f"There is a token {arguments.name!r} already. `shortlist token rotate {arguments.name}` replaces it."
        )
    secret, now = mint(), time.time()
    token = StoredToken(
        name=arguments.name,
        hash=hash_token(secret),
        created=now,
        expires=now + arguments.expires if arguments.expires else None,
        servers=arguments.servers,
        toolsets=arguments.toolsets,
        tools=arguments.tools,
        can=arguments.can,
        group=arguments.group,
        confirm=arguments.confirm,
    )
    _check(token, settings)
    _save(store, token, secret)
    _show(token, secret, arguments.json)
    return 0


def _check(token: StoredToken, settings: Settings) -> None:
    """Refuse a scope that names what does not exist, or that depends on what servers say of themselves."""
    wanted = token_settings(token)
    alone = replace(settings, tokens={token.name: wanted})
    for problem in unknown_names(alone):
        names = (*settings.servers, *settings.toolsets)
        raise InvalidInput(f"{problem[:1].upper()}{problem[1:]}. {did_you_mean(problem.split(chr(39))[-2], names)}")
    scope_of(wanted, settings)


def _list(arguments: argparse.Namespace) -> int:
    tokens = configured_storage().tokens.load()
    if arguments.json:
        print(json.dumps({name: _data(token) for name, token in tokens.items()}, indent=2))
        return 0
    if not tokens:
        say("no tokens; `shortlist token create NAME` makes one, and so does the first `shortlist serve --http`")
    for token in tokens.values():
        print(f"{token.name:<24} {_scope(token)}; {_expiry(token)}; {_last_use(token)}")
    return 0


def _revoke(arguments: argparse.Namespace) -> int:
    store = configured_storage().tokens
    _found(store, arguments.name)
    store.remove(arguments.name)
    if arguments.json:
        print(json.dumps({"revoked": arguments.name}))
    say(f"revoked {arguments.name!r}; running gateways end its connections within a second")
    return 0


def _rotate(arguments: argparse.Namespace) -> int:
    store, secret = configured_storage().tokens, mint()
    token = replace(_found(store, arguments.name), hash=hash_token(secret), created=time.time(), last_used=None)
    _save(store, token, secret)
    _show(token, secret, arguments.json)
    return 0


def _found(store: TokenStore, name: str) -> StoredToken:
    tokens = store.load()
    if name not in tokens:
        raise InvalidInput(f"No token {name!r}. {did_you_mean(name, tuple(tokens))}")
    return tokens[name]


def _save(store: TokenStore, token: StoredToken, secret: str) -> None:
    store.put(token)
    if token.name == LOCAL:
        write_private(_own_path(), secret.encode())


def _show(token: StoredToken, secret: str, as_json: bool) -> None:
    if as_json:
        print(json.dumps({"name": token.name, "token": secret, **_data(token)}, indent=2))
        return
    print(secret)
    say(f"this is the token of {token.name!r}: it is not shown again. {_scope(token)}; {_expiry(token)}")
    say(f'a client sends it as the header "Authorization: Bearer {secret[:8]}…"')


def _data(token: StoredToken) -> dict[str, Json]:
    return {
        "servers": list(token.servers) if token.servers is not None else None,
        "toolsets": list(token.toolsets) if token.toolsets is not None else None,
        "tools": list(token.tools) if token.tools is not None else None,
        "can": list(token.can) if token.can is not None else sorted(ACTIONS),
        "group": token.group,
        "confirm": token.confirm,
        "created": token.created,
        "expires": token.expires,
        "last_used": token.last_used,
    }


def _scope(token: StoredToken) -> str:
    parts = {"servers": token.servers, "toolsets": token.toolsets, "tools": token.tools}
    limits = [f"{kind} {', '.join(names)}" for kind, names in parts.items() if names is not None]
    can = "everything" if token.can is None else ", ".join(token.can)
    asked = f"; asks before {token.confirm} calls" if token.confirm != "never" else ""
    return f"{' and '.join(limits) or 'all servers'}; may {can}{asked}"


def _expiry(token: StoredToken) -> str:
    if token.expires is None:
        return "does not expire"
    return f"{'expires' if token.is_valid(time.time()) else 'expired'} {_day(token.expires)}"


def _last_use(token: StoredToken) -> str:
    return f"last used {_day(token.last_used)}" if token.last_used is not None else "never used"


def _day(at: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(at))


# The token of this user


@dataclass(frozen=True, slots=True)
class OwnToken:
    """The token that lets this user's own clients in."""

    secret: str
    settings: TokenSettings
    is_new: bool
    path: Path
    unsaved: StoredToken | None = None
    """The token itself where it could not be saved: then it is valid until the gateway ends."""


def own_token(store: TokenStore) -> OwnToken | None:
    """Return this user's own token, and make it where there are no tokens at all; None where it was revoked."""
    path, secret = _own_path(), mint()
    if tokens := store.load():
        return _known_own(tokens, path)
    token = StoredToken(name=LOCAL, hash=hash_token(secret), created=time.time())
    try:
        with locked(path):
            if tokens := store.load():
                return _known_own(tokens, path)
            write_private(path, secret.encode())
            store.put(token)  # last: a token without its secret would look revoked
    except (OSError, StoreError) as error:
        say(f"warning: the token cannot be saved and is valid until this gateway ends: {error}")
        return OwnToken(secret, token_settings(token), True, path, unsaved=token)
    return OwnToken(secret, token_settings(token), True, path)


def _known_own(tokens: Mapping[str, StoredToken], path: Path) -> OwnToken | None:
    secret = (read_private(path) or b"").decode("utf-8", "replace").strip()
    known = tokens.get(LOCAL)
    if known is None or not secret or known.hash != hash_token(secret):
        return None
    return OwnToken(secret, token_settings(known), False, path)


def _own_path() -> Path:
    return data_folder() / "token"


# Arguments


def _name(text: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,63}", text):
        raise ArgumentTypeError(f"{text!r} is not a name: use 1 to 64 letters, digits, '.', '_', '@' or '-'")
    return text


def _names(text: str) -> tuple[str, ...]:
    found = tuple(name.strip() for name in text.split(",") if name.strip())
    if not found:
        raise ArgumentTypeError("it is empty; leave the option out to allow everything")
    return found


def _actions(text: str) -> tuple[str, ...]:
    chosen = _names(text)
    for action in chosen:
        if action not in ACTIONS:
            raise ArgumentTypeError(f"unknown action {action!r}; choose from {', '.join(get_args(Action))}")
    return chosen


def _duration(text: str) -> float:
    found = re.fullmatch(r"(\d{1,6})([mhdw])", text)
    if found is None or int(found[1]) == 0:
        raise ArgumentTypeError(f"{text!r} is not a duration; write 90m, 12h, 30d or 8w")
    return float(found[1]) * UNITS[found[2]]
