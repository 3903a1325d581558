"""Every baseline by name, and how a run tries one: what cannot run is said, never hidden."""

import time
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from benchmarks.baselines import (
    fastmcp,
    haystack,
    hermes,
    langgraph_bigtool,
    llama_index,
    mcpproxy,
    plain,
    portkey,
    pydantic_ai,
    rank_bm25,
    ratel,
    stackone,
    toolhive,
    wordllama,
)
from benchmarks.baselines.documents import sanitised
from benchmarks.baselines.protocol import Baseline, Build, Embed, NeedsEmbedder, NotInstalled, Tools

BASELINES: dict[str, Build] = {
    "fastmcp-bm25": fastmcp.bm25,
    "fastmcp-regex": fastmcp.regex,
    "fastmcp-regex-words": fastmcp.regex_words,
    "pydantic-ai": pydantic_ai.pydantic_ai,
    "haystack": haystack.haystack,
    "ratel": ratel.ratel,
    "stackone-ai": stackone.stackone_package,
    "rank-bm25": rank_bm25.rank_bm25,
    "langgraph-bigtool": langgraph_bigtool.langgraph_bigtool,
    "llama-index": llama_index.llama_index,
    "wordllama": wordllama.wordllama,
    "stackone": stackone.stackone,
    "mcpproxy": mcpproxy.mcpproxy,
    "hermes": hermes.hermes,
    "toolhive-fts5": toolhive.toolhive_words,
    "toolhive": toolhive.toolhive,
    "portkey": portkey.portkey,
    "plain-bm25": plain.plain_bm25,
    "dense": plain.dense,
    "rrf": plain.equal_rrf,
}

Status: TypeAlias = Literal["runs", "runs sanitised", "not installed", "needs an embedder", "fails"]
PROBE = "send a message"


@dataclass(frozen=True, slots=True)
class Watched:
    """A baseline whose failures on single queries are kept, each as an empty answer."""

    baseline: Baseline
    failures: dict[str, str] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return self.baseline.name

    def rank(self, query: str, limit: int) -> list[str]:
        try:
            return self.baseline.rank(query, limit)
        except Exception as error:  # whatever a peer raises is a result about the peer
            self.failures[query] = _summary(error)
            return []


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """What came of building one baseline over one catalog."""

    name: str
    status: Status
    baseline: Watched | None = None
    detail: str = ""
    build_seconds: float = 0.0


def attempt(name: str, tools: Tools, embed: Embed | None = None, *, sanitise: bool = True) -> Attempt:
    """Build a baseline and ask it once; where the catalog breaks it, try a sanitised one and say so."""
    try:
        return _built(name, tools, embed, "runs")
    except NotInstalled as error:
        return Attempt(name=name, status="not installed", detail=str(error))
    except NeedsEmbedder as error:
        return Attempt(name=name, status="needs an embedder", detail=str(error))
    except Exception as error:  # as above
        broken = Attempt(name=name, status="fails", detail=_summary(error))
    if not sanitise:
        return broken
    try:
        return _built(name, sanitised(tools), embed, "runs sanitised", broken.detail)
    except Exception as error:
        return Attempt(name=name, status="fails", detail=f"{broken.detail}; sanitised: {_summary(error)}")


def _built(name: str, tools: Tools, embed: Embed | None, status: Status, detail: str = "") -> Attempt:
    start = time.perf_counter()
    baseline = BASELINES[name](tools, embed)
    baseline.rank(PROBE, 1)
    seconds = time.perf_counter() - start
    return Attempt(name=name, status=status, baseline=Watched(baseline), detail=detail, build_seconds=seconds)


def _summary(error: Exception) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
