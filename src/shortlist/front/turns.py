"""Lets requests begin in turn, so that thousands that arrive together do not keep the event loop from anything else."""

import asyncio
from collections import OrderedDict, deque
from collections.abc import Hashable

AT_ONCE = 8
"""How many requests begin in one pass of the event loop; a legacy `initialize` takes 2 ms in about ten passes."""


class Turns:
    """Begins a few requests in each pass of the event loop; where more wait, each caller has its turn."""

    def __init__(self, at_once: int = AT_ONCE) -> None:
        self._at_once = self._left = at_once
        self._waiting: OrderedDict[Hashable, deque[asyncio.Future[None]]] = OrderedDict()
        self._is_due = False

    async def wait(self, caller: Hashable) -> None:
        """Return when a request of this caller may begin: at once, unless many arrive at the same time."""
        if not self._is_due:
            self._is_due = True
            asyncio.get_running_loop().call_soon(self._next_pass)
        if self._left and not self._waiting:
            self._left -= 1
            return
        turn = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(caller, deque()).append(turn)
        await turn

    def _next_pass(self) -> None:
        self._left = self._at_once
        while self._left and self._waiting:
            caller, turns = self._waiting.popitem(last=False)
            turn = turns.popleft()
            if turns:
                self._waiting[caller] = turns  # behind the others
            if not turn.done():  # its client may have left
                turn.set_result(None)
                self._left -= 1
        self._is_due = self._left < self._at_once
        if self._is_due:
            asyncio.get_running_loop().call_soon(self._next_pass)
