"""Every door of the gateway, walked by callers that must not see what is behind some of them.

The tables below name every request handler of the server and every tool of the gateway's own. A new one fails
`test_every_door_has_a_row` until it has a row.
"""

import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any, get_args

import anyio
import mcp_types as types
import pytest
from mcp import Client, MCPError
from mcp.shared.subscriptions import ResourceUpdated, ToolsListChanged

from shortlist.access.principal import OWNER, Principal, credential_of
from shortlist.config.settings import (
    NO_ISSUERS,
    Action,
    ClaimRule,
    CodeSettings,
    Mode,
    OAuthSettings,
    SelectionSettings,
    TelemetrySettings,
    TokenSettings,
    ToolsetSettings,
    hash_token,
)
from shortlist.front.requests import RequestContext
from shortlist.front.server import Front
from shortlist.gateway import discovery
from shortlist.gateway.callers import Caller
from shortlist.gateway.changes import ListChanged
from shortlist.gateway.menus import BY_NAME, META_TOOLS
from shortlist.gateway.relayed_tasks import METHODS
from shortlist.gateway.state import Seams
from shortlist.gateway.view import NO_OPTIONS, ServeOptions
from shortlist.models import Tool
from shortlist.storage.programs import MemoryPrograms, StoredProgram
from shortlist.upstream.events import Notified
from tests.access.issuer import trusted
from tests.gateway.support import DEADLINE_SECONDS, MODES, NOTE, Era, Fixture, Served, schema, serve, words

pytestmark = [pytest.mark.anyio, pytest.mark.filterwarnings("ignore::mcp.MCPDeprecationWarning")]

TOKEN = TokenSettings(name="guest", hash=hash_token("x"), toolsets=("public",))
TOOLSETS = {
    "public": ToolsetSettings(name="public", tools=("lobby/echo",)),
    "riches": ToolsetSettings(name="riches", tools=("*/treasury",), description="The bullion."),
}
GUEST = Principal(kind="token", name="guest", credential=TOKEN.hash)
SOMEBODY = Principal(kind="token", name="somebody", credential=hash_token("y"))
GONE = Principal(kind="token", name="guest", credential=hash_token("an older token"))
SECRETS = ("vault", "treasury", "bullion", "unlock", "riches", "heist", "robbery")
OF_SERVERS = ("brief", "note://")
REPORT = "half of all callers"
"""What the report of an experiment says, about everybody."""


@dataclass(frozen=True, slots=True)
class Wall:
    """Who walks, and the words that must not come back."""

    principal: Principal
    words: tuple[str, ...]
    exclude: tuple[str, ...] = ()
    tokens: tuple[TokenSettings, ...] = (TOKEN,)
    by_connection: bool = False
    """The options belong to the client's connection; the gateway itself excludes nothing."""
    oauth: OAuthSettings = NO_ISSUERS


def vouched(oauth: OAuthSettings) -> Principal:
    """Return somebody whom the configured issuer vouches for."""
    issuer = oauth.issuers["company"]
    return Principal(kind="oauth", name="company:ada", credential=credential_of(issuer), rule=0)


OAUTH = trusted(ClaimRule(toolsets=("public",)))
WALLS = {
    "token": Wall(GUEST, (*SECRETS, *OF_SERVERS, REPORT)),
    "jwt": Wall(vouched(OAUTH), (*SECRETS, *OF_SERVERS, REPORT), oauth=OAUTH),
    "jwt of other settings": Wall(
        vouched(trusted()), (*SECRETS, *OF_SERVERS, "lobby", "echo", "public", REPORT), oauth=OAUTH
    ),
    "revoked": Wall(GONE, (*SECRETS, *OF_SERVERS, "lobby", "echo", "public", REPORT)),
    "excluded": Wall(OWNER, SECRETS, exclude=("vault", "riches"), tokens=()),
    "connection": Wall(OWNER, SECRETS, exclude=("vault", "riches"), tokens=(), by_connection=True),
}

