"""The shared gateway of this user's stdio clients: run it, look at it, stop it."""

import argparse
import os
import time
from collections.abc import Sequence
from typing import Any

from shortlist.cli.arguments import add_command, add_json
from shortlist.cli.rendezvous import POLL_SECONDS, NoSharing, ask_running, hold, is_held, rendezvous
from shortlist.cli.shown import shown_json
from shortlist.errors import InvalidInput
from shortlist.paths import find_config

IDLE_SECONDS = 300.0
"""How long a gateway without clients waits for the next one before it ends."""
STOP_SECONDS = 15.0


def register(subparsers: Any) -> None:
    """Add `daemon` and its actions."""
    daemon = add_command(subparsers, "daemon")
    actions = daemon.add_subparsers(metavar="ACTION", required=True)
    status = add_command(actions, "status", "show the shared gateway: process, clients and servers")
    status.set_defaults(relay=_status)
    stop = add_command(actions, "stop", "stop the shared gateway; the next client starts another")
    stop.set_defaults(relay=_stop)
    run = add_command(actions, "run", "run the shared gateway in the foreground; clients start it by themselves")
    run.add_argument(
        "--idle-seconds",
        type=_seconds,
        default=IDLE_SECONDS,
        metavar="SECONDS",
        help=f"end after so long without a client (default: {IDLE_SECONDS:g})",
    )
    run.set_defaults(run=_run)
    for action in (status, stop, run):
        action.add_argument("--config", help="a configuration file (default: your own, else the demo servers)")
    for action in (status, stop):
        add_json(action)


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not seconds > 0:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds above 0")
    return seconds


def _run(arguments: argparse.Namespace) -> int:
    place = rendezvous(find_config(arguments.config))
    held = hold(place, wait=True)
    if held is None:
        return 0  # another one is running
    if place.log.exists():
        os.truncate(place.log, 0)  # what earlier gateways said
    from shortlist.cli.hosting import host_clients  # noqa: PLC0415 - takes a second; clients wait at the socket meanwhile

    try:
        return host_clients(place, held, arguments.idle_seconds)
    finally:
        held.end(place)


def _status(arguments: argparse.Namespace) -> int:
    head = _ask(arguments, "status")
    if head is None:
        return _print(arguments, {"running": False}, "No shared gateway is running; the next client starts one.", 1)
    servers = ", ".join(f"{count} {state.replace('_', ' ')}" for state, count in head["servers"].items()) or "none"
    lines = [
        f"running       pid {head['pid']}, version {head['version']}, for {_duration(head['seconds'])}",
        f"configuration {head['config'] or 'none (the bundled demo servers)'}",
        f"clients       {_many(head['clients'])}",
        f"servers       {servers}",
        f"log           {head['log']}",
    ]
    return _print(arguments, {"running": True, **head}, "\n".join(lines), 0)


def _stop(arguments: argparse.Namespace) -> int:
    head = _ask(arguments, "stop")
    if head is None:
        return _print(arguments, {"stopped": False}, "No shared gateway is running.", 0)
    if "error" in head:
        raise InvalidInput(head["error"])
    place, deadline = rendezvous(find_config(arguments.config)), time.monotonic() + STOP_SECONDS
    while is_held(place):
        if time.monotonic() > deadline:
            raise InvalidInput(
                f"The gateway (pid {head['pid']}) did not end within {STOP_SECONDS:g} s. See {place.log}."
            )
        time.sleep(POLL_SECONDS)
    return _print(
        arguments, {"stopped": True, "pid": head["pid"]}, f"Stopped the shared gateway (pid {head['pid']}).", 0
    )


def _ask(arguments: argparse.Namespace, what: str) -> dict[str, Any] | None:
    try:
        reply = ask_running(rendezvous(find_config(arguments.config)), {"do": what})
    except NoSharing as error:
        raise InvalidInput(f"There is no shared gateway here: {error}.") from None
    if reply is None:
        return None
    reply.connection.close()
    return reply.head


def _print(arguments: argparse.Namespace, data: dict[str, Any], text: str, status: int) -> int:
    print(shown_json(data, indent=2) if arguments.json else text)
    return status


def _many(clients: Sequence[dict[str, Any]]) -> str:
    named = [f"pid {client['pid']}" if client.get("pid") else "?" for client in clients]
    return f"{len(named)} ({', '.join(named)})" if named else "none"


def _duration(seconds: float) -> str:
    minutes, left = divmod(int(seconds), 60)
    return f"{minutes} min {left} s" if minutes else f"{left} s"
