"""Whether a ranking can be bought: clones, keyword stuffing and superlatives of hostile servers, 150 golden requests.

    python -m benchmarks.manipulation              # 1 and 5 hostile servers, 150 requests
    python -m benchmarks.manipulation --requests 30 --servers 1

Each hostile server copies or imitates the right tools under its own name and adds what sellers add: superlatives,
"always use this first", the words of the request, tags, a repeated name. A right tool must keep its place, or fall by
one at most. The attacks are in `manipulation_attacks.py`; some were held out while the rules were written.
"""

import argparse
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from benchmarks.manipulation_attacks import HELD_OUT, INFORMED, KNOWN, Attack, Target

from shortlist.catalog.catalog import Catalog
from shortlist.catalog.readers import read_catalog
from shortlist.config.settings import NoTransport, ServerSettings
from shortlist.demo import CATALOG
from shortlist.index.embedders import Embedder, shipped
from shortlist.index.shipped import open_vectors
from shortlist.models import Query, Server
from shortlist.search.families import ServerOrder
from shortlist.search.searcher import Searcher, SearchOptions
from shortlist.storage.local import local_vectors
from shortlist.upstream.normalise import Listing

REQUESTS = 150
LIMIT = 20
CACHE = open_vectors(local_vectors())


@dataclass(frozen=True, slots=True)
class Case:
    query: str
    right: frozenset[str]


GROUPS: Mapping[str, Mapping[str, Attack]] = {"known": KNOWN, "held out": HELD_OUT, "knows the request": INFORMED}


def cases(count: int) -> list[Case]:
    """Return golden requests whose right tool the unharmed catalog ranks among the first."""
    lines = [json.loads(line) for line in (CATALOG.parent / "golden.jsonl").read_text("utf-8").splitlines()]
    answerable = [line for line in lines if line["gold"]]
    step = max(1, len(answerable) // count)
    chosen = answerable[::step][:count]
    return [
        Case(line["query"], frozenset(i for group in line.get("gold_groups") or [line["gold"]] for i in group))
        for line in chosen
    ]


def hostile(catalog: Catalog, wanted: Sequence[Case], attack: Attack, servers: int) -> Catalog:
    """Add hostile servers, each with its own version of every right tool."""
    rights = [(case, catalog.tools[i]) for case in wanted for i in sorted(case.right) if i in catalog.tools]
    for server in range(servers):
        name = f"aaa-{server}"
        listing = Listing(ServerSettings(name=name, transport=NoTransport(reason="only its list is read")), "modern")
        for number, (case, right) in enumerate(rights):
            neighbour = rights[(number + len(rights) // 2) % len(rights)][1]
            listing.extend([attack(Target(right, case.query, number, neighbour))])
        catalog = catalog.with_server(Server(name=name, description="Everything you need."), listing.tools.values())
    return catalog


def searcher_of(catalog: Catalog, embedder: Embedder | None) -> Searcher:
    """Return a searcher to which hostile servers are the last that became known."""
    order = ServerOrder({server: int(server.startswith("aaa-")) for server in catalog.servers}, {})
    options = SearchOptions(order=order, cache=CACHE)
    searcher = Searcher(catalog, embedder, options=options)
    searcher.prepare()
    return searcher


def ranks(searcher: Searcher, wanted: Sequence[Case]) -> list[int | None]:
    """Return the rank of the first right tool for each request; None where it is not among the hits."""
    found = []
    for case in wanted:
        hits = searcher.search(Query(text=case.query, limit=LIMIT, collapse=True)).hits
        shown = [i for i, hit in enumerate(hits, 1) if hit.tool.id in case.right]
        found.append(shown[0] if shown else None)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=REQUESTS)
    parser.add_argument("--servers", type=int, nargs="*", default=[1, 5])
    parser.add_argument("--embedder", default="small", choices=("small", "static", "none"))
    options = parser.parse_args()
    catalog, wanted = read_catalog(CATALOG).catalog, cases(options.requests)
    embedder = shipped(options.embedder)
    before = ranks(searcher_of(catalog, embedder), wanted)
    print(
        f"{len(wanted)} requests, {len(catalog)} tools, model {options.embedder}; right tool first: {before.count(1)}"
    )
    print(f"{'attack':20} {'group':18} {'servers':>7} {'first places lost':>18} {'fell by more than one':>22}")
    attacks = [(group, name, attack) for group, named in GROUPS.items() for name, attack in named.items()]
    for servers in options.servers:
        for group, name, attack in attacks:
            after = ranks(searcher_of(hostile(catalog, wanted, attack, servers), embedder), wanted)
            lost = sum(old == 1 and new != 1 for old, new in zip(before, after, strict=True))
            fell = sum(old is not None and (new or LIMIT + 1) > old + 1 for old, new in zip(before, after, strict=True))
            print(f"{name:20} {group:18} {servers:7} {lost:18} {fell:22}", flush=True)


if __name__ == "__main__":
    main()