MENUS: dict[str, ServeOptions] = {
    **{mode: ServeOptions(mode=mode) for mode in get_args(Mode)},
    "minimal": ServeOptions(mode="search", menu="minimal"),
    "code": ServeOptions(mode="search", menu="code"),
    "preset": ServeOptions(mode="static", preset="full"),
}


def guarded(name: str) -> Fixture:
    fixture = Fixture(name)
    text = schema(text="string")
    fixture.effects = {"echo": "read_only", "treasury": "write"}
    fixture.tools = {
        "echo": ("Say a text back.", text),
        "treasury": ("Count the bullion.", schema()),
        **({"unlock": ("Unlock the vault.", schema())} if name == "vault" else {}),
    }
    return fixture


class Recognised(Front):
    """A front whose border recognises one principal, whatever the transport."""

    principal = OWNER
    options: ServeOptions | None = None

    def caller(self, context: RequestContext) -> Caller:
        return replace(super().caller(context), principal=self.principal, options=self.options)


@dataclass(frozen=True, slots=True)
class Walk:
    """A client in front of the doors, and everything that came back through them."""

    client: Client
    era: Era
    served: Served
    kept: str
    """The handle of a result that somebody else owns."""
    is_revoked: bool = False
    has_resources: bool = False
    task: str = ""
    """The handle of a task that somebody else started."""

    async def knock(self, sent: str, work: Awaitable[Any]) -> str:
        """Return what came back, without the words that the client itself sent."""
        try:
            came = str(await work)
        except MCPError as error:
            came = f"{error.error.message} {error.error.data}"
        return came.replace(sent, "") if sent else came

    async def call(self, name: str, arguments: dict[str, Any], sent: str = "") -> str:
        return await self.knock(sent, self._call(name, arguments))

    async def _call(self, name: str, arguments: dict[str, Any]) -> str:
        result: Any = await self.client.call_tool(name, arguments)
        return f"{words(result)} {result.structured_content or ''}"


NAMES = (
    *("vault__unlock", "vault/unlock", "unlock", "lobby__treasury", "lobby/treasury", "treasury"),
    *("programs__heist", "programs/robbery"),
)
SNEAK = """
for hidden in (tools.vault.unlock, tools.lobby.treasury):
    try:
        await hidden()
    except Exception:
        print("refused")
"""
SAVED = tuple(
    StoredProgram(
        name=name, source=source, description=said, tools=(uses,), saved=1.0, approved_by="ada", allow="write"
    )
    for name, source, said, uses in (
        ("heist", "await tools.vault.unlock()", "Unlock the vault twice.", "vault/unlock"),
        ("robbery", "await tools.lobby.treasury()", "Count the bullion twice.", "lobby/treasury"),
        ("parrot", SNEAK, "Repeat a text.", "lobby/echo"),
    )
)
"""Saved programs: two that use what is hidden, and one that tries to."""


async def instructions(walk: Walk) -> list[str]:
    return [walk.client.instructions or ""]


async def list_tools(walk: Walk) -> list[str]:
    return [await walk.knock("", walk.client.list_tools(cache_mode="bypass"))]


async def call_by_name(walk: Walk) -> list[str]:
    return [await walk.call(name, {}, name) for name in NAMES]


async def list_prompts(walk: Walk) -> list[str]:
    return [await walk.knock("", walk.client.list_prompts(cache_mode="bypass"))]


async def get_prompt(walk: Walk) -> list[str]:
    names = ("vault__brief", "brief")
    return [await walk.knock(name, walk.client.get_prompt(name, {"topic": "x"})) for name in names]


async def list_resources(walk: Walk) -> list[str]:
    return [await walk.knock("", walk.client.list_resources(cache_mode="bypass"))]


async def list_templates(walk: Walk) -> list[str]:
    return [await walk.knock("", walk.client.list_resource_templates(cache_mode="bypass"))]


