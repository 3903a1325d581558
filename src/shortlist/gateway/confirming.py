"""Asks the person before a call that the configuration does not let a model make alone."""

import json
from collections.abc import Mapping

from shortlist.access.catalog import CallNotAllowed
from shortlist.gateway.callers import Exchange
from shortlist.models import Json, Tool
from shortlist.text.tokens import clean_text, one_line

ELICIT = "elicitation/create"
SHOWN_ARGUMENTS = 1_000
"""Characters of a call's arguments that a person is shown."""
_NO_FIELDS: Mapping[str, Json] = {"type": "object", "properties": {}}


def refuse_unasked(exchange: Exchange, name: str) -> None:
    """Raise CallNotAllowed where the client cannot ask its user."""
    if not exchange.can(ELICIT):
        raise CallNotAllowed(
            name,
            "it needs the confirmation of a person, and your client cannot ask its user (it does not support "
            "elicitation). Use a client that does, or let the operator configure the `effect` of this tool.",
        )


async def confirm(exchange: Exchange, name: str, tool: Tool, arguments: Mapping[str, Json]) -> None:
    """Ask the person about one call; raise CallNotAllowed unless the answer is yes."""
    shown = shown_arguments(arguments, SHOWN_ARGUMENTS)
    message = f"Allow this call to the server {tool.server!r}?\n{tool.name}({shown})"
    answer = await exchange.ask(ELICIT, {"mode": "form", "message": message, "requestedSchema": _NO_FIELDS})
    if answer.get("action") != "accept":
        raise CallNotAllowed(name, "the person who was asked did not allow it. Do not repeat it unless they say so.")


def shown_arguments(arguments: Mapping[str, Json], most: int) -> str:
    """Return arguments on one line, as a person reads them before agreeing; a cut is visible."""
    written = (f"{name}={json.dumps(value, ensure_ascii=False, default=str)}" for name, value in arguments.items())
    whole = clean_text(", ".join(written))
    cut = one_line(whole, most)
    return cut if len(whole) <= most else f"{cut} ({len(whole):,} characters in all)"
