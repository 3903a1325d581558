"""What machines ask a gateway over HTTP: is it alive, can it search, what has it counted."""

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from shortlist.access.principal import NOBODY
from shortlist.front.http import behind_token
from shortlist.front.server import PRINCIPAL
from shortlist.gateway.state import State
from shortlist.observability.metrics import CONTENT_TYPE, Instruments

LIMITED = "This token may not see every server, and the metrics name them all."


def probe_routes(state: State, instruments: Instruments, host: str) -> list[Route]:
    """Give `/healthz` and `/readyz`, open and saying nothing else, and `/metrics` behind the token of the front."""

    async def alive(_: Request) -> Response:
        return PlainTextResponse("ok\n")

    async def ready(_: Request) -> Response:
        return PlainTextResponse("ready\n") if is_searchable(state) else PlainTextResponse("starting\n", 503)

    async def metrics(request: Request) -> Response:
        scope = state.everything.scope(request.scope.get(PRINCIPAL, NOBODY))
        if scope.is_limited:
            return PlainTextResponse(LIMITED, 403)
        return Response(instruments.exposition(), headers={"content-type": CONTENT_TYPE})

    return [
        Route("/healthz", alive),
        Route("/readyz", ready),
        Route("/metrics", metrics, middleware=[behind_token(state, host)]),
    ]


def is_searchable(state: State) -> bool:
    """Return whether a search has something to search: there are tools, or every server has said that it has none."""
    if len(state.everything.catalog):
        return True
    return "connecting" not in state.upstreams.states().values()
