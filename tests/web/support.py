"""The dashboard over a real gateway with real servers, visited as a browser would: with cookies, over HTTP."""

import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass, field, replace
from html.parser import HTMLParser
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import httpx2
from starlette.routing import Mount

from shortlist.access.jwt import TokenVerifier
from shortlist.config.settings import TokenSettings, hash_token
from shortlist.front.border import Border
from shortlist.front.http import build_app
from shortlist.storage.port import Batch, Storage
from shortlist.telemetry.events import Event
from shortlist.telemetry.ledger import Ledger, Stamped
from shortlist.telemetry.redaction import Privacy
from shortlist.web.access import Access
from shortlist.web.app import dashboard
from shortlist.web.controls import Controls
from shortlist.web.page import Sources
from tests.access.issuer import IdentityProvider
from tests.gateway.support import Fixture, Served, serve
from tests.storage.both import open_test_storage

ORIGIN = "http://127.0.0.1:8765"
TOKENS = {
    "ada": TokenSettings(name="ada", hash=hash_token("ada-secret")),
    "bob": TokenSettings(name="bob", hash=hash_token("bob-secret"), servers=("beta",)),
}

BLOCKS = frozenset({"p", "li", "td", "th", "tr", "dt", "dd", "h1", "h2", "h3", "h4", "div", "section"})


class Clock:
    """Time that passes when the test says so."""

    def __init__(self) -> None:
        self.now = 1_000.0

    def __call__(self) -> float:
        return self.now


@dataclass(frozen=True, slots=True)
class Visitor:
    """A browser before the door, and what is behind it."""

    http: httpx2.AsyncClient
    access: Access
    served: Served
    storage: Storage
    folder: Path
    """Where the storage is, if it is in files."""
    clock: Clock = field(default_factory=Clock)
    provider: IdentityProvider = field(default_factory=IdentityProvider)
    """The issuer that a gateway with `oauth` trusts."""

    async def enter(self) -> httpx2.Response:
        """Follow a fresh link."""
        return await self.http.get(f"/open?key={self.access.link()}")

    async def sign_in(self, token: str) -> httpx2.Response:
        return await self.post("/sign-in", token=token)

    async def post(self, path: str, headers: dict[str, str] | None = None, **form: str) -> httpx2.Response:
        """Send a form as a page of ours would, with other headers where they are given."""
        return await self.http.post(path, data=form, headers={"Origin": ORIGIN} if headers is None else headers)

    async def read(self, path: str) -> "Seen":
        """Return what a page shows."""
        answer = await self.http.get(path)
        assert answer.status_code == 200, answer.text
        return Seen(answer.text)

    async def csrf(self) -> str:
        page = (await self.http.get("/servers")).text
        return page.partition('name="csrf" value="')[2].partition('"')[0]


@asynccontextmanager
async def visiting(
    *fixtures: Fixture, events: Sequence[Event] = (), controls: Controls | None = None, **settings: Any
) -> AsyncIterator[Visitor]:
    """Serve fixtures with a dashboard over what was recorded, and stand before its door."""
    clock, provider = Clock(), IdentityProvider()
    with TemporaryDirectory() as folder, closing(open_test_storage(Path(folder))) as storage:
        write(storage, events)
        async with serve(*fixtures, **settings) as served:
            access = Access(clock)
            sources = Sources(
                state=served.gateway.state,
                explained=served.searcher.explained,
                storage=storage,
                controls=replace(controls or Controls(), reconnect=served.pool.refresh),
            )
            state = served.gateway.state
            border = Border(state, token_required=False, verifier=TokenVerifier(lambda: state.settings.oauth, provider))
            app = build_app(served.front, "127.0.0.1", [Mount("/", dashboard(sources, access, border))])
            async with httpx2.AsyncClient(transport=httpx2.ASGITransport(app), base_url=ORIGIN) as http:
                yield Visitor(http, access, served, storage, Path(folder), clock, provider)


def write(storage: Storage, events: Sequence[Event]) -> None:
    """Record events, one a second until now."""
    batch, ledger, now = Batch(), Ledger(Privacy(key=b"test")), time.time()
    for number, event in enumerate(events):
        at = now - len(events) + number
        ledger.enter(batch, Stamped(at, at, event))
    storage.events.append(batch)


class Seen(HTMLParser):
    """The words of a page as a person sees them, and the elements that a browser makes of it."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.words = ""
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.feed(page)

    def handle_data(self, data: str) -> None:
        self.words += data

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        self.words += " " if tag in BLOCKS else ""

    def links(self) -> list[str]:
        """Return all that a browser could load or follow."""
        keys = ("href", "src", "action")
        return [str(attributes[key]) for _, attributes in self.elements for key in keys if key in attributes]

    def inline(self) -> list[str]:
        """Return what the policy of the pages forbids: scripts and styles that stand in the page itself."""
        attributes = [f"{tag}.{name}" for tag, found in self.elements for name in found if _runs(name)]
        return attributes + [
            tag for tag, found in self.elements if tag == "style" or (tag == "script" and "src" not in found)
        ]


def _runs(attribute: str) -> bool:
    return attribute == "style" or attribute.startswith("on")
