"""Clients of the shared gateway: `serve` relays bytes between stdio and its socket, other commands ask one question.

Like `rendezvous`, this module imports only small parts of the standard library.
"""

import argparse
import os
import signal
import socket
import sys
import threading
from contextlib import suppress
from typing import Any

from shortlist.cli.rendezvous import (
    CHUNK_BYTES,
    NoSharing,
    SharingFailed,
    Welcome,
    ask_running,
    named_variables,
    reach,
    rendezvous,
)
from shortlist.cli.signals import ending_signals
from shortlist.errors import InvalidInput
from shortlist.paths import find_config
from shortlist.version import own_version

STDIN, STDOUT = 0, 1
OWN_OPTIONS = ("embedder", "pipeline", "reranker", "log_level", "log_json")
"""Options of `serve` that are about the whole process: a client that gives one gets a gateway of its own."""


def relay_stdio(arguments: argparse.Namespace) -> int | None:
    """Serve one client through the shared gateway; None where it gets a gateway of its own."""
    config = find_config(arguments.config)
    if not _can_share(arguments) or (config is not None and not config.is_file()):
        return None  # a gateway in this process also explains what is missing
    options = ("mode", "menu", "preset", "toolsets", "exclude", "dynamic", "toon")
    wish = {"serve": {name: getattr(arguments, name) for name in options}, "variables": named_variables(config)}
    try:
        place = rendezvous(config)
        reply = reach(place, wish)
    except NoSharing as error:
        _say(f"this client gets a gateway of its own: {error}")
        return None
    if _is_other_version(reply):
        return None
    if (alone := reply.head.get("alone")) is not None:
        reply.connection.close()
        _say(alone)
        return None
    for note in _accepted(reply).head["notes"]:
        _say(note)
    if sys.stdin.isatty():
        _say(
            "waiting for MCP messages on stdin: a client starts this by itself. `--http 127.0.0.1:8765` serves them all"
        )
    if _relay(reply):
        return 0
    _say(f"the shared gateway (pid {reply.head['pid']}) ended. Start this client again; its log is {place.log}")
    return 1


def _can_share(arguments: argparse.Namespace) -> bool:
    is_own = arguments.own or arguments.workers > 1 or any(getattr(arguments, name) for name in OWN_OPTIONS)
    return not (arguments.http or arguments.open or is_own or sys.stdin is None or sys.stdout is None)


def ask_gateway(arguments: argparse.Namespace) -> int | None:
    """Let the running gateway answer a command; None where none is running, or one of another version."""
    if getattr(arguments, "refresh", False):
        return None
    given = {name: value for name, value in vars(arguments).items() if name not in ("run", "relay", "following")}
    try:
        reply = ask_running(
            rendezvous(find_config(arguments.config)), {"command": arguments.command, "arguments": given}
        )
    except NoSharing:
        return None
    if reply is None or _is_other_version(reply):
        return None
    head = _accepted(reply).head
    for note in head["notes"]:
        _say(note)
    print(head["output"])
    return int(head["status"])


def _is_other_version(reply: Welcome) -> bool:
    other = str(reply.head.get("version"))
    if other == own_version():
        return False
    _say(
        f"the shared gateway is version {other} and this is {own_version()}, so this one works alone. "
        "`shortlist daemon stop` ends the other; the next client starts this version."
    )
    reply.connection.close()
    return True


def _accepted(reply: Welcome) -> Welcome:
    error = reply.head.get("error")
    if error is None:
        return reply
    reply.connection.close()
    raise (InvalidInput if reply.head.get("status") == 2 else SharingFailed)(str(error))


def _relay(reply: Welcome) -> bool:
    """Copy bytes both ways until one end closes; return whether it was the client's."""
    connection, ended = reply.connection, threading.Event()

    def end(*_: Any) -> None:
        ended.set()
        with suppress(OSError):  # the gateway answers what it has, then closes its end
            connection.shutdown(socket.SHUT_WR)

    def send() -> None:
        with suppress(OSError):
            while chunk := os.read(STDIN, CHUNK_BYTES):
                connection.sendall(chunk)
        end()

    for number in ending_signals():
        signal.signal(number, end)
    threading.Thread(target=send, daemon=True).start()
    came = reply.rest
    with suppress(OSError):
        while True:
            while came:
                came = came[os.write(STDOUT, came) :]
            came = connection.recv(CHUNK_BYTES)
            if not came:
                break
    # Where writing failed, the client closed its end of stdout.
    return ended.is_set() or bool(came)


def _say(line: str) -> None:
    print(f"shortlist: {line}", file=sys.stderr)
