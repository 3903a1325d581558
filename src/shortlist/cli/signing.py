"""Logins whose answer comes to a port of this machine: of the command, and those that a running gateway starts."""

import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from urllib.parse import parse_qs, urlsplit

import anyio
import anyio.to_thread
from anyio.abc import SocketAttribute, SocketStream

from shortlist.access.catalog import did_you_mean
from shortlist.cli.vault import stored_secret
from shortlist.config.settings import MemoryTransport, NoTransport, ServerSettings, Settings, StdioTransport
from shortlist.errors import InvalidInput
from shortlist.gateway.ports import StartedLogin
from shortlist.gateway.tasks import BackgroundTasks
from shortlist.upstream.errors import cause_of
from shortlist.upstream.grants import SHARED
from shortlist.upstream.login import PENDING_SECONDS, Logins, LoginTarget, login_target
from shortlist.upstream.oauth import LoginFailed
from shortlist.upstream.stored import filled

CALLBACK = "/callback"
MAX_HEAD_BYTES = 16 * 1024
HEAD_SECONDS = 10.0
MOST_WAITING = 32
"""Logins that wait for their users, each with a port of this machine."""


@dataclass(frozen=True, slots=True)
class SignIns:
    """Starts logins; the answer comes to a port of this machine, so the user signs in with a browser there."""

    logins: Logins
    settings: Callable[[], Settings]
    refresh: Callable[[str], None]
    background: Callable[[], BackgroundTasks]
    waiting: dict[tuple[str, str], "_Waiting"] = field(default_factory=dict)

    async def __call__(self, server: str, principal: str = SHARED) -> StartedLogin:
        """Return the login of a principal that waits or is being started already, else start one."""
        key = (server, principal)
        waiting = self.waiting.get(key)
        if waiting is None:
            if self.settings().oauth.resource:
                # Whoever opened the link elsewhere would sign in for the caller who got it: a trick to be refused.
                raise InvalidInput(f"Sign in to {server!r} on the machine of the gateway: shortlist login {server}")
            if len(self.waiting) >= MOST_WAITING:
                raise TooManyLogins(server)
            waiting = self.waiting[key] = _Waiting()
            self.background().spawn(f"a login to {server!r}", partial(self._wait, key, waiting))
        await waiting.began.wait()
        if isinstance(waiting.outcome, Exception):
            raise waiting.outcome
        return waiting.outcome

    async def _wait(self, key: tuple[str, str], waiting: "_Waiting") -> None:
        server, principal = key
        try:
            target = await anyio.to_thread.run_sync(target_of, server, self.settings().servers)
            async with waiting_login(self.logins, target, principal) as (link, finish):
                login = waiting.outcome = StartedLogin(secrets.token_urlsafe(12), link, anyio.Event())
                waiting.began.set()
                await finish()
                self.refresh(server)
                login.done.set()
        except Exception as error:
            cause = cause_of(error)
            if not waiting.began.is_set():
                waiting.outcome = cause
            raise cause from None
        finally:
            self.waiting.pop(key, None)
            waiting.began.set()


@dataclass(slots=True)
class _Waiting:
    """A login that waits for its user, from the moment somebody wants it."""

    began: anyio.Event = field(default_factory=anyio.Event)
    outcome: StartedLogin | Exception = field(default_factory=lambda: InvalidInput("The gateway is shutting down."))
    """What it began as."""


class TooManyLogins(InvalidInput):
    """So many logins wait for their users that another one is refused."""

    def __init__(self, server: str) -> None:
        super().__init__(f"The login to {server!r} was not started: {MOST_WAITING} others wait. Try again later.")


def target_of(name: str, servers: Mapping[str, ServerSettings]) -> LoginTarget:
    """Return where to sign in to a server; raise InvalidInput for one that cannot have a login."""
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


@asynccontextmanager
async def waiting_login(
    logins: Logins, target: LoginTarget, principal: str
) -> AsyncIterator[tuple[str, Callable[[], Awaitable[None]]]]:
    """Begin a login whose answer comes to a port of this machine; yield its link, and what waits for the answer."""
    async with (
        await anyio.create_tcp_listener(local_host="127.0.0.1", local_port=0) as listener,
        anyio.create_task_group() as tasks,
    ):
        answer = _Answer(logins)
        tasks.start_soon(listener.serve, answer.serve)
        port = listener.listeners[0].extra(SocketAttribute.local_port)  # noqa: S610 - not Django's
        link = await logins.begin(target, principal, f"http://127.0.0.1:{port}{CALLBACK}")

        async def finish() -> None:
            with anyio.move_on_after(PENDING_SECONDS):
                await answer.came.wait()
            given = answer.given
            if "state" not in given:
                raise LoginFailed(target.server, f"nobody signed in within {PENDING_SECONDS / 60:.0f} minutes.")
            await logins.finish(given["state"], given.get("code"), given.get("iss"), given.get("error"))

        try:
            yield link, finish
        finally:
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