URIS = (f"shortlist://vault/{NOTE}", "vault://x")


async def read_resource(walk: Walk) -> list[str]:
    return [await walk.knock(uri, walk.client.read_resource(uri, cache_mode="bypass")) for uri in URIS]


async def subscribe(walk: Walk) -> list[str]:
    if walk.era == "modern":
        return []
    return [await walk.knock(uri, walk.client.subscribe_resource(uri)) for uri in URIS]


async def unsubscribe(walk: Walk) -> list[str]:
    if walk.era == "modern":
        return []
    return [await walk.knock(uri, walk.client.unsubscribe_resource(uri)) for uri in URIS]


async def complete(walk: Walk) -> list[str]:
    prompt = types.PromptReference(name="vault__brief")
    template = types.ResourceTemplateReference(uri="shortlist://vault/note://{day}")
    argument = {"name": "topic", "value": "x"}
    return [
        await walk.knock("vault__brief", walk.client.complete(prompt, argument)),
        await walk.knock("shortlist://vault/note://{day}", walk.client.complete(template, argument)),
    ]


async def set_level(walk: Walk) -> list[str]:
    if walk.era == "modern":
        return []
    return [await walk.knock("", walk.client.set_logging_level("debug"))]


async def listen(walk: Walk) -> list[str]:
    """Subscribe to a resource; it must never fire where it is hidden."""
    if walk.era == "legacy":
        return []
    heard: list[str] = []
    async with walk.client.listen(tools_list_changed=True, resource_subscriptions=[URIS[0]]) as subscription:
        walk.served.gateway.state.announce(
            Notified(server="vault", method="notifications/resources/updated", params={"uri": NOTE})
        )
        walk.served.gateway.state.announce(ListChanged())
        with anyio.move_on_after(0.05 if walk.is_revoked else DEADLINE_SECONDS):
            async for event in subscription:
                heard.append(repr(event))
                break
    first = ResourceUpdated(URIS[0]) if walk.has_resources else ToolsListChanged()
    assert heard == ([] if walk.is_revoked else [repr(first)])
    return heard


def task(method: str) -> Callable[[Walk], Awaitable[list[str]]]:
    """Return what asks for a task that somebody else started."""

    async def ask(walk: Walk) -> list[str]:
        request: Any = types.Request[dict[str, Any], str](method=method, params={"taskId": walk.task})
        return [await walk.knock(walk.task, walk.client.session.send_request(request, types.EmptyResult))]

    return ask


DOORS: dict[str, Callable[[Walk], Awaitable[list[str]]]] = {
    "tools/list": list_tools,
    "tools/call": call_by_name,
    "prompts/list": list_prompts,
    "prompts/get": get_prompt,
    "resources/list": list_resources,
    "resources/templates/list": list_templates,
    "resources/read": read_resource,
    "resources/subscribe": subscribe,
    "resources/unsubscribe": unsubscribe,
    "completion/complete": complete,
    "logging/setLevel": set_level,
    "subscriptions/listen": listen,
    **{method: task(method) for method in METHODS},
    "initialize": instructions,
    "server/discover": instructions,
    "ping": list_tools,
}
"""Every request handler of the server: what a caller tries behind it."""


