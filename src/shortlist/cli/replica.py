"""Runs a gateway that serves HTTP as one of several on the same store."""

import os
import socket
from functools import partial
from urllib.parse import urlsplit

from shortlist.cli.stack import Stack
from shortlist.front.http import ANYWHERE
from shortlist.front.replicas import Replica
from shortlist.front.resumption import ResumableSessions

URL_VARIABLE = "SHORTLIST_REPLICA_URL"
"""Where the other replicas reach this one, such as http://10.1.2.3:8765."""


def open_replica(stack: Stack) -> Replica | None:
    """Return what makes a gateway one of several; None where its store is not shared."""
    if stack.storage.shared is None or stack.peers is None:
        return None
    return Replica(stack.front, stack.storage.shared, stack.peers)


async def take_part(
    stack: Stack, replica: Replica, sessions: ResumableSessions, base: str, *, has_siblings: bool = False
) -> None:
    """Let the other replicas find this one, and act on their changes, until cancelled.

    A replica with siblings on its machine has a port of its own, whatever address of the machine is configured.
    """
    background = stack.gateway.state.background

    def heard(what: str) -> None:
        if not what or what.startswith(("workspaces ", "client_sessions ")):
            background.spawn("a change by another replica", partial(replica.heard, what, sessions))

    stack.news.listeners.append(heard)
    try:
        async with replica.peers.joined(_own_url(os.environ.get(URL_VARIABLE), base, has_siblings)):
            await sessions.keep_stored()
    finally:
        stack.news.listeners.remove(heard)


def _own_url(configured: str | None, base: str, has_siblings: bool) -> str:
    if not configured or not has_siblings:
        return configured or reachable(base)
    parts, port = urlsplit(configured), urlsplit(base).port
    host = parts.hostname or ""
    return f"{parts.scheme}://{f'[{host}]' if ':' in host else host}:{port}{parts.path}"


def reachable(base: str) -> str:
    """Return the address of a gateway for other machines; one that listens everywhere is reached by its host's."""
    parts = urlsplit(base)
    if parts.hostname not in ANYWHERE:
        return base
    try:
        host = socket.gethostbyname(socket.gethostname())
    except OSError:
        host = "127.0.0.1"
    return f"{parts.scheme}://{host}:{parts.port}"
