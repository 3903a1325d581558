import pytest

from shortlist.gateway.snapshot import Options
from tests.gateway.support import Era, Fixture, serve, words

pytestmark = [pytest.mark.anyio, pytest.mark.filterwarnings("ignore::mcp.MCPDeprecationWarning")]
eras = pytest.mark.parametrize("era", ["legacy", "modern"])


@eras
async def test_the_menu_is_four_tools(era: Era) -> None:
    async with serve(Fixture("alpha"), Fixture("beta")) as served, served.client(era) as client:
        names = [tool.name for tool in (await client.list_tools()).tools]
    assert names == ["search_tools", "describe_tools", "call_tool", "read_result"]


@eras
async def test_a_client_searches_describes_and_calls(era: Era) -> None:
    async with serve(Fixture("alpha"), Fixture("beta")) as served, served.client(era) as client:
        found = words(await client.call_tool("search_tools", {"query": "add two numbers"}))
        described = words(await client.call_tool("describe_tools", {"names": ["alpha__add"]}))
        result = await client.call_tool("call_tool", {"name": "alpha__add", "arguments": {"a": 2, "b": 3}})
    assert "alpha__add(a: number, b: number)" in found
    assert '"required":["a","b"]' in described
    assert result.structured_content == {"total": 5}
