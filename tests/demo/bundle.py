"""The bundled demo files as plain JSON, read without any code of ours."""

import json
from pathlib import Path
from typing import Any

Json = dict[str, Any]

_DEMO = Path(__file__).parents[2] / "src" / "shortlist" / "demo"


def servers() -> dict[str, Json]:
    paths = sorted((_DEMO / "catalog").glob("*.json"))
    return {path.stem: json.loads(path.read_text("utf-8")) for path in paths}


def tools() -> dict[str, Json]:
    return {
        f"{content['server']['name']}/{tool['name']}": tool
        for content in servers().values()
        for tool in content["tools"]
    }


def cases() -> list[Json]:
    return [json.loads(line) for line in (_DEMO / "golden.jsonl").read_text("utf-8").splitlines()]
