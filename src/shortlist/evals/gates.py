"""Limits for a CI job: how low a metric may be, and how far it may fall."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from shortlist.errors import InvalidInput
from shortlist.evals.compare import delta, pair_up
from shortlist.evals.runner import Run
from shortlist.evals.summary import macro_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Gate:
    """Floors and largest falls of metrics, as fractions; falls are measured from the baseline."""

    floors: Mapping[str, float]
    drops: Mapping[str, float]
    baseline: tuple[Run, ...] = ()

    def failures(self, runs: Sequence[Run]) -> tuple[str, ...]:
        """Return the limits that the macro averages of these runs exceed."""
        return (*self._below(runs), *self._fallen(runs))

    def _below(self, runs: Sequence[Run]) -> list[str]:
        reached = {metric: macro_of(runs, metric) for metric in self.floors}
        return [
            f"{metric} is {value:.4f}, below {self.floors[metric]:g}"
            for metric, value in reached.items()
            if not value >= self.floors[metric]  # an unknown value passes nothing
        ]

    def _fallen(self, runs: Sequence[Run]) -> list[str]:
        if not self.drops:
            return []
        pairs = pair_up(self.baseline, runs)
        falls = {metric: -delta(metric, pairs).difference.mean for metric in self.drops}
        return [
            f"{metric} fell by {fall:.4f}, more than {self.drops[metric]:g}"
            for metric, fall in falls.items()
            if not fall <= self.drops[metric] + 1e-12
        ]


def read_limits(texts: Sequence[str]) -> dict[str, float]:
    """Read `METRIC=VALUE`, a fraction or a percentage: `top1=0.8` and `top1=80%` are equal."""
    return dict(_limit(text) for text in texts)


def _limit(text: str) -> tuple[str, float]:
    metric, _, amount = text.partition("=")
    try:
        value = float(amount.removesuffix("%")) / (100 if amount.endswith("%") else 1)
    except ValueError:
        raise InvalidInput(f"{text!r} is not a limit. Write METRIC=VALUE, for example top1=0.8.") from None
    if not 0 <= value <= 1:
        raise InvalidInput(f"{text!r}: the value must be from 0 to 1, or a percentage such as 80%.")
    macro_of((), metric)
    return metric, value
