"""Calls of legacy servers that stay open while a modern client comes back with the answers to its questions."""

import secrets
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import TypeAlias

import anyio

from shortlist.errors import RequestRefused
from shortlist.fairness import gives_way
from shortlist.gateway.callers import INVALID_REQUEST, Caller, Exchange, Round
from shortlist.gateway.tasks import BackgroundTasks
from shortlist.models import Json

MAX_OPEN = 256
ANSWER_SECONDS = 300.0
"""How long a legacy server's question waits for a modern client to come back."""
STATE_BYTES = 18

Send: TypeAlias = Callable[[Exchange, Mapping[str, Json]], Awaitable[dict[str, Json]]]
"""Sends the request upstream, with these members added to its params."""


def is_input_required(result: Mapping[str, Json]) -> bool:
    return result.get("resultType") == "input_required"


@dataclass(slots=True)
class _Question:
    method: str
    params: Mapping[str, Json]
    sent: bool = False
    answered: anyio.Event = field(default_factory=anyio.Event)
    answer: dict[str, Json] = field(default_factory=dict)


class _OpenCall:
    """A legacy server's call for a modern client: open between the client's round trips."""

    def __init__(self, exchange: Exchange) -> None:
        self.current: Exchange = exchange
        self.owner: Caller = exchange.caller
        self.questions: dict[str, _Question] = {}
        self.changed = anyio.Event()
        self.scope = anyio.CancelScope()
        self.outcome: dict[str, Json] | Exception | None = None

    @property
    def caller(self) -> Caller:
        return self.owner

    @property
    def answers_in_place(self) -> bool:
        return True

    def can(self, method: str) -> bool:
        return self.current.can(method)

    async def ask(self, method: str, params: Mapping[str, Json]) -> dict[str, Json]:
        question = _Question(method, params)
        self.questions[f"q{len(self.questions) + 1}"] = question
        self.changed.set()
        with anyio.move_on_after(ANSWER_SECONDS):
            await question.answered.wait()
            return question.answer
        raise RequestRefused("The client did not answer in time", code=INVALID_REQUEST)

    async def progress(self, progress: float, total: float | None, message: str | None) -> None:
        await self.current.progress(progress, total, message)

    async def pause(self) -> None:
        await self.current.pause()

    async def log(self, params: Mapping[str, Json]) -> None:
        await self.current.log(params)

    def take(self, answers: Mapping[str, Json]) -> None:
        for key, question in self.questions.items():
            if isinstance(answers.get(key), dict) and not question.answered.is_set():
                question.answer = dict(answers[key])
                question.answered.set()

    def unsent(self) -> dict[str, Json]:
        waiting = {key: q for key, q in self.questions.items() if not q.answered.is_set()}
        if all(q.sent for q in waiting.values()):
            return {}
        for question in waiting.values():
            question.sent = True
        return {key: {"method": q.method, "params": dict(q.params)} for key, q in waiting.items()}


class OpenCalls:
    """Legacy servers' calls that wait for modern clients, bounded in number; the caller with the most gives way."""

    def __init__(self, background: BackgroundTasks, mark: str = "") -> None:
        self._background = background
        self._mark = mark
        self._open: dict[str, _OpenCall] = {}

    async def start(self, exchange: Exchange, send: Send) -> dict[str, Json]:
        """Begin a call; return its result, or the first questions of the server."""
        self._make_room(exchange.caller)
        call = _OpenCall(exchange)
        self._background.spawn("a call that waits for its client", partial(_drive, call, send))
        return await self._advance(call)

    def has(self, turn: Round) -> bool:
        """Return whether a client comes back to a call that is open here."""
        return not turn.is_first and turn.state in self._open

    async def resume(self, exchange: Exchange, turn: Round) -> dict[str, Json]:
        """Continue a call whose client came back."""
        call = self._open.pop(turn.state or "", None)
        if call is None or call.owner.principal != exchange.caller.principal or call.scope.cancel_called:
            raise RequestRefused("Unknown requestState: the call ended or was never open")
        call.current = exchange
        call.take(turn.answers or {})
        return await self._advance(call)

    def _make_room(self, caller: Caller) -> None:
        """End the oldest call of the principal that has the most; refuse the new one where that is its own principal.

        A call that waits may have been carried out in part; one that is refused was not begun.
        """
        if len(self._open) < MAX_OPEN:
            return
        oldest = gives_way({state: call.owner.principal for state, call in self._open.items()}, caller.principal)
        if oldest is None or self._open[oldest].owner.principal == caller.principal:
            raise RequestRefused(
                "Too many calls are waiting for answers of their clients; try again later", code=INVALID_REQUEST
            )
        self._open.pop(oldest).scope.cancel()

    async def _advance(self, call: _OpenCall) -> dict[str, Json]:
        try:
            while call.outcome is None:
                if questions := call.unsent():
                    return self._park(call, questions)
                await call.changed.wait()
                call.changed = anyio.Event()
        except anyio.get_cancelled_exc_class():
            call.scope.cancel()  # the client went away, and the server is told
            raise
        if isinstance(call.outcome, Exception):
            raise call.outcome
        return call.outcome

    def _park(self, call: _OpenCall, questions: dict[str, Json]) -> dict[str, Json]:
        for state in [state for state, other in self._open.items() if other.outcome is not None]:
            del self._open[state]
        state = self._mark + secrets.token_urlsafe(STATE_BYTES)
        self._open[state] = call
        return {"resultType": "input_required", "inputRequests": questions, "requestState": state}


async def _drive(call: _OpenCall, send: Send) -> None:
    with call.scope:
        try:
            call.outcome = await send(call, {})
        except Exception as error:  # handed to the round trip that waits for it
            call.outcome = error
    call.changed.set()
