"""One contender over one dataset: a record for each query."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np

from shortlist.disclosure.budget import estimate_tokens
from shortlist.evals.cases import Case
from shortlist.evals.contender import Contender, refuse_if_fitted
from shortlist.evals.datasets import Dataset
from shortlist.evals.metrics import LENIENT, measure
from shortlist.evals.significance import Values
from shortlist.models import Level, Tool, ToolId

LIMIT = 10
ANSWER_TOOLS = 5
"""How many tools of a ranking a model is shown; their tokens are the cost of an answer."""

RunProgress: TypeAlias = Callable[[int, int], None]
"""Called with the number of queries done and the number there are."""


def no_progress(_done: int, _total: int) -> None:
    pass


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """What happened to one query; `metrics` is empty when no tool answers it."""

    id: str
    split: str
    segment: str
    answerable: bool
    ranked: tuple[ToolId, ...]
    level: Level
    probability: float
    match_probability: float
    milliseconds: float
    tokens: int
    metrics: Mapping[str, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """The records of a contender on a dataset, and what it takes to compare them with others."""

    dataset: str
    pipeline: str
    embedder: str
    fingerprint: str
    tools: int
    limit: int
    fitted_on: tuple[str, ...]
    records: tuple[Record, ...]

    @property
    def splits(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(record.split for record in self.records))

    @property
    def segments(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(record.segment for record in self.records))

    @property
    def answerable(self) -> tuple[Record, ...]:
        return tuple(record for record in self.records if record.answerable)

    def only(self, *, split: str = "", segment: str = "") -> "Run":
        kept = [r for r in self.records if split in ("", r.split) and segment in ("", r.segment)]
        return replace(self, records=tuple(kept))

    def values(self, metric: str) -> Values:
        """Return one value for each answerable query, in the order of the dataset."""
        return np.array([record.metrics[metric] for record in self.answerable], dtype=np.float64)

    def correct(self) -> Values:
        """Return 1 where the first hit answers the query; never where nothing could."""
        return np.array([record.metrics.get(LENIENT + "top1", 0.0) for record in self.records])

    def probabilities(self) -> Values:
        return np.array([record.probability for record in self.records])

    def match_probabilities(self) -> Values:
        return np.array([record.match_probability for record in self.records])

    def milliseconds(self) -> Values:
        return np.array([record.milliseconds for record in self.records])

    def tokens(self) -> Values:
        return np.array([record.tokens for record in self.records], dtype=np.float64)


@dataclass(frozen=True, slots=True, kw_only=True)
class Runner:
    """How evaluations are run: over which tools, and how deep."""

    tools: Mapping[ToolId, Tool]
    fingerprint: str = ""
    limit: int = LIMIT
    progress: RunProgress = no_progress

    def run(self, dataset: Dataset, contender: Contender) -> Run:
        """Run every query; refuse a contender that was fitted on the split to be reported."""
        refuse_if_fitted(contender.fitted_on, dataset)
        return Run(
            dataset=dataset.name,
            pipeline=contender.pipeline,
            embedder=contender.embedder,
            fingerprint=self.fingerprint,
            tools=len(self.tools),
            limit=self.limit,
            fitted_on=tuple(sorted(contender.fitted_on)),
            records=self._records(dataset.cases, contender),
        )

    def _records(self, cases: Sequence[Case], contender: Contender) -> tuple[Record, ...]:
        records = []
        for done, case in enumerate(cases, start=1):
            records.append(self._record(case, contender))
            self.progress(done, len(cases))
        return tuple(records)

    def _record(self, case: Case, contender: Contender) -> Record:
        answer = contender.rank(case.query, self.limit)
        return Record(
            id=case.id,
            split=case.split,
            segment=case.segment,
            answerable=case.answerable,
            ranked=answer.ids,
            level=answer.level,
            probability=answer.probability,
            match_probability=answer.match_probability,
            milliseconds=answer.milliseconds,
            tokens=self._tokens(answer.ids),
            metrics=measure(answer.ids, case.gold, case.groups) | self._toolset(case, answer.ids),
        )

    def _tokens(self, ids: Sequence[ToolId]) -> int:
        shown = [self.tools[tool_id] for tool_id in ids[:ANSWER_TOOLS] if tool_id in self.tools]
        return sum(estimate_tokens(tool.definition) for tool in shown)

    def _toolset(self, case: Case, ids: Sequence[ToolId]) -> dict[str, float]:
        """Return whether the first hit comes from a right toolset: its category, or else its server."""
        if not case.answerable:
            return {}
        wanted = {self._toolset_of(tool_id) for tool_id in (*case.gold, *frozenset().union(*case.groups))}
        return {"toolset": float(bool(ids) and self._toolset_of(ids[0]) in wanted - {""})}

    def _toolset_of(self, tool_id: ToolId) -> str:
        tool = self.tools.get(tool_id)
        return (tool.category or tool.server) if tool else ""
