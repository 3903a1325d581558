"""Probes and metrics over HTTP: whether the gateway is alive, whether it can search, and what it has counted."""

from collections.abc import Callable

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from shortlist.access.principal import NOBODY
from shortlist.front.border import Border
from shortlist.front.notices import Notices
from shortlist.front.requests import Admission
from shortlist.front.server import PRINCIPAL
from shortlist.gateway.state import GatewayState
from shortlist.observability.metrics import CONTENT_TYPE, NOTICES_DROPPED, REFUSED, RUNNING, Instruments

LIMITED = "This token may not see every server, and the metrics name them all."


def probe_routes(
    state: GatewayState, instruments: Instruments, border: Border, is_closing: Callable[[], bool] = lambda: False
) -> list[Route]:
    """Return `/healthz` and `/readyz`, which are open and reveal nothing else, and `/metrics` behind a token."""

    async def alive(_: Request) -> Response:
        return PlainTextResponse("ok\n")

    async def ready(_: Request) -> Response:
        if is_closing():  # the calls that run are answered; new ones belong to another gateway
            return PlainTextResponse("stopping\n", 503)
        return PlainTextResponse("ready\n") if is_searchable(state) else PlainTextResponse("starting\n", 503)

    async def metrics(request: Request) -> Response:
        scope = state.everything.scope(request.scope.get(PRINCIPAL, NOBODY))
        if scope.is_limited:
            return PlainTextResponse(LIMITED, 403)
        return Response(instruments.exposition(), headers={"content-type": CONTENT_TYPE})

    return [
        Route("/healthz", alive),
        Route("/readyz", ready),
        Route("/metrics", metrics, middleware=[border.guard]),
    ]


def is_searchable(state: GatewayState) -> bool:
    """Return whether a search has something to search: there are tools, or every server has none to offer."""
    if len(state.everything.catalog):
        return True
    return not state.arriving and "connecting" not in state.upstreams.states.values()


def watch_clients(instruments: Instruments, admission: Admission, notices: Notices) -> None:
    """Let the instruments read how many requests run, and what clients were refused and not told."""
    instruments.read(RUNNING, lambda: {(): admission.running})
    instruments.read(REFUSED, lambda: {(why,): count for why, count in admission.refused.items()})
    instruments.read(NOTICES_DROPPED, lambda: {(server,): count for server, count in notices.dropped.items()})
