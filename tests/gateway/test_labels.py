"""Labels that a server gives itself and its tools, wherever it may write them: none of them lifts a tool."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from shortlist.config.settings import ServerSettings
from tests.gateway.support import serve, words
from tests.upstream.support import script

pytestmark = pytest.mark.anyio
WORDS = ["refund", "customer"]
TEXT = " ".join(WORDS)
QUERY = "refund a customer"
KEYS = ("tags", "keywords", "category", "categories", "labels", "topics", "aliases", "x-tags", "x-keywords")
BY_KEY = {key: {key: TEXT if key == "category" else WORDS} for key in KEYS}
"""Labels by the key that has them."""
PLACES: Mapping[str, Any] = {
    "definition": lambda labels: labels,
    "_meta": lambda labels: {"_meta": labels},
    "_meta of a framework": lambda labels: {"_meta": {"_fastmcp": labels, "fastmcp": labels}},
    "_meta with a prefix": lambda labels: {"_meta": {f"com.example/{key}": value for key, value in labels.items()}},
    "annotations": lambda labels: {"annotations": labels},
    "inputSchema": lambda labels: {"inputSchema": {"type": "object", **labels}},
    "outputSchema": lambda labels: {"outputSchema": {"type": "object", **labels}},
    "icons": lambda labels: {"icons": [{"src": "https://a.example/i.png", **labels}]},
    "text instead of a list": lambda labels: dict.fromkeys(labels, TEXT),
}
EVERYWHERE: dict[str, Any] = {key: value for labels in BY_KEY.values() for key, value in labels.items()}
HELLO = {
    "serverInfo": {"name": "listing", "version": "1", **EVERYWHERE, "_meta": EVERYWHERE},
    "capabilities": {"tools": EVERYWHERE, "experimental": EVERYWHERE},
    "_meta": EVERYWHERE,
    **EVERYWHERE,
}


def offer(number: int, **labels: Any) -> dict[str, Any]:
    return {"name": f"offer_{number}", "description": "Does it.", "inputSchema": {"type": "object"}, **labels}


def servers(folder: Path, *, labelled: bool, **configured: Any) -> dict[str, ServerSettings]:
    """Return an honest server, and one that labels itself and its tools, or says the same without labels."""
    honest = {"name": "reverse_charge", "description": "Give money back.", "inputSchema": {"type": "object"}}
    ways = [place(labels) for place in PLACES.values() for labels in BY_KEY.values()]
    offers = [offer(number, **(way if labelled else {})) for number, way in enumerate(ways)]
    listed = {"tools": offers, **({"_meta": EVERYWHERE} if labelled else {})}
    lists: dict[str, dict[str, Any]] = {"other": {"tools/list": {"tools": [honest]}}, "self": {"tools/list": listed}}
    if labelled:
        lists["self"]["initialize"] = HELLO
    for name, content in lists.items():
        (folder / f"{name}.json").write_text(json.dumps(content))
    more: dict[str, dict[str, Any]] = {"other": {}, "self": configured}
    return {name: script(name, str(folder / f"{name}.json"), file="listing.py", **more[name]) for name in lists}


async def answers(others: Mapping[str, ServerSettings]) -> list[str]:
    hints: list[dict[str, Any]] = [{}, {"tags": WORDS}, {"category": TEXT}, {"intent": "refund"}]
    async with serve(others=others) as served, served.client() as client:
        searches = [{"query": QUERY, "limit": 100, **hint} for hint in hints]
        found = [words(await client.call_tool("search_tools", search)) for search in searches]
    return [_without_notes(answer) for answer in found]


def _without_notes(answer: str) -> str:
    """Leave out what an answer says of its hints: there are such labels, or there are none."""
    return "\n".join(
        line for line in answer.splitlines() if not line.startswith(("Preferred: ", "No tag", "No category"))
    )


async def test_labels_of_a_server_change_no_rank_and_no_score(tmp_path: Path) -> None:
    plain = await answers(servers(tmp_path, labelled=False))
    assert await answers(servers(tmp_path, labelled=True)) == plain


async def test_labels_of_a_server_are_there_to_filter_by(tmp_path: Path) -> None:
    async with serve(others=servers(tmp_path, labelled=True)) as served, served.client() as client:
        search = {"query": QUERY, "tags": WORDS[:1], "only": True, "limit": 100}
        found = words(await client.call_tool("search_tools", search))
    assert "self__offer_0" in found
    assert "other__reverse_charge" not in found


async def test_tags_of_the_configuration_do_rank(tmp_path: Path) -> None:
    plain = await answers(servers(tmp_path, labelled=False))
    assert await answers(servers(tmp_path, labelled=False, tags=tuple(WORDS))) != plain
