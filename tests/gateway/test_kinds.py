"""Searches for prompts, resources, templates and servers that could be installed."""

from typing import Any

import mcp_types as types
import pytest
from mcp import Client

from shortlist.config.settings import TokenSettings, hash_token
from shortlist.gateway.kinds import installable_server
from shortlist.gateway.state import Seams
from shortlist.models import Tool
from shortlist.upstream.events import Notified
from tests.gateway.support import Era, Fixture, serve, words
from tests.gateway.test_doors import GUEST, Recognised

pytestmark = [pytest.mark.anyio, pytest.mark.filterwarnings("ignore::mcp.MCPDeprecationWarning")]


class Library(Fixture):
    """A server with prompts and resources that say what they are for."""

    def __init__(self, name: str, era: Era = "legacy") -> None:
        super().__init__(name, era)
        self.prompts = {"review-change": "Review a code change.", "plan-trip": "Plan a journey by train."}

    async def list_prompts(self, *_: Any) -> types.ListPromptsResult:
        arguments = [types.PromptArgument(name="diff", description="The change", required=True)]
        found = [types.Prompt(name=n, description=d, arguments=arguments) for n, d in self.prompts.items()]
        return types.ListPromptsResult(prompts=found)

    async def list_resources(self, *_: Any) -> types.ListResourcesResult:
        handbook = types.Resource(name="handbook", uri="doc://handbook", description="Rules for holidays and travel.")
        return types.ListResourcesResult(resources=[handbook])

    async def list_templates(self, *_: Any) -> types.ListResourceTemplatesResult:
        invoice = types.ResourceTemplate(
            name="invoice", uri_template="doc://invoices/{number}", description="One invoice of a customer by number."
        )
        return types.ListResourceTemplatesResult(resource_templates=[invoice])


def offered() -> tuple[Tool, ...]:
    return (installable_server("io.github.linear/linear", "Linear", "Issues, projects and cycles in Linear.", 23),)


async def search(client: Client, query: str, *kinds: str, **more: Any) -> str:
    return words(await client.call_tool("search_tools", {"query": query, "kinds": list(kinds), **more}))


@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_each_kind_is_found_and_the_answer_says_how_to_use_it(era: Era) -> None:
    async with serve(Library("lib", era), seams=Seams(installable=offered)) as served, served.client(era) as client:
        prompt = await search(client, "review a code change", "prompts")
        resource = await search(client, "rules for holidays", "resources")
        template = await search(client, "invoice of a customer", "templates")
        server = await search(client, "issues in linear", "servers")
        got = await client.read_resource("shortlist://lib/doc://handbook")
    assert "prompts/get:\n- lib__review-change(diff): Review a code change." in prompt
    assert "plan-trip" not in prompt.splitlines()[1]
    assert "resources/read:\n- shortlist://lib/doc://handbook: Rules for holidays and travel." in resource
    assert "- shortlist://lib/doc://invoices/{number}" in template
    assert (
        "- not connected: Linear, 23 tools; ask your user to run `shortlist add io.github.linear/linear`: "
        "Issues, projects and cycles" in server
    )
    assert "doc://handbook" in str(got)


async def test_tools_alone_are_searched_by_default_and_tools_come_first() -> None:
    async with serve(Library("lib"), seams=Seams(installable=offered)) as served, served.client() as client:
        usual = words(await client.call_tool("search_tools", {"query": "say a text back"}))
        named = await search(client, "say a text back", "tools")
        both = await search(client, "review a code change", "servers", "prompts", "tools")
        data = await client.call_tool(
            "search_tools", {"query": "review a code change", "kinds": ["prompts"], "format": "json"}
        )
    assert usual == named
    assert "prompts/get" not in usual
    assert both.index("lib__review-change") > 0
    assert data.structured_content["kinds"]["prompts"][0]["use"] == "lib__review-change"


async def test_a_changed_list_is_found_after_its_server_says_so() -> None:
    async with serve(Library("lib")) as served, served.client() as client:
        assert "No confident match" in await search(client, "brew some coffee", "prompts")
        served.fixtures["lib"].prompts = {"coffee": "Brew some coffee."}  # type: ignore[attr-defined]
        served.gateway.state.announce(Notified(server="lib", method="notifications/prompts/list_changed"))
        assert "lib__coffee" in await search(client, "brew some coffee", "prompts")


async def test_an_unknown_kind_is_refused() -> None:
    async with serve(Library("lib")) as served, served.client() as client:
        assert "'kinds' takes tools, prompts" in await search(client, "x", "recipes")


@pytest.mark.parametrize(
    ("token", "sees"),
    [
        (TokenSettings(name="guest", hash=hash_token("x"), servers=("lib",)), True),
        (TokenSettings(name="guest", hash=hash_token("x"), servers=("lib",), can=("see", "call")), False),
        (TokenSettings(name="guest", hash=hash_token("x"), servers=("other",)), False),
        (TokenSettings(name="guest", hash=hash_token("x"), tools=("lib/echo",)), False),
    ],
)
async def test_a_token_finds_only_what_it_may_use(token: TokenSettings, sees: bool) -> None:
    async with serve(Library("lib"), Fixture("other"), tokens={"guest": token}) as served:
        async with served.client() as owner:
            assert "lib__review-change" in await search(owner, "review a code change", "prompts")
        front = Recognised(served.gateway)
        front.principal = GUEST
        async with Client(front.server) as client:
            found = await search(client, "review a code change", "prompts")
            read = await search(client, "rules for holidays", "resources")
    assert ("review-change" in found) == sees
    assert ("handbook" in read) == sees
