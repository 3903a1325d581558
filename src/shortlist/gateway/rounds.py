"""Requests in which a server asks the client something, between any two eras of the protocol.

A legacy server sends its question as a request of its own while the call is open; a modern one ends the call
with `input_required` and is called again with the answers. Where both sides are of one era this is relayed;
where they differ it is translated: a legacy client is asked and the modern server called again, or the legacy
server's call is kept open while the modern client comes back with the answers.
"""

import secrets
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import anyio
import anyio.abc
from mcp import MCPError
from mcp_types import INVALID_PARAMS, INVALID_REQUEST

from shortlist.gateway.exchange import Exchange, Round
from shortlist.gateway.workspaces import Caller, Era
from shortlist.models import Json

Send: TypeAlias = Callable[[Exchange, Mapping[str, Json]], Awaitable[dict[str, Json]]]
"""Sends the request upstream, with these members added to its params."""

QUESTIONS = ("sampling/createMessage", "elicitation/create", "roots/list")
MAX_ROUNDS = 10
MAX_OPEN = 256
ANSWER_SECONDS = 300.0
"""How long a legacy server's question waits for a modern client to come back."""
STATE_BYTES = 18


def is_input_required(result: Mapping[str, Json]) -> bool:
    return result.get("resultType") == "input_required"


async def ask_until_done(exchange: Exchange, send: Send) -> dict[str, Json]:
    """Call a server for a legacy client, putting every question of a modern server to it."""
    result = await send(exchange, {})
    for _ in range(MAX_ROUNDS):
        if not is_input_required(result):
            return result
        answers = await _ask_all(exchange, result.get("inputRequests") or {})
        result = await send(exchange, Round(answers=answers, state=result.get("requestState")).params())
    raise MCPError(INVALID_REQUEST, f"The server asked for input more than {MAX_ROUNDS} times")


async def _ask_all(exchange: Exchange, questions: Mapping[str, Json]) -> dict[str, Json]:
    answers: dict[str, Json] = {}

    async def ask(key: str, question: Mapping[str, Json]) -> None:
        answers[key] = await exchange.ask(question["method"], question.get("params") or {})

    async with anyio.create_task_group() as tasks:
        for key, question in questions.items():
            tasks.start_soon(ask, key, question)
    return answers


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

    def can(self, method: str) -> bool:
        return self.current.can(method)

    async def ask(self, method: str, params: Mapping[str, Json]) -> dict[str, Json]:
        question = _Question(method, params)
        self.questions[f"q{len(self.questions) + 1}"] = question
        self.changed.set()
        with anyio.move_on_after(ANSWER_SECONDS):
            await question.answered.wait()
            return question.answer
        raise MCPError(INVALID_REQUEST, "The client did not come back with an answer in time")

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
    """Legacy servers' calls that wait for modern clients; bounded, and each in its own time."""

    def __init__(self, tasks: anyio.abc.TaskGroup) -> None:
        self._tasks = tasks
        self._open: dict[str, _OpenCall] = {}

    async def start(self, exchange: Exchange, send: Send) -> dict[str, Json]:
        """Begin a call; gives its result, or the first questions of the server."""
        if len(self._open) >= MAX_OPEN:
            raise MCPError(INVALID_REQUEST, "Too many calls wait for their clients' answers; try again later")
        call = _OpenCall(exchange)
        self._tasks.start_soon(_drive, call, send)
        return await self._advance(call)

    async def resume(self, exchange: Exchange, turn: Round) -> dict[str, Json]:
        """Go on with a call whose client came back."""
        call = self._open.pop(turn.state or "", None)
        if call is None or call.owner.name != exchange.caller.name or call.scope.cancel_called:
            raise MCPError(INVALID_PARAMS, "Unknown requestState: the call ended or was never open")
        call.current = exchange
        call.take(turn.answers or {})
        return await self._advance(call)

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
        state = secrets.token_urlsafe(STATE_BYTES)
        self._open[state] = call
        return {"resultType": "input_required", "inputRequests": questions, "requestState": state}


async def _drive(call: _OpenCall, send: Send) -> None:
    with call.scope:
        try:
            call.outcome = await send(call, {})
        except Exception as error:  # handed to the round trip that waits for it
            call.outcome = error
    call.changed.set()


async def relay(
    exchange: Exchange, turn: Round, send: Send, *, era: Era | None, open_calls: OpenCalls
) -> dict[str, Any]:
    """Carry one request through, whatever the eras of its two ends."""
    if exchange.caller.era == "legacy":
        return await ask_until_done(exchange, send)
    if era == "legacy" and not (turn.is_first and not any(map(exchange.can, QUESTIONS))):
        return await (open_calls.start(exchange, send) if turn.is_first else open_calls.resume(exchange, turn))
    return await send(exchange, turn.params())
