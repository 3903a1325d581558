"""Follows changes while a gateway serves: configuration, tokens, words, reviews, programs, logins and experiments."""

import logging
from dataclasses import dataclass
from pathlib import Path

import anyio
import anyio.to_thread

from shortlist.access.tokens import OwnTokens
from shortlist.catalog.saved import SavedCatalog
from shortlist.cli.news import News
from shortlist.cli.reading import say
from shortlist.cli.recording import Telemetry
from shortlist.cli.restarts import Restarts
from shortlist.cli.teaching import Teacher
from shortlist.cli.vault import revealed
from shortlist.cli.words import Words, stamp
from shortlist.config.settings import Settings
from shortlist.errors import InvalidConfig, InvalidInput
from shortlist.gateway.changes import ListChanged
from shortlist.gateway.gateway import Gateway
from shortlist.search.engine import Engine
from shortlist.trust.keeping import Keeper
from shortlist.upstream.events import ToolsChanged
from shortlist.upstream.pool import UpstreamPool

RELOAD_SECONDS = 2.0
WATCH_SECONDS = 0.4
"""How often the configuration is looked at: a change is served within a second."""

logger = logging.getLogger(__name__)


async def follow_experiments(telemetry: Telemetry, gateway: Gateway, news: News) -> None:
    """Serve the variants of the running experiment; notify clients whose variant changed to list again."""
    while True:
        await news.wait("experiments", RELOAD_SECONDS)
        if await anyio.to_thread.run_sync(telemetry.follow):
            gateway.state.announce(ListChanged())


async def follow_reviews(keeper: Keeper, gateway: Gateway, pool: UpstreamPool, news: News) -> None:
    """Admit the tools of all servers again when somebody has approved or rejected something."""
    while True:
        await news.wait("decisions", RELOAD_SECONDS)
        for server, tools in (await anyio.to_thread.run_sync(keeper.reviewed)).items():
            gateway.on_upstream(ToolsChanged(server=server, tools=tools))
        waiting, keeper.unlisted = keeper.unlisted & pool.states.keys(), frozenset()
        for server in waiting:
            pool.refresh(server)


async def follow_programs(gateway: Gateway, news: News) -> None:
    """Offer programs that were approved meanwhile, and no longer those that were removed."""
    while True:
        await news.wait("programs", RELOAD_SECONDS)
        await gateway.state.background.contained("following saved programs", gateway.offer_programs)


async def follow_grants(pool: UpstreamPool, news: News) -> None:
    """Try servers again that need a login when somebody has signed in with any gateway."""
    while True:
        await news.wait("grants", float("inf"))
        for server, state in tuple(pool.states.items()):
            if state == "needs_auth":
                pool.refresh(server)


async def learn(teacher: Teacher, gateway: Gateway) -> None:
    """Update exemplars from the event log, using at most 5 % of one core."""
    took = 0.0
    while True:
        await anyio.sleep(max(RELOAD_SECONDS, 20 * took))
        started = anyio.current_time()
        await anyio.to_thread.run_sync(teacher.refresh, gateway.state.settings, abandon_on_cancel=True)
        took = anyio.current_time() - started


@dataclass(slots=True)
class Reloads:
    """Applies changes of the configuration, of the files it names, and of the tokens."""

    gateway: Gateway
    pool: UpstreamPool
    search: Engine
    news: News
    saved: SavedCatalog
    words: Words
    configured: Settings
    """Without the tokens that were created by command."""
    tokens: OwnTokens | None

    async def follow(self) -> None:
        """Look for changes until cancelled."""
        path, restarts = Path(self.configured.source), Restarts()
        seen = stamp(path) if self.configured.source else None
        while True:
            await self.news.wait("tokens", WATCH_SECONDS)
            now = stamp(path) if self.configured.source else None
            if now not in (seen, None):
                seen = now
                await self._reload_settings(path)
            if self.tokens is not None and await anyio.to_thread.run_sync(self.tokens.follow):
                await self.gateway.configure(self.tokens.added_to(self.configured))
            for server in restarts.asked():
                await self._restart(server)
            await self._reload_words()

    async def _reload_settings(self, path: Path) -> None:
        """Apply the configuration whole; one that cannot be served is reported and the running one is kept."""
        from shortlist.config.load import load_settings  # noqa: PLC0415 - a tenth of a start; most never read it again

        try:
            settings = revealed(load_settings(path, lenient=True))
            reload = await self.gateway.configure(self.tokens.added_to(settings) if self.tokens else settings)
        except InvalidConfig as error:
            logger.warning("%s (the running configuration is kept)", error)
            return
        self.configured, self.saved.servers = settings, settings.servers
        changes = await self.pool.reload(settings.servers, settings.limits)
        changed = [*reload.changes, *([str(changes)] if changes else [])]
        say(f"reloaded {path}" + (f": {'; '.join(changed)}" if changed else ""))

    async def _restart(self, server: str) -> None:
        servers = self.gateway.state.settings.servers
        if server in servers:
            await self.pool.reload({name: settings for name, settings in servers.items() if name != server})
            await self.pool.reload(servers)
            say(f"restarted {server!r}")

    async def _reload_words(self) -> None:
        """Load the expansion files again; if one is broken, log it and keep the previous words."""
        files = self.gateway.state.settings.expansions
        try:
            if not await anyio.to_thread.run_sync(self.words.follow, files):
                return
        except InvalidInput as error:
            logger.warning("%s (the previous expansions stay in use)", error)
            return
        self.search.renew()
        say(f"reloaded the expansions of {', '.join(map(str, files)) or 'no file'}")
