"""`shortlist login` and `shortlist logout`: sign in to servers that need a login."""

import argparse
import webbrowser
from collections.abc import Iterator
from contextlib import closing, contextmanager
from functools import partial
from typing import Any

import anyio
import anyio.to_thread

from shortlist.cli.arguments import add_command
from shortlist.cli.grants import open_logins
from shortlist.cli.reading import read_settings, say
from shortlist.cli.restarts import request_restart
from shortlist.cli.signing import target_of, waiting_login
from shortlist.cli.stack import run_plainly
from shortlist.storage.opening import open_storage
from shortlist.upstream.grants import SHARED
from shortlist.upstream.login import Logins, LoginTarget


def register(subparsers: Any) -> None:
    """Add `login` and `logout`."""
    login = add_command(subparsers, "login")
    login.add_argument("--no-browser", action="store_true", help="print the link without opening a browser")
    logout = add_command(subparsers, "logout")
    for parser, run in ((login, _login), (logout, _logout)):
        parser.add_argument("server", metavar="SERVER", help="its name in your configuration")
        parser.add_argument(
            "--as",
            dest="principal",
            metavar="CALLER",
            type=caller_key,
            default=SHARED,
            help="the caller whose login it is, as in token:ci, for a server with identity per_principal",
        )
        parser.add_argument("--config", help="a configuration file (default: your own)")
        parser.set_defaults(run=run)


def caller_key(text: str) -> str:
    """Parse a caller as the audit log names it."""
    if text == SHARED:  # the default, which argparse passes through here as well
        return text
    if text.partition(":")[0] not in ("token", "oauth", "owner") or not text.partition(":")[2]:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a caller; write token:NAME, oauth:ISSUER:SUBJECT or owner:local"
        )
    return text


def _login(arguments: argparse.Namespace) -> int:
    target = _target(arguments)
    with _logins(arguments) as logins:
        run_plainly(partial(_sign_in, logins, target, arguments.principal, browser=not arguments.no_browser))
    request_restart(target.server)
    say(f"signed in to {target.server!r}; a running gateway uses it within a second")
    return 0


def _logout(arguments: argparse.Namespace) -> int:
    target = _target(arguments)
    with _logins(arguments) as logins:
        had_one = run_plainly(partial(logins.sign_out, target, arguments.principal))
    if not had_one:
        say(f"nobody was signed in to {target.server!r}")
        return 0
    request_restart(target.server)
    say(f"signed out of {target.server!r}; to revoke the access as well, use the provider's own settings")
    return 0


@contextmanager
def _logins(arguments: argparse.Namespace) -> Iterator[Logins]:
    """Yield the logins that the gateways of this configuration use."""
    with closing(open_storage(read_settings(arguments.config).storage)) as storage:
        yield open_logins(storage)


def _target(arguments: argparse.Namespace) -> LoginTarget:
    return target_of(arguments.server, read_settings(arguments.config).servers)


async def _sign_in(logins: Logins, target: LoginTarget, principal: str, *, browser: bool) -> None:
    """Print the link of a login, wait for its answer on this machine, and store the grant."""
    async with waiting_login(logins, target, principal) as (link, finish):
        say("sign in with a browser on this machine:")
        print(link, flush=True)
        if browser:
            await anyio.to_thread.run_sync(webbrowser.open, link)
        await finish()
