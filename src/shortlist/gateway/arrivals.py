"""Waiting for servers that have just started, so that a first search can find their tools."""

import time
from collections.abc import Sequence
from dataclasses import replace

import anyio

from shortlist.gateway.tools import ToolCall

WAIT_SECONDS = 10.0
"""How long after its start a server is waited for; packages that are downloaded first take longer."""


async def after_arrival(call: ToolCall, starting: Sequence[str]) -> ToolCall | None:
    """Wait until one of these servers has listed its tools or failed, and return the call as it is seen then.

    Return None when no server did in time.
    """
    state = call.state
    statuses = state.upstreams.status()
    started = max((statuses[name].since for name in starting if name in statuses), default=0.0)
    left = started + WAIT_SECONDS - time.time()  # by a clock that may have been set back by years since
    with anyio.move_on_after(min(max(left, 0.0), WAIT_SECONDS)):
        while True:
            changed = state.changed
            seen = await state.admit(call.seen.caller)
            if state.connecting(seen) != starting:
                return replace(call, seen=seen)
            await changed.wait()
    return None
