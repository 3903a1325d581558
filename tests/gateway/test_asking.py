"""What servers may ask of clients: through real servers and clients of both eras."""

from typing import Any

import anyio
import mcp_types as types
import pytest
from mcp import Client, MCPError

from shortlist.config.settings import Question
from shortlist.gateway.asking import KINDS, MOST_IN_ONE_CALL
from shortlist.gateway.view import ServeOptions
from tests.gateway.support import DEADLINE_SECONDS, MODES, Era, Fixture, Served, serve, text, words

pytestmark = [pytest.mark.anyio, pytest.mark.filterwarnings("ignore::mcp.MCPDeprecationWarning")]

ERAS: tuple[Era, ...] = ("legacy", "modern")
TOOLS: dict[Question, str] = {"elicitation": "ask_user", "sampling": "ask_model", "roots": "ask_roots"}


class Clients:
    """What a client answers, and what it was asked."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    async def elicit(self, _: Any, params: Any) -> types.ElicitResult:
        self.asked.append(params.message)
        return types.ElicitResult(action="accept", content={"colour": "red"})

    async def sample(self, _: Any, params: Any) -> types.CreateMessageResult:
        self.asked.append(f"{(params.meta or {}).get('shortlist/server')} asks for a sample")
        return types.CreateMessageResult(role="assistant", content=types.TextContent(text="A poem."), model="m")

    async def roots(self, _: Any) -> types.ListRootsResult:
        self.asked.append("roots")
        return types.ListRootsResult(roots=[])

    def client(self, served: Served, era: Era) -> Client:
        answers: dict[str, Any] = {
            "elicitation_callback": self.elicit,
            "sampling_callback": self.sample,
            "list_roots_callback": self.roots,
        }
        return Client(served.front.server, mode=MODES[era], **answers)


async def call(client: Client, name: str) -> str:
    with anyio.fail_after(DEADLINE_SECONDS):
        try:
            return words(await client.call_tool(name, {}))
        except MCPError as error:
            return error.error.message


@pytest.mark.parametrize("server", ERAS)
@pytest.mark.parametrize("era", ERAS)
async def test_a_question_says_which_server_asks(era: Era, server: Era) -> None:
    clients = Clients()
    async with serve(Fixture("lab", server), Fixture("den")) as served, clients.client(served, era) as client:
        await call(client, "lab__ask_user")
        if era == "legacy":  # the SDK drops `_meta` of an input request before the callback of a modern client
            await call(client, "lab__ask_model")
    assert clients.asked == ["lab asks: Which colour?", "lab asks for a sample"][: len(clients.asked)]
    assert len(clients.asked) == (2 if era == "legacy" else 1)


async def test_a_server_that_is_passed_through_alone_asks_in_its_own_words() -> None:
    clients = Clients()
    options = ServeOptions(mode="passthrough")
    async with serve(Fixture("lab"), options=options) as served, clients.client(served, "legacy") as client:
        await call(client, "ask_user")
    assert clients.asked == ["Which colour?"]


@pytest.mark.parametrize("kind", TOOLS)
@pytest.mark.parametrize("server", ERAS)
@pytest.mark.parametrize("era", ERAS)
async def test_each_kind_of_question_can_be_switched_off_for_a_server(era: Era, server: Era, kind: Question) -> None:
    clients, lab = Clients(), Fixture("lab", server)
    lab.may_ask = tuple(each for each in KINDS.values() if each != kind)
    async with serve(lab, Fixture("den")) as served, clients.client(served, era) as client:
        said = [await call(client, f"lab__{tool}") for tool in TOOLS.values()]
    assert f"'lab' may not ask clients for {kind}" in said[list(TOOLS).index(kind)]
    assert len(clients.asked) == len(TOOLS) - 1


class Filing(Fixture):
    """A server that keeps the roots of its first client for the whole connection, as the filesystem server does."""

    async def tool_ask_roots(self, ctx: Any, params: Any, arguments: Any) -> Any:
        session = ctx.session
        kept = self.roots.get(id(session._connection))
        if kept is None:
            kept = words(await super().tool_ask_roots(ctx, params, arguments))
            self.roots[id(session._connection)] = kept
            self.connections.append(session._connection)
        return text(kept)

    def __init__(self, name: str) -> None:
        super().__init__(name, "legacy")
        self.roots: dict[int, str] = {}
        self.connections: list[Any] = []
        """Keeps them alive, so that no id is used twice."""


async def test_the_roots_of_one_client_never_become_those_of_another() -> None:
    def rooted(uri: str) -> Any:
        async def roots(_: Any) -> types.ListRootsResult:
            return types.ListRootsResult(roots=[types.Root(uri=uri)])  # type: ignore[arg-type]

        return roots

    files = Filing("files")
    async with (
        serve(files) as served,
        Client(served.front.server, mode="legacy", list_roots_callback=rooted("file:///one")) as one,
        Client(served.front.server, mode="legacy", list_roots_callback=rooted("file:///two")) as two,
        Client(served.front.server, mode="legacy") as none,
    ):
        said = [await call(client, "files__ask_roots") for client in (one, two, one, two)]
        without = await call(none, "files__ask_roots")
    assert said == ["file:///one", "file:///two", "file:///one", "file:///two"]
    assert "file:///" not in without


class Curious(Fixture):
    """A server that asks without end."""

    async def tool_ask_user(self, ctx: Any, params: Any, arguments: Any) -> Any:
        if self.era == "modern":
            return await super().tool_ask_user(ctx, params.model_copy(update={"input_responses": None}), arguments)
        for _ in range(MOST_IN_ONE_CALL + 5):
            await super().tool_ask_user(ctx, params, arguments)
        return text("asked enough")


@pytest.mark.parametrize("server", ERAS)
async def test_questions_of_one_call_are_bounded(server: Era) -> None:
    clients = Clients()
    async with serve(Curious("lab", server)) as served, clients.client(served, "legacy") as client:
        said = await call(client, "lab__ask_user")
    assert "asked enough" not in said
    assert 1 < len(clients.asked) <= MOST_IN_ONE_CALL
