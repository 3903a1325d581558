"""What the pages show, and that a stranger's words stay words."""

from urllib.parse import quote, urlencode

import anyio
import pytest

from tests.gateway.support import DEADLINE_SECONDS, Fixture, schema
from tests.web.support import TOKENS, Visitor, visiting

pytestmark = pytest.mark.anyio
SCRIPT = "<script>alert(1)</script>"
HOSTILE = f"{SCRIPT}\"'><img src=x onerror=alert(1)>\x1b[31mred\x1b[0m \u202egnp.exe\u2066 {{{{ 7*7 }}}}"
SEEN = f"{SCRIPT}\"'><img src=x onerror=alert(1)>red gnp.exe {{{{ 7*7 }}}}"


def search(text: str, **more: str) -> str:
    return "/search?" + urlencode({"q": text, **more})


async def test_the_playground_explains_every_hit() -> None:
    async with visiting(Fixture("alpha")) as visitor:
        await visitor.enter()
        page = await visitor.read(search("add two numbers"))
    words = page.words
    assert "alpha__add" in words
    assert words.count("Explanation") == 5
    for part in ("that the first hit is correct", "Fields", "description", "lexical", "coverage", "boosts"):
        assert part in words


async def test_two_pipelines_stand_side_by_side() -> None:
    async with visiting(Fixture("alpha")) as visitor:
        await visitor.enter()
        page = await visitor.read(search("say a text back", a="default", b="bm25"))
    headings = [found["id"] for tag, found in page.elements if tag == "h2"]
    assert headings == ["column-1", "column-2"]
    assert "same rank" in page.words


@pytest.mark.parametrize(
    ("address", "words"),
    [
        (search("  "), "Try one of these"),
        (search("add", a="best"), "No pipeline 'best'"),
        (search("add", limit="-3"), "Explanation"),
        (search("(", a="regex"), "is not a pattern"),
        (search("\u202e\u200b"), "The query is empty"),
        (search("x" * 5_000), "no good match"),
    ],
)
async def test_a_query_that_cannot_be_answered_is_told_why(address: str, words: str) -> None:
    async with visiting(Fixture("alpha")) as visitor:
        await visitor.enter()
        page = await visitor.read(address)
    assert words in page.words


async def test_a_server_page_shows_its_state_and_tools() -> None:
    async with visiting(Fixture("alpha"), Fixture("beta", "modern")) as visitor:
        await visitor.enter()
        listed, beta = await visitor.read("/servers"), await visitor.read("/servers/beta")
    assert "2 configured, 2 ready" in listed.words
    for part in ("ready", "2026-07-28 (modern)", "beta__echo", "Reconnect"):
        assert part in beta.words


async def test_reconnecting_reads_a_servers_tools_again() -> None:
    fixture = Fixture("alpha")
    async with visiting(fixture) as visitor:
        await visitor.enter()
        fixture.tools["fresh"] = ("A tool that came later.", schema())
        assert "alpha__fresh" not in (await visitor.read("/servers/alpha")).words
        await visitor.post("/servers/alpha/reconnect", csrf=await visitor.csrf())
        with anyio.fail_after(DEADLINE_SECONDS):
            while "alpha__fresh" not in (await visitor.read("/servers/alpha")).words:
                await anyio.lowlevel.checkpoint()


@pytest.mark.parametrize("path", ["/servers/gamma", "/tools/alpha/none", "/tools/none", "/nowhere", "/servers/"])
async def test_what_is_not_there_is_not_found(path: str) -> None:
    async with visiting(Fixture("alpha")) as visitor:
        await visitor.enter()
        answer = await visitor.http.get(path)
    assert answer.status_code == 404
    assert "No " in answer.text


async def test_a_limited_token_sees_only_what_it_may_use() -> None:
    async with visiting(Fixture("alpha"), Fixture("beta"), tokens=TOKENS) as visitor:
        await visitor.sign_in("bob-secret")
        pages = [await visitor.read(path) for path in ("/servers", "/tools", search("add two numbers", limit="20"))]
        hidden = [await visitor.http.get(path) for path in ("/servers/alpha", "/tools/alpha/add")]
        own = await visitor.read("/servers/beta")
        forbidden = await visitor.post("/servers/beta/reconnect", csrf=await visitor.csrf())
    for page in pages:
        assert "beta" in page.words
        assert "alpha" not in page.words
    assert [answer.status_code for answer in hidden] == [404, 404]
    assert "Reconnect" not in own.words
    assert forbidden.status_code == 403


async def test_the_playground_tells_a_limited_token_no_words_of_hidden_tools() -> None:
    hidden = Fixture("alpha")
    hidden.tools = {f"open_{number}": ("Open the zorblaxia.", schema()) for number in range(3)}
    async with visiting(hidden, Fixture("beta"), tokens=TOKENS) as visitor:
        await visitor.sign_in("bob-secret")
        page = await visitor.read(search("add two numbers to the zorblaxa"))
    assert "beta__add" in page.words
    assert "zorblaxia" not in page.words


async def hostile_pages(visitor: Visitor, tool: str) -> list[str]:
    await visitor.enter()
    return ["/servers/alpha", "/tools", f"/tools/{quote(tool, safe='')}", search("exe red"), search(HOSTILE)]


async def test_a_strangers_words_stay_words() -> None:
    fixture = Fixture("alpha")
    fixture.tools = {f"x{SCRIPT}": (HOSTILE, schema(**{HOSTILE: "string"})), "plain": ("exe red " + HOSTILE, schema())}
    async with visiting(fixture) as visitor:
        for path in await hostile_pages(visitor, f"alpha/x{SCRIPT}"):
            page = await visitor.read(path)
            assert SEEN in page.words or SCRIPT in page.words
            assert page.inline() == []
            assert not any(tag in ("img", "iframe", "object") for tag, _ in page.elements)
            assert not set("\x1b\u202e\u2066") & set(page.words)
            assert "49" not in page.words.partition("exe {{")[2][:10]
