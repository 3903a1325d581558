"""Problems of a catalog: tools that cannot be found, copies, empty or bloated texts, and token costs."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

from shortlist.disclosure.budget import estimate_tokens
from shortlist.evals.contender import Ranker
from shortlist.evals.duplicates import near_duplicates
from shortlist.evals.paraphrase import paraphrase
from shortlist.evals.runner import RunProgress, no_progress
from shortlist.models import Tool, ToolId

FOUND_WITHIN = 5
BLOATED_TOKENS = 500
"""A description this long costs more than most tools' whole definition."""

FindingKind: TypeAlias = Literal[
    "unfindable", "near-duplicates", "empty description", "thin description", "bloated description"
]


@dataclass(frozen=True, slots=True)
class Finding:
    kind: FindingKind
    tools: tuple[ToolId, ...]
    message: str


@dataclass(frozen=True, slots=True)
class ServerCost:
    """What the full definitions of a server's tools cost a model that is given all of them."""

    server: str
    tools: int
    tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnosis:
    tools: int
    tested: int
    """How many tools had a description that could be paraphrased."""
    findings: tuple[Finding, ...]
    costs: tuple[ServerCost, ...]

    def of(self, kind: FindingKind) -> tuple[Finding, ...]:
        return tuple(finding for finding in self.findings if finding.kind == kind)


@dataclass(frozen=True, slots=True, kw_only=True)
class Doctor:
    """Examines a catalog through a ranker over it."""

    rank: Ranker
    progress: RunProgress = no_progress

    def examine(self, tools: Mapping[ToolId, Tool]) -> Diagnosis:
        families = near_duplicates(tools)
        questions = {tool_id: paraphrase(tool) for tool_id, tool in tools.items()}
        asked = {tool_id: question for tool_id, question in questions.items() if question}
        findings = (
            *self._unfindable(asked, families),
            *_copies(families),
            *self._descriptions(tools, asked),
        )
        return Diagnosis(
            tools=len(tools),
            tested=len(asked),
            findings=findings,
            costs=server_costs(tools),
        )

    def _unfindable(self, asked: Mapping[ToolId, str], families: tuple[tuple[ToolId, ...], ...]) -> Iterator[Finding]:
        """Search for each tool in other words; finding a copy of it counts."""
        copies = {tool_id: family for family in families for tool_id in family}
        for done, (tool_id, question) in enumerate(asked.items(), start=1):
            found = self.rank(question, FOUND_WITHIN).ids
            if not set(found) & {tool_id, *copies.get(tool_id, ())}:
                first = f"; {found[0]!r} comes first" if found else ""
                yield Finding("unfindable", (tool_id,), f"not in the top {FOUND_WITHIN} for {question!r}{first}")
            self.progress(done, len(asked))

    def _descriptions(self, tools: Mapping[ToolId, Tool], asked: Mapping[ToolId, str]) -> Iterator[Finding]:
        for tool_id, tool in tools.items():
            tokens = estimate_tokens(tool.description)
            if not tool.description.strip():
                yield Finding("empty description", (tool_id,), "say what it does and when to use it")
            elif tool_id not in asked:
                yield Finding("thin description", (tool_id,), f"says nothing to search for: {tool.description!r}")
            elif tokens > BLOATED_TOKENS:
                yield Finding("bloated description", (tool_id,), f"{tokens} tokens; {BLOATED_TOKENS} are plenty")


def _copies(families: tuple[tuple[ToolId, ...], ...]) -> Iterator[Finding]:
    for family in families:
        yield Finding("near-duplicates", family, f"{len(family)} tools say the same")


def server_costs(tools: Mapping[ToolId, Tool]) -> tuple[ServerCost, ...]:
    """Add up the definitions of each server, the costliest first."""
    by_server: dict[str, list[int]] = {}
    for tool in tools.values():
        by_server.setdefault(tool.server, []).append(estimate_tokens(tool.definition))
    costs = [ServerCost(name, len(tokens), sum(tokens)) for name, tokens in by_server.items()]
    return tuple(sorted(costs, key=lambda cost: (-cost.tokens, cost.server)))
