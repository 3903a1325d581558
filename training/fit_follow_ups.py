"""Fit how much the server and the tool called last count, by how a request relates to that call.

    python -m training.fit_follow_ups

The conversations are over real servers (`benchmarks/understanding/data/servers.jsonl.gz`); the development chats are
over the demo catalog, so no tool is in both. Prints the table for `shortlist.search.pipeline.FOLLOW_UPS`.
"""

import gzip
import itertools
import json
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np

from shortlist import ToolFilter
from shortlist.library.messages import read_context

ROOT = Path(__file__).parents[1]
SERVERS = ROOT / "benchmarks" / "understanding" / "data" / "servers.jsonl.gz"
CONVERSATIONS = Path(__file__).parent / "data" / "conversations.jsonl"
BY_SERVER = np.arange(0.0, 4.1, 0.25)
BY_TOOL = np.arange(-2.0, 4.1, 0.5)
DEPTH = 50
TOLERANCE = 0.015
"""Of settings about as good the smallest is taken: a boost that changes little is not worth its risk."""


def main() -> None:
    with gzip.open(SERVERS, "rt", encoding="utf-8") as lines:
        source = ToolFilter([json.loads(line) for line in lines], embedding="small")
    found = defaultdict(list)
    for line in CONVERSATIONS.read_text("utf-8").splitlines():
        case = json.loads(line)
        context = read_context(case["messages"], messages=3, tokens=500)
        found[context.asked.relation].append((_ranked(source, context.text), context.called[0], case["gold"][0]))
    for relation, cases in found.items():
        fits = {(s, t): _reciprocal_rank(cases, s, t) for s, t in itertools.product(BY_SERVER, BY_TOOL)}
        best = max(fits.values())
        server, tool = min((k for k, v in fits.items() if v >= best - TOLERANCE), key=lambda k: abs(k[0]) + abs(k[1]))
        gain = f"MRR {fits[server, tool]:.3f} (without {fits[0.0, 0.0]:.3f})"
        print(f"{relation:<10} {len(cases):>4} server {server:.2f} tool {tool:.2f} {gain}")


def _ranked(source: ToolFilter, text: str) -> list[tuple[str, float]]:
    return [(hit.tool.id, hit.score) for hit in source.search(text, limit=DEPTH).hits]


def _reciprocal_rank(cases: list[Any], by_server: float, by_tool: float) -> float:
    ranks = []
    for hits, called, right in cases:
        server = called.partition("/")[0]
        scores = {i: s + by_server * i.startswith(f"{server}/") + by_tool * (i == called) for i, s in hits}
        if right not in scores:
            ranks.append(0.0)
            continue
        ranks.append(1 / (1 + sum(score > scores[right] for score in scores.values())))
    return float(np.mean(ranks))


if __name__ == "__main__":
    main()