@pytest.fixture(autouse=True)
def no_advice_instead_of_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let every search be answered: after a few that find the same, a caller is only told to stop."""
    monkeypatch.setattr(discovery, "CIRCLE_SEARCHES", 1_000)


WORD = re.compile(r"\w+")
QUERIES = (
    "unlock the vault twice",
    "count the bullion in the treasury",
    "tresury",
    "say a text back",
    "say the tresury back and say the bullon back",
)
FUNCTIONS = (
    "tools.vault.unlock",
    "tools.vault.unlok",
    "tools.vault.treasury",
    "tools.lobby.treasury",
    "tools.lobby.tresury",
    "tools.vault__unlock.call",
    "tools.programs.heist",
    "tools.programs.parrot",
)
"""What a program calls to reach what is hidden, or to be told a name that looks like it."""
PROGRAMS = (
    *(f"await {function}()" for function in FUNCTIONS),
    *(f"f = {each}\ntry:\n    await f(text='x')\nexcept BaseException as e:\n    print(e)" for each in FUNCTIONS),
    "print(await getattr(getattr(tools, 'vault'), 'unlock')())",
    *(f"await search({query!r}, limit=50, detail='full', explain=True)" for query in QUERIES),
    "print(await search('echo', servers=['vault']))",
    "await search('echo', toolsets=['riches'], only=True)",
    f"print(await describe({[*NAMES]!r}))",
    *(f"print(await describe({function.removeprefix('tools.')!r}))" for function in FUNCTIONS),
    "print(tools, dir(tools), tools.vault)",
)
KINDS = ("prompts", "resources", "templates", "servers")
THINGS = ("brief of the vault", "note of today", "note of a day")
META_DOORS: dict[str, tuple[dict[str, Any], ...]] = {
    "search_tools": (
        *({"query": query, "explain": True, "detail": "full", "limit": 50} for query in QUERIES),
        *({"query": query, "detail": "python", "limit": 50, "format": "json"} for query in QUERIES),
        *({"query": query, "kinds": [*KINDS], "format": form} for query in THINGS for form in ("text", "json")),
        {"query": "echo", "servers": ["vault"]},
        {"query": "echo", "toolsets": ["vault"]},
        {"query": "echo", "toolsets": ["riches"]},
        {"query": "echo", "toolsets": ["richs"]},
        {"query": "echo", "intent": "riches"},
    ),
    "describe_tools": (
        {"names": [*NAMES]},
        {"names": ["lobby__echo"]},
        {"names": ["vault__unlok"]},
        {"names": [*NAMES], "detail": "python"},
        {"names": ["vault.unlock", "tools.lobby.treasury", "vault.unlok", "lobby.tresury"]},
    ),
    "call_tool": tuple(
        {"name": name, "arguments": {}} for name in (*NAMES, "programs__parrot", "vault__unlok", "search_tools")
    ),
    "run_code": tuple({"code": code} for code in PROGRAMS),
    "read_result": ({"handle": "KEPT"}, {"handle": "KEPT", "query": "bullion"}),
    "list_toolsets": ({},),
    "load_toolset": tuple({"toolset": name} for name in ("vault", "riches", "valt", "lobby")),
    "load_tools": tuple({"names": [name]} for name in NAMES),
    "unload_toolset": tuple({"toolset": name} for name in ("vault", "riches", "lobby")),
    "get_stats": ({},),
    "get_ab_test_report": ({},),
    "report_task": ({"completed": True},),
    "smart_select_tools": ({"request": "unlock the vault"}, {"request": "count the bullion"}),
}
"""Every tool of the gateway's own: arguments that ask for what is hidden."""
SHAPES: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
    "execute_tool": lambda a: {"tool_name": a["name"], "arguments": a["arguments"]},
    "call_loaded_tool": lambda a: {"tool": a["name"], "args": a["arguments"]},
}
"""Aliases that take their arguments in another shape."""


