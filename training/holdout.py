"""The development part: what no shipped model trains on, for choosing models, fusion and calibration."""

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path

from shortlist.models import Tool
from training.bench import Folder
from training.texts import digest, tool_key

HOLDOUT_FILE = Path(__file__).with_name("holdout.json")
WHOLE_SETS = ("apibank", "restbench_spotify", "restbench_tmdb", "toolalpaca")
SERVER_SHARE = 0.12
GOLD_SHARES = {"sealtools": 0.05, "toolbench_rapidapi": 0.05}
"""Smaller where queries have several right tools: one held-out tool takes the whole query along."""
DEFAULT_GOLD_SHARE = 0.12
TELLING_CHARACTERS = 40
"""Descriptions shorter than this say too little to make two servers forks of each other."""
LARGEST_FAMILY = 60


@dataclass(frozen=True, slots=True)
class HoldOut:
    """Digests of what is held out: servers (with all their forks) and right tools of the labelled sources."""

    servers: tuple[str, ...]
    gold_tools: tuple[str, ...]
    whole_sets: tuple[str, ...] = WHOLE_SETS

    def holds_server(self, server: str) -> bool:
        return digest(server) in self.servers

    def holds_gold(self, source: str, tool_id: str) -> bool:
        return digest(f"{source}|{tool_id}") in self.gold_tools

    def holds(self, source: str, gold: Iterable[str], servers: Iterable[str] = ()) -> bool:
        """Return whether a query is development data: by set, by a right tool, or by its server."""
        return (
            source in self.whole_sets
            or any(self.holds_gold(source, tool_id) for tool_id in gold)
            or any(self.holds_server(server) for server in servers)
        )


@lru_cache(maxsize=1)
def committed_holdout() -> HoldOut:
    return read_holdout(HOLDOUT_FILE)


def is_held_out(source: str, gold: Iterable[str]) -> bool:
    """Return whether a train/ query belongs to the development part; `gold` as its file spells the ids."""
    return committed_holdout().holds(source, gold)


def read_holdout(path: Path) -> HoldOut:
    fields = json.loads(path.read_text())
    return HoldOut(**{name: tuple(values) for name, values in fields.items()})


def write_holdout(holdout: HoldOut, path: Path) -> None:
    path.write_text(json.dumps(asdict(holdout), indent=0) + "\n")


def choose_holdout(labelled: Folder, authored: Folder, catalogs: Iterable[Folder]) -> HoldOut:
    """Choose by hash alone, so that the choice does not depend on the order of the files."""
    families = fork_families([authored, *catalogs])
    servers = {server for server, family in families.items() if chosen(family, SERVER_SHARE)}
    gold = {(case.source, tool_id) for case in labelled.cases for tool_id in case.gold}
    kept = {
        digest(f"{source}|{tool_id}")
        for source, tool_id in gold
        if chosen(f"{source}|{tool_id}", GOLD_SHARES.get(source, DEFAULT_GOLD_SHARE))
    }
    authored_gold = {
        digest(f"authored|{tool_id}")
        for case in authored.cases
        for tool_id in case.gold
        if authored.by_id[tool_id].server in servers
    }
    return HoldOut(tuple(sorted(map(digest, servers))), tuple(sorted(kept | authored_gold)))


def chosen(key: str, share: float) -> bool:
    return int(digest(f"holdout {key}"), 16) / 2**64 < share


def fork_families(folders: Iterable[Folder]) -> Mapping[str, str]:
    """Name each server's family: servers that share a telling tool are forks and stay together."""
    parents: dict[str, str] = {}

    def root(server: str) -> str:
        while parents.setdefault(server, server) != server:
            server = parents[server]
        return server

    for servers in _servers_by_tool(tool for folder in folders for tool in folder.tools).values():
        first, *others = sorted(servers)
        parents.setdefault(first, first)
        for other in others:
            low, high = sorted((root(first), root(other)))
            parents[high] = low
    return _small_families({server: root(server) for server in parents})


def _servers_by_tool(tools: Iterable[Tool]) -> Mapping[str, set[str]]:
    found: defaultdict[str, set[str]] = defaultdict(set)
    for tool in tools:
        telling = len(tool.description) >= TELLING_CHARACTERS
        found[tool_key(tool) if telling else f"server {tool.server}"].add(tool.server)
    return found


def _small_families(families: Mapping[str, str]) -> Mapping[str, str]:
    """Keep a family that grew huge out of the draw: it would swallow the development part or most of it."""
    sizes: defaultdict[str, int] = defaultdict(int)
    for family in families.values():
        sizes[family] += 1
    return {server: family for server, family in families.items() if sizes[family] <= LARGEST_FAMILY}
