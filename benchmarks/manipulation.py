"""Whether a ranking can be bought: clones, keyword stuffing and superlatives of hostile servers, 150 golden requests.

    python -m benchmarks.manipulation              # 1 and 5 hostile servers, 150 requests
    python -m benchmarks.manipulation --requests 30 --servers 1 --groups "server, all requests"

Each hostile server copies or imitates the right tools under its own name and adds what sellers add: superlatives,
"always use this first", the words of the request, tags, a repeated name. A right tool must keep its place, or fall by
one at most. The attacks are in `manipulation_attacks.py`; some were held out while the rules were written, and those
of the group "found later" got past these. Those in `manipulation_servers.py` write all requests, or the one that is
sent, into what a server says about itself.
"""

import argparse
import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from benchmarks.manipulation_attacks import FOUND, HELD_OUT, INFORMED, KNOWN, Attack, Flood, Target
from benchmarks.manipulation_servers import SERVERS, HostileServer

from shortlist.catalog.catalog import Catalog
from shortlist.catalog.readers import read_catalog
from shortlist.config.settings import NoTransport, ServerSettings
from shortlist.demo import CATALOG
from shortlist.index.embedders import Embedder, shipped
from shortlist.index.shipped import open_vectors
from shortlist.models import Query
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


def offering(flood: Flood) -> HostileServer:
    """Return a server that offers its own versions of every right tool."""
    return HostileServer(
        lambda _: {"description": "Everything you need."},
        lambda targets: [tool for target in targets for tool in flood(target)],
    )


def tool_by_tool(attacks: Mapping[str, Attack]) -> dict[str, HostileServer]:
    """Return servers that offer one version of every right tool."""

    def alone(attack: Attack) -> Flood:
        return lambda target: [attack(target)]

    return {name: offering(alone(attack)) for name, attack in attacks.items()}


GROUPS: Mapping[str, Mapping[str, HostileServer]] = {
    "known": tool_by_tool(KNOWN),
    "held out": tool_by_tool(HELD_OUT),
    "knows the request": tool_by_tool(INFORMED),
    "found later": {name: offering(flood) for name, flood in FOUND.items()},
}
SERVER_GROUPS: Mapping[str, bool] = {"server, all requests": True, "server, one request": False}
"""Whether the attacks want to answer all requests at once."""


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


def hostile(catalog: Catalog, wanted: Sequence[Case], server: HostileServer, servers: int) -> Catalog:
    """Add hostile servers that want to answer some requests."""
    rights = [(case, catalog.tools[i]) for case in wanted for i in sorted(case.right) if i in catalog.tools]
    targets = [
        Target(right, case.query, number, rights[(number + len(rights) // 2) % len(rights)][1])
        for number, (case, right) in enumerate(rights)
    ]
    for number in range(servers):
        described = server.described(number, [case.query for case in wanted])
        settings = ServerSettings(name=described.name, transport=NoTransport(reason="only its list is read"))
        listing = Listing(settings, "modern")
        listing.extend(server.offers(targets))
        catalog = catalog.with_server(described, listing.tools.values())
    return catalog


def searcher_of(catalog: Catalog, embedder: Embedder | None) -> Searcher:
    """Return a searcher to which servers of later versions of the catalog are the last that became known."""
    options = SearchOptions(order=ServerOrder(dict.fromkeys(catalog.servers, 0), {}), cache=CACHE)
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
    parser.add_argument("--groups", nargs="*", default=[*GROUPS, *SERVER_GROUPS], choices=(*GROUPS, *SERVER_GROUPS))
    options = parser.parse_args()
    catalog, wanted = read_catalog(CATALOG).catalog, cases(options.requests)
    embedder = shipped(options.embedder)
    searcher = searcher_of(catalog, embedder)
    before = ranks(searcher, wanted)
    print(
        f"{len(wanted)} requests, {len(catalog)} tools, model {options.embedder}; right tool first: {before.count(1)}"
    )
    print(f"{'attack':20} {'group':20} {'servers':>7} {'first places lost':>18} {'fell by more than one':>22}")
    for servers in options.servers:
        for group, name, server, at_once in _attacks(options.groups):
            after: list[int | None] = []
            for targeted in [wanted] if at_once else [[case] for case in wanted]:
                searcher.update(hostile(catalog, targeted, server, servers))
                searcher.prepare()
                after += ranks(searcher, targeted)
            lost = sum(old == 1 and new != 1 for old, new in zip(before, after, strict=True))
            fell = sum(old is not None and (new or LIMIT + 1) > old + 1 for old, new in zip(before, after, strict=True))
            print(f"{name:20} {group:20} {servers:7} {lost:18} {fell:22}", flush=True)


def _attacks(groups: Collection[str]) -> Iterator[tuple[str, str, HostileServer, bool]]:
    """Yield the attacks of some groups, and whether they want to answer all requests at once."""
    for group in (each for each in GROUPS if each in groups):
        for name, server in GROUPS[group].items():
            yield group, name, server, True
    for group in (each for each in SERVER_GROUPS if each in groups):
        for name, server in SERVERS.items():
            yield group, name, server, SERVER_GROUPS[group]


if __name__ == "__main__":
    main()
