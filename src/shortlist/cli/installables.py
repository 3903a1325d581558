"""Servers of a registry that are not connected yet, as documents that a search can find."""

from collections.abc import Collection, Mapping

from shortlist.cli.registries import snapshot
from shortlist.gateway.kinds import installable_server
from shortlist.models import Json, Tool


def installable(registry: str, connected: Collection[str]) -> list[Tool]:
    """Return the servers of a registry's snapshot that are not connected."""
    bodies = (raw["server"] for raw in snapshot(registry) if isinstance(raw.get("server"), dict))
    named = [body for body in bodies if isinstance(body.get("name"), str)]
    return [
        installable_server(
            body["name"], str(body.get("title") or ""), str(body.get("description") or ""), _tool_count(body)
        )
        for body in named
        if body["name"].rpartition("/")[2] not in connected
    ]


def _tool_count(body: Mapping[str, Json]) -> int:
    """Return how many tools a server has, where its registry lists them."""
    tools = body.get("tools")
    return len(tools) if isinstance(tools, list) else 0