@asynccontextmanager
async def before_the_doors(wall: Wall, options: ServeOptions, era: Era, *names: str) -> AsyncIterator[Walk]:
    """Serve a guarded server or two, and put a client of the wall's principal in front."""
    unknown = [name for name in wall.exclude if name not in (*names, *TOOLSETS)]
    options = replace(options, exclude=tuple(name for name in wall.exclude if name not in unknown))
    seams = Seams(
        co_use=lambda _: frozenset({"vault/unlock", "lobby/treasury"}),
        reports={
            "get_stats": lambda _, visible: "all" if visible is None else " ".join(sorted(visible)),
            "get_ab_test_report": lambda *_: REPORT,
        },
        programs=MemoryPrograms(*SAVED),
    )
    own = options if wall.by_connection else None
    async with serve(
        *(guarded(name) for name in names),
        options=NO_OPTIONS if own else options,
        seams=seams,
        tokens={token.name: token for token in wall.tokens},
        oauth=wall.oauth,
        toolsets=TOOLSETS,
        telemetry=TelemetrySettings(tools=True),
        smart_select=SelectionSettings(),
        code=CodeSettings(allow="write"),
    ) as served:
        kept = await served.gateway.state.results.keep("token:somebody", ("the bullion",))
        front = Recognised(served.gateway)
        front.principal, front.options = wall.principal, own
        state = served.gateway.state
        async with state.serving(own or options), Client(front.server, mode=MODES[era]) as client:
            has_resources = any(token.can and "resources" in token.can for token in wall.tokens)
            is_revoked = not wall.principal.is_current(served.gateway.state.settings)
            secret = Tool(id="vault/unlock", name="unlock", server="vault")
            task = state.relayed_tasks.keep(Caller(principal=SOMEBODY), secret, {"taskId": "the bullion"})
            yield Walk(client, era, served, kept, is_revoked, has_resources, task)


def sent_by(arguments: dict[str, Any]) -> list[str]:
    """Return the words of a request, longest first: an answer may repeat them."""
    values = [v for value in arguments.values() for v in (value if isinstance(value, list) else [value])]
    texts = f"{arguments.get('code', '')} {arguments.get('query', '')}"
    said = [word for word in WORD.findall(texts) if len(word) > 3]
    return sorted({*(v for v in values if isinstance(v, str)), *said}, key=len, reverse=True)


async def walked(walk: Walk) -> dict[str, list[str]]:
    came = {door: await knock(walk) for door, knock in DOORS.items()}
    for name, (tool, _) in BY_NAME.items():
        came[name] = []
        for each in META_DOORS[tool.name]:
            arguments = {key: walk.kept if value == "KEPT" else value for key, value in each.items()}
            answer = await walk.call(name, SHAPES.get(name, dict)(arguments))
            for said in sent_by(arguments):
                answer = answer.replace(said, "")
            came[name].append(answer)
    return came


def leaks(came: dict[str, list[str]], hidden: tuple[str, ...]) -> list[str]:
    return [
        f"{door}: {word!r} in {answer[:300]!r}"
        for door, answers in came.items()
        for answer in answers
        for word in hidden
        if word in answer.lower()
    ]


@pytest.mark.parametrize("era", ["legacy", "modern"])
@pytest.mark.parametrize("menu", MENUS)
@pytest.mark.parametrize("wall", WALLS)
async def test_nothing_hidden_comes_through_any_door(wall: str, menu: str, era: Era) -> None:
    async with before_the_doors(WALLS[wall], MENUS[menu], era, "lobby", "vault") as walk:
        came = await walked(walk)
        touched = [name for fixture in walk.served.fixtures.values() for name, _ in fixture.calls if name != "echo"]
    assert leaks(came, WALLS[wall].words) == []
    assert touched == []


@pytest.mark.parametrize("era", ["legacy", "modern"])
@pytest.mark.parametrize("mode", ["passthrough", "auto"])
@pytest.mark.parametrize("wall", WALLS)
async def test_nothing_hidden_comes_through_a_single_server_that_is_passed_through(
    wall: str, mode: Mode, era: Era
) -> None:
    hidden = tuple(word for word in WALLS[wall].words if word != "vault")
    async with before_the_doors(WALLS[wall], ServeOptions(mode=mode), era, "lobby") as walk:
        came = await walked(walk)
        came["prompts/get"] = [await walk.knock("", walk.client.get_prompt("brief", {"topic": "x"}))]
        came["resources/read"] = [await walk.knock(NOTE, walk.client.read_resource(NOTE, cache_mode="bypass"))]
        touched = [name for name, _ in walk.served.fixtures["lobby"].calls]
    if WALLS[wall].exclude:  # the server itself is in reach, and with it its prompts and resources
        came = {door: answers for door, answers in came.items() if not door.startswith(("prompts", "resources"))}
    else:
        assert all("Brief of lobby" not in answer for answer in came["prompts/get"])
        assert all("of lobby" not in answer for answer in came["resources/read"])
        hidden = tuple(word for word in hidden if word not in OF_SERVERS)
    assert leaks(came, hidden) == []
    assert "treasury" not in touched


