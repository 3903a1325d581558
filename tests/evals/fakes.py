"""Small stand-ins that satisfy the evaluation's types."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from shortlist.evals.cases import Case
from shortlist.evals.contender import Contender, Ranked
from shortlist.evals.datasets import Dataset
from shortlist.evals.metrics import strict_groups
from shortlist.evals.runner import Runner
from shortlist.models import Level, Tool, ToolId


def tool(tool_id: ToolId, description: str = "", *, server: str = "", category: str = "") -> Tool:
    return Tool(
        id=tool_id,
        name=tool_id.split("/")[-1],
        server=server,
        description=description,
        category=category,
        definition="x" * 40,
    )


def case(identifier: str, query: str, *gold: ToolId, split: str = "test", segment: str = "") -> Case:
    return Case(
        id=identifier,
        query=query,
        gold=gold,
        groups=strict_groups(gold),
        split=split,
        segment=segment or split,
    )


def dataset(*cases: Case, name: str = "fake") -> Dataset:
    return Dataset(name=name, catalogs=(Path("tools.jsonl"),), cases=cases)


def contender(
    answers: Mapping[str, Sequence[ToolId]],
    *,
    name: str = "fake",
    milliseconds: float = 1.0,
    fitted_on: Sequence[str] = (),
) -> Contender:
    """Answer from a table; a query that is not in it is answered "none"."""

    def rank(query: str, limit: int) -> Ranked:
        ids = tuple(answers.get(query, ()))[:limit]
        level: Level = "high" if ids else "none"
        chance = 0.9 if ids else 0.1
        return Ranked(ids=ids, level=level, probability=chance, match_probability=chance, milliseconds=milliseconds)

    return Contender(pipeline=name, fitted_on=frozenset(fitted_on), rank=rank)


def runner(*tools: Tool) -> Runner:
    return Runner(tools={each.id: each for each in tools}, fingerprint="f00d")
