"""What a server may ask of the client whose call is in flight, and how the question names the server."""

from collections.abc import Mapping
from weakref import WeakKeyDictionary

from shortlist.config.settings import Question
from shortlist.errors import RequestRefused
from shortlist.gateway.callers import METHOD_NOT_FOUND, Exchange
from shortlist.gateway.state import GatewayState
from shortlist.gateway.task_handles import related, with_related
from shortlist.models import Json
from shortlist.text.tokens import cleaned

KINDS: Mapping[str, Question] = {
    "sampling/createMessage": "sampling",
    "elicitation/create": "elicitation",
    "roots/list": "roots",
}
MOST_IN_ONE_CALL = 20
"""Questions that servers may ask in one call of a client."""
SERVER_META = "shortlist/server"
_asked: WeakKeyDictionary[Exchange, int] = WeakKeyDictionary()


def question(
    state: GatewayState, exchange: Exchange, server: str, method: str, params: Mapping[str, Json]
) -> dict[str, Json]:
    """Return the params of a question as the client gets it; raise RequestRefused where it may not be asked."""
    kind, settings = KINDS.get(method), state.settings.servers.get(server)
    if kind is None:
        raise _refused(f"{server!r} asks the client for something else than {' or '.join(KINDS)}")
    if settings is not None and kind not in settings.may_ask:
        raise _refused(f"{server!r} may not ask clients for {kind}: the configuration does not allow it (`may_ask`)")
    if "be_asked" not in state.everything.scope(exchange.caller.principal).actions:
        raise _refused(f"{server!r} asks the client for input, which this token does not allow (`be_asked`)")
    _asked[exchange] = _asked.get(exchange, 0) + 1
    if _asked[exchange] > MOST_IN_ONE_CALL:
        raise _refused(f"{server!r} asks more than {MOST_IN_ONE_CALL} questions in one call")
    tasks = state.relayed_tasks
    is_own = tasks.owner_of(server, params) == exchange.caller
    params = cleaned(with_related(params, tasks.handle_of(server, related(params)) if is_own else None))
    if state.view_of(exchange.caller).plain:  # the client believes that it speaks to the server itself
        return dict(params)
    if kind == "elicitation":
        return {**params, "message": f"{server} asks: {params.get('message', '')}"}
    meta = params.get("_meta")
    return {**params, "_meta": {**(meta if isinstance(meta, dict) else {}), SERVER_META: server}}


def _refused(message: str) -> RequestRefused:
    return RequestRefused(message, code=METHOD_NOT_FOUND)
