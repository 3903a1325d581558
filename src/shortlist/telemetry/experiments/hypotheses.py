"""The four hypotheses of NodeBench's A/B test, which every experiment answers besides its own metric."""

from dataclasses import dataclass
from typing import Literal, TypeAlias

from shortlist.telemetry.experiments.sequential import Estimate

Finding: TypeAlias = Literal["supported", "refuted", "open"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Hypothesis:
    """Says on which side of a bound a metric lies: of the treatment alone, or its difference from the control."""

    name: str
    claim: str
    metric: str
    side: Literal["below", "above"]
    bound: float
    alone: bool = False


HYPOTHESES = (
    Hypothesis(
        name="H1", claim="fewer tools are active than in the control", metric="active_tools", side="below", bound=0
    ),
    Hypothesis(name="H2", claim="at most 2 points more calls fail", metric="errors", side="below", bound=0.02),
    Hypothesis(
        name="H3", claim="a load takes less than 100 ms", metric="load_latency", side="below", bound=100, alone=True
    ),
    Hypothesis(
        name="H4",
        claim="at least a tenth of the workspaces load tools of their own accord",
        metric="organic_loads",
        side="above",
        bound=0.1,
        alone=True,
    ),
)


def judge(hypothesis: Hypothesis, estimate: Estimate) -> Finding:
    """Say what an estimate makes of a hypothesis; open while its bounds hold the hypothesis' own."""
    if estimate.low <= hypothesis.bound <= estimate.high:
        return "open"
    return "supported" if (estimate.high < hypothesis.bound) == (hypothesis.side == "below") else "refuted"