TOOL_WORDS = ("treasury", "bullion", "unlock", "riches", "echo")
ACTIONS: dict[str, tuple[tuple[Action, ...], set[str], tuple[str, ...]]] = {
    "see": (("see",), set(), ()),
    "read": (("read",), {"echo"}, ()),
    "call": (("call",), {"echo", "treasury", "unlock"}, ()),
    "resources and prompts": (("resources", "prompts"), set(), TOOL_WORDS),
    "admin": (("admin",), set(), TOOL_WORDS),
}
"""What a token may do, the tools that it can call, and the words that it must not see."""


@pytest.mark.parametrize("era", ["legacy", "modern"])
@pytest.mark.parametrize("menu", ["search", "code", "dynamic", "static", "passthrough"])
@pytest.mark.parametrize("allowed", ACTIONS)
async def test_a_token_calls_what_its_actions_allow_through_every_door(allowed: str, menu: str, era: Era) -> None:
    can, called, hidden = ACTIONS[allowed]
    wall = Wall(GUEST, hidden, tokens=(TokenSettings(name="guest", hash=TOKEN.hash, can=can),))
    async with before_the_doors(wall, MENUS[menu], era, "lobby", "vault") as walk:
        came = await walked(walk)
        for name in ("lobby__echo", "lobby/echo"):
            await walk.call(name, {"text": "hello"})
            await walk.call("call_tool", {"name": name, "arguments": {"text": "hello"}})
        await walk.call("run_code", {"code": "await tools.lobby.echo(text='hello')"})
        reached = {name for fixture in walk.served.fixtures.values() for name, _ in fixture.calls}
    assert reached == called
    assert leaks(came, hidden) == []
    assert ("brief" in str(came["prompts/list"])) == ("prompts" in can)
    assert ("today" in str(came["resources/list"])) == ("resources" in can)


@pytest.mark.parametrize("era", ["legacy", "modern"])
@pytest.mark.parametrize("menu", MENUS)
async def test_no_door_makes_a_call_that_a_person_must_confirm_and_cannot(menu: str, era: Era) -> None:
    """The client supports no elicitation; `echo` is read-only, and the effect of `unlock` is not configured."""
    token = TokenSettings(name="guest", hash=TOKEN.hash, can=("call",), confirm="write")
    async with before_the_doors(Wall(GUEST, (), tokens=(token,)), MENUS[menu], era, "lobby", "vault") as walk:
        await walked(walk)
        refused = [await walk.call(name, {}) for name in ("vault__unlock", "vault__treasury")]
        refused.append(await walk.call("call_tool", {"name": "vault__unlock", "arguments": {}}))
        await walk.call("lobby__echo", {"text": "hello"})
        touched = {name for fixture in walk.served.fixtures.values() for name, _ in fixture.calls}
    assert all("needs the confirmation of a person" in answer for answer in refused)
    assert touched == {"echo"}


