"""Makes `training`, which is not part of the package, importable, and writes a small made-up bench folder."""

import gzip
import json
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[2]))

THINGS = ("invoice", "ticket", "calendar event", "playlist", "container", "recipe", "contact", "repository")
ACTS = ("create", "delete", "list")


def write(path: Path, records: Iterable[Mapping[str, Any]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with gzip.open(path, "wt", encoding="utf-8") as out:
        out.writelines(json.dumps(record) + "\n" for record in records)


def tool(server: str, act: str, thing: str, prefix: str = "") -> dict[str, Any]:
    name = f"{act}_{thing.replace(' ', '_')}"
    return {
        "id": f"{prefix}{server}::{name}",
        "server": server,
        "name": name,
        "description": f"{act.title()}s the {thing} of {server}. Needs the name of the owner to find it.",
        "input_schema": {"type": "object", "properties": {"owner_name": {"type": "string"}}},
    }


def tools_of(servers: Iterable[str], prefix: str = "") -> list[dict[str, Any]]:
    return [tool(server, act, thing, prefix) for server in servers for act in ACTS for thing in THINGS]


@pytest.fixture(scope="session")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write train/, catalogs/ and eval/ with one right tool in both, one leaked query and one near one."""
    data = tmp_path_factory.mktemp("bench")
    authored = tools_of((f"authored{n}" for n in range(12)), "docker:")
    queries = [
        {"id": t["id"], "query": f"I really want to {t['name']} on {t['server']} number {n}", "gold": [t["id"]]}
        for n, t in enumerate(authored)
    ]
    queries.append({"id": "leak", "query": "WHERE did the quarterly parcels go?!", "gold": [authored[0]["id"]]})
    queries.append(
        {
            "id": "near",
            "query": "please tell me how the quarterly sales figures moved in spring now",
            "gold": [authored[0]["id"]],
        }
    )
    write(data / "train/authored/tools.jsonl.gz", authored)
    write(data / "train/authored/queries.jsonl.gz", queries)
    labelled = [{**t, "id": f"made|{t['id']}"} for t in tools_of(("labelled",))]
    shared = [labelled[0], labelled[1]]
    write(data / "train/labelled/tools.jsonl.gz", labelled)
    both = {
        "id": "b",
        "query": "do the two of them together",
        "gold": [shared[0]["id"], labelled[5]["id"]],
        "source": "made",
    }
    plain = [
        {"id": t["id"], "query": f"labelled wish {n} for {t['name']}", "gold": [t["id"]], "source": "made"}
        for n, t in enumerate(labelled)
    ]
    write(data / "train/labelled/queries.jsonl.gz", [*plain, both])
    whole = tools_of(("bank",))
    write(data / "train/apibank/tools.jsonl.gz", whole)
    write(data / "train/apibank/queries.jsonl.gz", [{"id": "w", "query": "move my money", "gold": [whole[0]["id"]]}])
    write(data / "catalogs/wild/tools.jsonl.gz", tools_of(f"wild{n}" for n in range(30)))
    write(data / "eval/judged/tools.jsonl.gz", shared)
    judged = ("where did the quarterly parcels go", "please tell me how the quarterly sales figures moved in spring")
    write(data / "eval/judged/queries.jsonl.gz", [{"id": q, "query": q, "gold": [shared[0]["id"]]} for q in judged])
    return data
