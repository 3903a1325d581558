"""`shortlist login` and `shortlist logout`: sign in to servers that need a login."""

import argparse
import webbrowser
from collections.abc import Mapping
from functools import partial
from typing import Any
from urllib.parse import parse_qs, urlsplit

import anyio
import anyio.to_thread
from anyio.abc import SocketAttribute, SocketStream

from shortlist.access.catalog import did_you_mean
from shortlist.cli.arguments import add_command
from shortlist.cli.grants import open_logins, stored_secret
from shortlist.cli.restarts import request_restart
from shortlist.cli.stack import read_settings, run_plainly, say
from shortlist.config.settings import MemoryTransport, NoTransport, ServerSettings, StdioTransport
from shortlist.errors import InvalidInput
from shortlist.upstream.grants import SHARED
from shortlist.upstream.login import PENDING_SECONDS, Logins, LoginTarget, login_target
from shortlist.upstream.oauth import LoginFailed
from shortlist.upstream.stored import filled

CALLBACK = "/callback"
MAX_HEAD_BYTES = 16 * 1024
HEAD_SECONDS = 10.0


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
    run_plainly(partial(_sign_in, target, arguments.principal, browser=not arguments.no_browser))
    request_restart(target.server)
    say(f"signed in to {target.server!r}; a running gateway uses it within a second")
    return 0


def _logout(arguments: argparse.Namespace) -> int:
    target = _target(arguments)
    if not run_plainly(partial(open_logins().sign_out, target, arguments.principal)):
        say(f"nobody was signed in to {target.server!r}")
        return 0
    request_restart(target.server)
    say(f"signed out of {target.server!r}; to revoke the access as well, use the provider's own settings")
    return 0


def _target(arguments: argparse.Namespace) -> LoginTarget:
    return target_of(arguments.server, read_settings(arguments.config).servers)


def target_of(name: str, servers: Mapping[str, ServerSettings]) -> LoginTarget:
    """Return where to sign in; refuses servers that cannot have a login."""
    if name not in servers:
        raise InvalidInput(f"No server {name!r}. {did_you_mean(name, tuple(servers))}")
    transport = servers[name].transport
    if isinstance(transport, NoTransport):
        raise InvalidInput(f"Server {name!r} cannot be reached: {transport.reason}.")
    if isinstance(transport, (StdioTransport, MemoryTransport)):
        raise InvalidInput(f"Server {name!r} has no login: it runs on this machine. Logins are for servers with a URL.")
    target = login_target(name, filled(transport, stored_secret))
    if target is None:
        raise InvalidInput(
            f"Server {name!r} gets its credentials from the configuration. "
            "Remove 'Authorization' from its 'headers' to sign in instead."
        )
    return target


async def _sign_in(target: LoginTarget, principal: str, *, browser: bool) -> None:
    """Print the link of a login, wait for its answer on this machine, and store the grant."""
    logins = open_logins()
    async with (
        await anyio.create_tcp_listener(local_host="127.0.0.1", local_port=0) as listener,
        anyio.create_task_group() as tasks,
    ):
        answer = _Answer(logins)
        tasks.start_soon(listener.serve, answer.serve)
        port = listener.listeners[0].extra(SocketAttribute.local_port)  # noqa: S610 - not Django's
        link = await logins.begin(target, principal, f"http://127.0.0.1:{port}{CALLBACK}")
        say("sign in with a browser on this machine:")
        print(link, flush=True)
        if browser:
            await anyio.to_thread.run_sync(webbrowser.open, link)
        with anyio.move_on_after(PENDING_SECONDS):
            await answer.came.wait()
        given = answer.given
        if "state" not in given:
            raise LoginFailed(target.server, f"nobody signed in within {PENDING_SECONDS / 60:.0f} minutes.")
        await logins.finish(given["state"], given.get("code"), given.get("iss"), given.get("error"))
        tasks.cancel_scope.cancel()


class _Answer:
    """The authorization response, as the browser brings it; requests with another state are refused."""

    def __init__(self, logins: Logins) -> None:
        self.came = anyio.Event()
        self.given: dict[str, str] = {}
        self._logins = logins

    async def serve(self, browser: SocketStream) -> None:
        """Answer one request of a browser."""
        async with browser:
            with anyio.move_on_after(HEAD_SECONDS):
                try:
                    await browser.send(self._page(await _target_of(browser)))
                except (anyio.EndOfStream, anyio.BrokenResourceError):
                    return

    def _page(self, requested: str) -> bytes:
        parts = urlsplit(requested)
        given = {name: values[0] for name, values in parse_qs(parts.query).items()}
        if parts.path != CALLBACK or not self._logins.expects(given.get("state", "")):
            return _response("404 Not Found", "This address belongs to no login that is waiting.")
        if not self.came.is_set():
            self.given = given
            self.came.set()
        return _response("200 OK", "Shortlist has the answer. The terminal shows the result; you can close this page.")


async def _target_of(browser: SocketStream) -> str:
    """Read the head of a request and return its target."""
    head = b""
    while b"\r\n\r\n" not in head and len(head) < MAX_HEAD_BYTES:
        head += await browser.receive()
    words = head.partition(b"\r\n")[0].decode("latin-1").split(" ")
    return words[1] if len(words) == 3 and words[0] == "GET" else ""


def _response(status: str, text: str) -> bytes:
    head = (
        f"HTTP/1.1 {status}\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: {len(text)}\r\n"
        "Cache-Control: no-store\r\nReferrer-Policy: no-referrer\r\nConnection: close\r\n\r\n"
    )
    return (head + text).encode()