async def test_the_owner_sees_through_the_same_doors_what_the_walls_hide() -> None:
    """Without this, the tests above would also pass over doors that are never opened."""
    wall = Wall(OWNER, (), tokens=())
    async with before_the_doors(wall, ServeOptions(mode="dynamic", preset="full"), "legacy", "lobby", "vault") as walk:
        came = await walked(walk)
    silent = {"logging/setLevel", "subscriptions/listen", "resources/subscribe", "resources/unsubscribe", *METHODS}
    seen = {
        door
        for door, answers in came.items()
        if any(w in a.lower() for a in answers for w in (*SECRETS, "brief", REPORT))
    }
    expected = set(came) - silent - {"report_task", "read_result", "resources/read", "completion/complete", "run_code"}
    assert expected - seen <= {
        "resources/list",
        "resources/templates/list",
        "get_stats",
        "prompts/get",
        "unload_toolset",
    }


async def test_the_owner_reaches_by_programs_what_the_walls_hide() -> None:
    """Without this, the rows of programs would also pass where no program ever runs."""
    async with before_the_doors(Wall(OWNER, (), tokens=()), MENUS["code"], "modern", "lobby", "vault") as walk:
        called = await walk.call("run_code", {"code": "await search('unlock')\nawait tools.vault.treasury()"})
        stubs = await walk.call("search_tools", {"query": "count the bullion"})
        touched = [name for name, _ in walk.served.fixtures["vault"].calls]
    assert touched == ["treasury"]
    assert "vault.treasury" in called
    assert "tools.vault.treasury()" in stubs


async def test_every_door_has_a_row() -> None:
    async with serve(guarded("lobby")) as served:
        registered = set(served.front.server._request_handlers)
    assert set(DOORS) >= registered
    assert set(META_DOORS) == {tool.name for tool in META_TOOLS}


NOTICES: tuple[tuple[str, dict[str, Any]], ...] = (
    ("notifications/message", {"level": "error", "data": "the vault is open"}),
    ("notifications/resources/updated", {"uri": NOTE}),
    ("notifications/prompts/list_changed", {}),
    ("notifications/resources/list_changed", {}),
    ("notifications/elicitation/complete", {"elicitationId": "vault"}),
)


@pytest.mark.parametrize("wall", WALLS)
async def test_a_client_hears_nothing_of_a_server_out_of_reach(wall: str) -> None:
    heard: list[str] = []
    done = anyio.Event()

    async def hear(message: Any) -> None:
        heard.append(type(message).__name__)
        if isinstance(message, types.ToolListChangedNotification):
            done.set()

    chosen = WALLS[wall]
    options = ServeOptions(mode="dynamic", exclude=chosen.exclude)
    async with serve(
        guarded("lobby"),
        guarded("vault"),
        options=NO_OPTIONS if chosen.by_connection else options,
        tokens={token.name: token for token in chosen.tokens},
        toolsets=TOOLSETS,
    ) as served:
        front = Recognised(served.gateway)
        front.principal, front.options = chosen.principal, options if chosen.by_connection else None
        state = served.gateway.state
        async with state.serving(options), Client(front.server, mode="legacy", message_handler=hear) as client:
            await client.list_tools()
            for method, params in NOTICES:
                served.gateway.state.announce(Notified(server="vault", method=method, params=params))
            asked = front.audience.idle_exchanges("vault")
            with anyio.move_on_after(DEADLINE_SECONDS if wall != "revoked" else 0.2):
                served.gateway.state.announce(ListChanged())
                await done.wait()
    assert set(heard) <= {"ToolListChangedNotification"}
    assert asked == ()


async def test_an_owner_hears_what_a_token_does_not() -> None:
    """Without this, the test above would also pass where nothing is ever told."""
    heard: list[str] = []
    seen = anyio.Event()

    async def hear(message: Any) -> None:
        heard.append(type(message).__name__)
        if len(set(heard)) >= 3:
            seen.set()

    async with (
        serve(guarded("lobby"), guarded("vault")) as served,
        served.client("legacy", message_handler=hear) as client,
    ):
        await client.list_tools()
        for method, params in NOTICES:
            served.gateway.state.announce(Notified(server="vault", method=method, params=params))
        with anyio.fail_after(DEADLINE_SECONDS):
            await seen.wait()
