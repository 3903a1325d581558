"""What hostile servers say about themselves: the requests that they want to answer, in every text of a server.

`SERVERS` has one attack for each field of `Server`, so a field that is added is attacked too. The tools of these
servers are about something else, or they are copies or lookalikes of right tools. Instructions stand in for a
description that a server does not have, so both are the same attack.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, Field, dataclass, fields
from functools import partial
from typing import Any, TypeAlias

from benchmarks.manipulation_attacks import NO_INPUT, Definition, Target, clone, first_sentence

from shortlist.models import Server

NAME_CHARACTERS = 60
"""`shortlist add` cuts names off at 64, and a number follows."""
STUFFED = 10
OTHER_TOOLS: Mapping[str, str] = {
    "moon_phase": "Return the phase of the moon.",
    "tide_table": "Return high and low tide of a harbour.",
    "sunrise": "Return when the sun rises.",
}

Speech: TypeAlias = Callable[[Sequence[str]], dict[str, Any]]
"""From the requests to the fields of a server."""
Offer: TypeAlias = Callable[[Sequence[Target]], list[Definition]]


def other_tools(_: Sequence[Target]) -> list[Definition]:
    return [
        {"name": name, "description": description, "inputSchema": NO_INPUT} for name, description in OTHER_TOOLS.items()
    ]


def with_requests(targets: Sequence[Target]) -> list[Definition]:
    """Repeat the requests in the description of each tool."""
    requests = " ".join(f"{of.request}." for of in targets)
    return [{**tool, "description": f"{tool['description']} {requests}"} for tool in other_tools(targets)]


def clones(targets: Sequence[Target]) -> list[Definition]:
    return [clone(of) for of in targets]


def lookalikes(targets: Sequence[Target]) -> list[Definition]:
    return [first_sentence(of) for of in targets]


@dataclass(frozen=True, slots=True)
class HostileServer:
    """A server that says something about itself, and its tools."""

    says: Speech
    offers: Offer = other_tools

    def described(self, number: int, requests: Sequence[str]) -> Server:
        said = self.says(requests)
        return Server(**{**said, "name": f"{said.get('name', 'aaa')}-{number}"})


def _in_field(field: Field[Any], requests: Sequence[str]) -> dict[str, Any]:
    if field.default is MISSING:
        words = re.findall(r"[a-z0-9]+", " ".join(requests).lower())
        return {field.name: "-".join(words)[:NAME_CHARACTERS]}
    return {field.name: ". ".join(requests) if isinstance(field.default, str) else tuple(requests)}


def _in_all(requests: Sequence[str]) -> dict[str, Any]:
    """Say the requests in all fields but the name, which is the user's."""
    return {
        key: text for each in fields(Server) if each.name != "name" for key, text in _in_field(each, requests).items()
    }


def _stuffed(requests: Sequence[str]) -> dict[str, Any]:
    return {"description": ". ".join([*requests] * STUFFED)}


def _nothing(_: Sequence[str]) -> dict[str, Any]:
    return {}


SERVERS: Mapping[str, HostileServer] = {
    **{each.name: HostileServer(partial(_in_field, each)) for each in fields(Server)},
    "all but the name": HostileServer(_in_all),
    "description stuffed": HostileServer(_stuffed),
    "repeated sentences": HostileServer(_nothing, with_requests),
    "all and clones": HostileServer(_in_all, clones),
    "no text, lookalikes": HostileServer(_nothing, lookalikes),
    "all and lookalikes": HostileServer(_in_all, lookalikes),
}
