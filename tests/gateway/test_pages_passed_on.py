"""Requests for pages of the dashboard that reach another gateway than the one that they belong to."""

import httpx2
import pytest
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.types import Receive, Scope, Send

from shortlist.front.peers import Peers

pytestmark = pytest.mark.anyio


class OneOther:
    """A store that knows one other gateway."""

    def announce(self, replica: str, url: str) -> None: ...

    def others(self, replica: str) -> dict[str, str]:  # noqa: ARG002
        return {"7": "http://there"}

    def leave(self, replica: str) -> None: ...


async def there(scope: Scope, receive: Receive, send: Send) -> None:
    await PlainTextResponse(f"there {Request(scope).url.query}")(scope, receive, send)


async def vanished(scope: Scope, receive: Receive, send: Send) -> None:
    raise httpx2.ConnectTimeout("nothing answers")


def over(app: object) -> httpx2.AsyncClient:
    return httpx2.AsyncClient(transport=httpx2.ASGITransport(app), base_url="http://here")  # type: ignore[arg-type]


async def answer(address: str, other: object = there) -> httpx2.Response:
    """Return the answer of a gateway to a browser without cookies."""
    peers = Peers(OneOther())

    async def here(scope: Scope, receive: Receive, send: Send) -> None:
        if not await peers.page_passed_on(scope, receive, send):
            await PlainTextResponse("here")(scope, receive, send)

    async with peers.joined("http://here"), over(other) as peers._http, over(here) as browser:
        return await browser.get(address)


@pytest.mark.parametrize("query", ["state=r7-secret&code=c", "key=r7-secret"])
async def test_the_answer_to_a_login_and_a_link_reach_the_gateway_that_made_them(query: str) -> None:
    assert (await answer(f"/login/callback?{query}")).text == f"there {query}"


async def test_the_answer_to_a_login_of_a_gateway_that_is_unknown_is_given_here() -> None:
    assert (await answer("/login/callback?state=r8-secret&code=c")).text == "here"
    assert (await answer("/login/callback?state=secret&code=c")).text == "here"


async def test_a_gateway_that_the_network_hides_is_reported_to_the_browser() -> None:
    found = await answer("/login/callback?state=r7-secret&code=c", vanished)
    assert (found.status_code, "has stopped" in found.text) == (503, True)
