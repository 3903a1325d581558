"""Two runs against each other: quality with its certainty, agreement and latency."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from shortlist.errors import InvalidInput
from shortlist.evals.metrics import LENIENT
from shortlist.evals.runner import Record, Run
from shortlist.evals.significance import Interval, Values, bootstrap, macro, paired_p_value
from shortlist.evals.summary import MACRO

COMPARED = tuple(LENIENT + name for name in ("top1", "r@5", "mrr", "ndcg@10"))
SIGNIFICANT = 0.05
OVERLAP_DEPTH = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Delta:
    """A metric before and after; the difference is `after` minus `before`."""

    metric: str
    before: float
    after: float
    difference: Interval
    p_value: float

    @property
    def significant(self) -> bool:
        return self.p_value < SIGNIFICANT


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """What changes from one contender to another on one set, or on average over all."""

    dataset: str
    queries: int
    deltas: tuple[Delta, ...]
    same_top_1: float
    overlap_at_5: float
    latency_ratio: float
    """Median milliseconds after, divided by those before."""
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Pair:
    """Two runs cut to the queries both have, in the same order."""

    before: Run
    after: Run
    notes: tuple[str, ...] = ()

    def differences(self, metric: str) -> Values:
        return self.after.values(metric) - self.before.values(metric)


def pair_up(before: Sequence[Run], after: Sequence[Run]) -> tuple[Pair, ...]:
    """Match runs by dataset and records by id; runs without a partner are left out."""
    partners = {run.dataset: run for run in after}
    pairs = tuple(align(run, partners[run.dataset]) for run in before if run.dataset in partners)
    if not pairs:
        raise InvalidInput(
            f"Nothing to compare: one side has {_names(before)}, the other {_names(after)}. "
            "Run both on the same dataset."
        )
    return pairs


def align(before: Run, after: Run) -> Pair:
    ours, theirs = _by_id(before), _by_id(after)
    common = [key for key in ours if key in theirs]
    if not common:
        raise InvalidInput(f"The two runs on {before.dataset!r} have no query in common.")
    return Pair(
        replace(before, records=tuple(ours[key] for key in common)),
        replace(after, records=tuple(theirs[key] for key in common)),
        _notes(before, after, len(common)),
    )


def compare(
    before: Sequence[Run], after: Sequence[Run], *, metrics: Sequence[str] = COMPARED
) -> tuple[Comparison, ...]:
    """Compare set by set, and on the macro average when there are several."""
    pairs = pair_up(before, after)
    each = [_comparison(pair.before.dataset, [pair], metrics) for pair in pairs]
    return (*each, _comparison(MACRO, pairs, metrics)) if len(pairs) > 1 else tuple(each)


def delta(metric: str, pairs: Sequence[Pair]) -> Delta:
    """Measure one metric's change over one pair, or its macro average over several."""
    differences = [pair.differences(metric) for pair in pairs]
    return Delta(
        metric=metric,
        before=macro([pair.before.values(metric) for pair in pairs]),
        after=macro([pair.after.values(metric) for pair in pairs]),
        difference=bootstrap(differences),
        p_value=paired_p_value(differences),
    )


def _comparison(dataset: str, pairs: Sequence[Pair], metrics: Sequence[str]) -> Comparison:
    return Comparison(
        dataset=dataset,
        queries=sum(len(pair.before.records) for pair in pairs),
        deltas=tuple(delta(metric, pairs) for metric in metrics),
        same_top_1=float(np.mean([_agreement(pair, 1) for pair in pairs])),
        overlap_at_5=float(np.mean([_agreement(pair, OVERLAP_DEPTH) for pair in pairs])),
        latency_ratio=float(np.mean([_latency_ratio(pair) for pair in pairs])),
        notes=tuple(note for pair in pairs for note in pair.notes),
    )


def _agreement(pair: Pair, depth: int) -> float:
    both = zip(pair.before.records, pair.after.records, strict=True)
    return float(np.mean([_overlap(a.ranked[:depth], b.ranked[:depth]) for a, b in both]))


def _overlap(ours: Sequence[str], theirs: Sequence[str]) -> float:
    longer = max(len(ours), len(theirs))
    return len(set(ours) & set(theirs)) / longer if longer else 1.0


def _latency_ratio(pair: Pair) -> float:
    before, after = np.median(pair.before.milliseconds()), np.median(pair.after.milliseconds())
    return float(after / before) if before > 0 else float("nan")


def _notes(before: Run, after: Run, common: int) -> tuple[str, ...]:
    notes = []
    if before.fingerprint != after.fingerprint:
        notes.append(f"{before.dataset}: the catalogs differ")
    left_out = len(before.records) + len(after.records) - 2 * common
    if left_out:
        notes.append(f"{before.dataset}: {left_out} queries are in one run only")
    return tuple(notes)


def _by_id(run: Run) -> dict[str, Record]:
    return {record.id: record for record in run.records}


def _names(runs: Sequence[Run]) -> str:
    return ", ".join(run.dataset for run in runs) or "nothing"
