"""Tasks for a model, each run under several setups: what it completes, and at what cost.

`{"tasks": [{"name": …, "prompt": …, "expect": {"calls": [tool], "answer": [words]}}]}`: a task is complete when each
of the calls was made and succeeded, and the last message has all of the words.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import MappingProxyType

import anyio
import anyio.to_thread
from pydantic import Field

from shortlist.errors import NothingRecorded
from shortlist.gateway.calling import CALL
from shortlist.gateway.discovery import SEARCH
from shortlist.harness.chat import ChatMessage, ChatModel, ModelToolCall, Reply
from shortlist.harness.gateway import CallAnswer, Connected, GatewayFolder, connected
from shortlist.harness.scenarios import FileValue, read_json
from shortlist.remote import ProviderRefused, ProviderUnavailable
from shortlist.storage.port import EventQuery

SETUPS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "all-upfront": ("--mode", "passthrough"),
        "search": ("--mode", "search"),
        "dynamic": ("--mode", "dynamic"),
    }
)
MOST_TURNS = 20
REFUSED_FOR_ALL = frozenset({401, 403, 404})
"""A wrong key, URL or model."""
SYSTEM = "Carry out the user's task with the tools you have, then answer in a few words."


class Expected(FileValue):
    calls: tuple[str, ...] = ()
    """Tools that have to be called with success: `server/tool`, or a name that is unique."""
    answer: tuple[str, ...] = ()
    """Words that the last message has to have, in any case."""


class ModelTask(FileValue):
    name: str
    prompt: str = Field(min_length=1)
    expect: Expected = Expected()


class _File(FileValue):
    tasks: tuple[ModelTask, ...] = Field(min_length=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """One task under one setup."""

    task: str
    setup: str
    completed: bool
    turns: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    searches: int = 0
    calls: int = 0
    errors: int = 0
    misses: int | None = None
    """Retrieval misses recorded by the gateway; None if it records nothing."""
    failure: str = ""
    """Why the model could not continue; empty if it could."""


def read_tasks(path: Path) -> tuple[ModelTask, ...]:
    """Read a task file; raises InvalidInput for the first error."""
    return read_json(path, _File).tasks


async def attempt(place: GatewayFolder, model: ChatModel, task: ModelTask, setup: str) -> Attempt:
    """Run one task in a fresh session of a fresh gateway."""
    before = _misses(place)
    async with connected(place, *SETUPS[setup]) as session:
        run = _Run(session, model, task)
        failure = await run.through()
    if run.refused is not None:
        raise run.refused
    after = _misses(place)
    return Attempt(
        task=task.name,
        setup=setup,
        completed=not failure and run.complete(),
        turns=len(run.replies),
        prompt_tokens=sum(reply.prompt_tokens for reply in run.replies),
        completion_tokens=sum(reply.completion_tokens for reply in run.replies),
        searches=sum(name == SEARCH.name for name, _ in run.made),
        calls=len(run.made),
        errors=sum(answer.is_error for _, answer in run.made),
        misses=after - (before or 0) if after is not None else None,
        failure=failure,
    )


class _Run:
    """A conversation between a model and a gateway; the task is the only user message."""

    def __init__(self, session: Connected, model: ChatModel, task: ModelTask) -> None:
        self._session, self._model, self._task = session, model, task
        system = "\n\n".join(filter(None, (SYSTEM, session.instructions)))
        self._messages: list[ChatMessage] = [
            {"role": "system", "content": system},
            {"role": "user", "content": task.prompt},
        ]
        self.replies: list[Reply] = []
        self.made: list[tuple[str, CallAnswer]] = []
        """Calls by the tool that they reached."""
        self.refused: ProviderRefused | None = None
        """A refusal that applies to every other task as well."""

    async def through(self) -> str:
        """Take turns until the model makes no more calls; returns why it could not continue, or an empty string."""
        for _ in range(MOST_TURNS):
            try:
                reply = await self._turn()
            except ProviderRefused as refused:
                self.refused = refused if refused.status in REFUSED_FOR_ALL else None
                return str(refused)
            except ProviderUnavailable as unavailable:
                return str(unavailable)
            if not reply.calls:
                return ""
            for call in reply.calls:
                await self._make(call)
        return f"The model did not finish within {MOST_TURNS} turns."

    def complete(self) -> bool:
        """Return whether every expected call was made and every expected word was said."""
        succeeded = {name for name, answer in self.made if not answer.is_error}
        said = self.replies[-1].text.casefold()
        expect = self._task.expect
        return all(is_among(tool, succeeded) for tool in expect.calls) and all(
            words.casefold() in said for words in expect.answer
        )

    async def _turn(self) -> Reply:
        tools = await self._session.tools()  # a load in the last turn may have changed them
        reply = await anyio.to_thread.run_sync(partial(self._model.reply, tuple(self._messages), tools))
        self.replies.append(reply)
        self._messages.append(reply.message)
        return reply

    async def _make(self, call: ModelToolCall) -> None:
        answer = (
            CallAnswer(text=call.problem, is_error=True, milliseconds=0.0)
            if call.problem
            else await self._session.call(call.name, call.arguments)
        )
        self.made.append((_reached(call), answer))
        self._messages.append({"role": "tool", "tool_call_id": call.id, "content": answer.text})


def _reached(call: ModelToolCall) -> str:
    """Return the tool that a call is for, also through call_tool."""
    inner = call.arguments.get("name") if call.name == CALL.name else None
    return inner if isinstance(inner, str) else call.name


def is_among(tool: str, names: set[str]) -> bool:
    """Return whether a tool is among names, by its full or its unique bare name."""
    server, _, own = tool.replace("__", "/", 1).rpartition("/")
    full = f"{server}__{own}"
    return any(name.replace("/", "__", 1) in (full, own) or (not server and name.endswith(full)) for name in names)


def _misses(place: GatewayFolder) -> int | None:
    try:
        return sum(1 for _ in place.storage().events.events(EventQuery(missed=True)))
    except NothingRecorded:
        return None
