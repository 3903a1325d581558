"""Ratel's catalog (Rust in a Python package): BM25, its default method."""

from typing import Any

from benchmarks.baselines.documents import description_of, ids_of, name_of, schema_of
from benchmarks.baselines.protocol import Baseline, Embed, Tools, finish, package


class Ratel:
    """`ratel_ai.ToolCatalog`, which keys on ids of our choice: names stay as they are."""

    name = "ratel"

    def __init__(self, tools: Tools) -> None:
        ratel = package("ratel_ai")
        self._catalog = ratel.ToolCatalog()
        registered = self._catalog.register(
            [
                ratel.ExecutableTool(
                    id=tool_id,
                    name=name_of(tool),
                    description=description_of(tool),
                    input_schema=schema_of(tool),
                    execute=_unused,
                )
                for tool_id, tool in zip(ids_of(tools), tools, strict=True)
            ]
        )
        finish(_awaited(registered))

    def rank(self, query: str, limit: int) -> list[str]:
        return [hit.tool_id for hit in self._catalog.search(query, limit)]


def ratel(tools: Tools, _embed: Embed | None = None) -> Baseline:
    return Ratel(tools)


async def _awaited(registered: Any) -> None:
    await registered


def _unused(_arguments: dict[str, Any]) -> None:
    """Stand where a tool's function would: only its text is searched."""
