"""What the default pipeline is held to, each as a line that holds or does not."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import TypeAlias

import numpy as np
from benchmarks.quality_data import ANY_AT_5, BARE, BY_SPLIT, METRICS, PEERS, SINGLE, Answers

from shortlist.evals.cells import label
from shortlist.evals.compare import SIGNIFICANT
from shortlist.evals.significance import Values, macro, paired_p_value

Found: TypeAlias = Mapping[str, Mapping[str, Answers]]
"""By contender, then by set."""

DEFAULT, FIXED, LEXICAL, DENSE = "default", "weighted", "lexical", "dense"
ARMS = (LEXICAL, DENSE)
JUDGED_BY = "ndcg@10"
MANY = 300
"""From so many queries up a set's figure stands for itself; below, only a significant difference counts."""
FEW = 100
TOLERANCE = 0.010
UNION, UNSEEN, AUTHORED = BY_SPLIT
NODEBENCH = "nodebench_175"

TRIAL = {
    "azure_mcp": (86.2, 93.8, 77.8, 88.3, 96.7),
    "azure_mcp_jan2026": (83.9, 92.5, 72.0, 85.2, 95.5),
    "mcptoolbenchpp": (87.3, 91.9, 79.5, 86.6, 99.1),
    "mcpbench": (72.0, 68.6, 51.6, 52.2, 74.2),
    "mcpproxy_golden": (68.1, 83.4, 53.2, 67.8, 85.8),
    "stackone_270": (66.4, 83.8, 55.6, 74.7, 90.2),
    "portkey_120": (74.0, 84.7, 68.0, 79.3, 90.3),
    "nodebench_175": (74.0, 75.4, 60.0, 69.8, 80.9),
    "metatool:heldout_tools": (54.7, 67.8, 40.3, 53.3, 71.6),
    "toolret_apigen": (74.1, 80.0, 73.8, 80.2, 84.8),
    "sealtools_out_domain": (85.2, 73.2, 95.4, 90.8, 89.1),
}
"""An early trial on the same data: top-1 and nDCG@10 fused with an untuned model, the same of words alone, and nDCG@10
fused with a tuned model. A floor for what is built since."""

PUBLISHED = (
    ("azure_mcp_jan2026", "text-embedding-3-large, by its vendor", "top1", 92.0, "502 prompts, nearly the same"),
    ("stackone_270", "StackOne's hybrid, α 0.2", "top1", 75.9, "257 of the queries"),
    ("stackone_270", "StackOne's hybrid, α 0.2", "r@5", 92.6, "257 of the queries"),
    ("portkey_120", "Portkey's filter with USE-lite", "top1", 56.0, ""),
    ("portkey_120", "Portkey's filter with USE-lite", "r@5", 80.0, ""),
    ("nodebench_175", "NodeBench's hybrid", "top1", 70.4, "54 queries, 4 of them impossible"),
    ("nodebench_175", "NodeBench's hybrid", "r@5", 79.6, "54 queries, 4 of them impossible"),
    ("mcpproxy_golden", "MCPProxy", "top1", 41.8, "graded labels"),
    ("mcpproxy_golden", "MCPProxy", "r@5", 68.1, "graded labels"),
    ("toolret_apigen", "MFTR's best", "ndcg@10", 85.75, "from a secondary source"),
)
"""What others report on the same data, or nearly: set, who, metric, figure, and what differs."""


@dataclass(frozen=True, slots=True)
class Check:
    """One line: what is asked, whether it holds, and the figures."""

    asked: str
    holds: bool
    figures: str


@dataclass(frozen=True, slots=True)
class Difference:
    """One contender less another over the same strata."""

    mean: float
    p_value: float

    @property
    def significant(self) -> bool:
        return self.p_value < SIGNIFICANT

    def __str__(self) -> str:
        return f"{100 * self.mean:+.1f}, p {self.p_value:.4f}"


def paired(ours: Sequence[Answers], theirs: Sequence[Answers], metric: str, *, by_split: bool = False) -> Difference:
    """Compare on the queries that both were asked, flipped within each set or split."""
    both = [_common(one, other) for one, other in zip(ours, theirs, strict=True)]
    differences = [
        mine - other
        for one, two in both
        for mine, other in zip(
            one.strata(metric, by_split=by_split), two.strata(metric, by_split=by_split), strict=True
        )
    ]
    return Difference(macro(differences), paired_p_value(differences))


def checks(found: Found, untuned: Sequence[str] = ()) -> tuple[Check, ...]:
    """Check whatever this run's sets and contenders allow; `untuned` names the default pipeline with untuned models."""
    every = (
        *_against_fixed(found),
        *_against_arms(found),
        *_against_trial(found),
        *_segments(found),
        *_against_peers(found),
    )
    models = [name.removeprefix(DEFAULT) for name in untuned]
    fixed = [check for model in models for check in _against_fixed(found, model)]
    return (*every, *fixed, *(check for name in untuned for check in _against_untuned(found, name)))


def _against_fixed(found: Found, model: str = "") -> Iterator[Check]:
    """Ask for more than any one weight gives, and for half of what choosing the best per set would."""
    default, fixed, *arms = (name + model if name != LEXICAL else name for name in (DEFAULT, FIXED, *ARMS))
    sets = _shared(found, SINGLE, (default, fixed, *arms))
    if len(sets) < 2:
        return
    for name, metric in product((BARE + model, fixed), METRICS):
        if name in found:
            gain = paired(*_of(found, sets, default, name), metric)
            asked = f"{default} beats the best fixed weight ({name}) on macro {label(metric)}, significantly"
            yield Check(asked, gain.mean > 0 and gain.significant, str(gain))
    for metric in ("top1", JUDGED_BY):
        best = [max(_mean(found[name][each], metric) for name in (fixed, *arms)) for each in sets]
        low, mean, oracle = (
            _macro(found, fixed, sets, metric),
            _macro(found, default, sets, metric),
            float(np.mean(best)),
        )
        asked = f"{default} goes half the way from the fixed weight to the per-set oracle on macro {label(metric)}"
        figures = f"fixed {_percent(low)}, oracle {_percent(oracle)}, {default} {_percent(mean)}"
        yield Check(asked, mean >= (low + oracle) / 2, figures)


def published(found: Found) -> list[tuple[str, ...]]:
    """Put what others report beside the default pipeline."""
    return [
        (name, who, label(metric), f"{figure:g}", _percent(_mean(found[DEFAULT][name], metric)), differs)
        for name, who, metric, figure, differs in PUBLISHED
        if name in found[DEFAULT]
    ]


def _against_arms(found: Found) -> Iterator[Check]:
    for name in _shared(found, SINGLE, (DEFAULT, *ARMS)):
        better = max(ARMS, key=lambda arm: _mean(found[arm][name], JUDGED_BY))
        queries, gain = len(found[DEFAULT][name].ids), paired(*_of(found, [name], DEFAULT, better), JUDGED_BY)
        if queries >= MANY:
            asked = f"{name}: nDCG@10 no more than 1.0 below the better arm ({better})"
            yield Check(asked, gain.mean >= -TOLERANCE, str(gain))
        else:
            asked = f"{name} ({queries} queries): nDCG@10 not significantly below the better arm ({better})"
            yield Check(asked, gain.mean >= 0 or not gain.significant, str(gain))


def _against_trial(found: Found) -> Iterator[Check]:
    for contender, first in ((DEFAULT, 0), (LEXICAL, 2)):
        if set(SINGLE) <= set(found.get(contender, ())):
            for at, metric in ((first, "top1"), (first + 1, JUDGED_BY)):
                floor = float(np.mean([TRIAL[name][at] for name in SINGLE])) / 100
                mean = _macro(found, contender, SINGLE, metric)
                asked = f"{contender}: macro {label(metric)} at or above the trial's {_percent(floor)}"
                yield Check(asked, mean >= floor, _percent(mean))
    for contender, floors in ((DEFAULT, (44.8, 55.5)), (LEXICAL, (32.6, 47.6))):
        for metric, floor in zip(("top1", "r@5"), floors, strict=True):
            if UNION in found.get(contender, ()):
                mean = macro(found[contender][UNION].strata(metric, by_split=True))
                asked = f"{contender}: {UNION} {label(metric)} at or above the trial's {floor}"
                yield Check(asked, 100 * mean >= floor, _percent(mean))


def _segments(found: Found) -> Iterator[Check]:
    answers = found.get(DEFAULT, {}).get(NODEBENCH)
    if answers:
        yield _segment(answers, "new_user", "above NodeBench's own 67", lambda share: share > 0.67)
        yield _segment(answers, "power_user", "is 100", lambda share: share == 1)


def _segment(answers: Answers, name: str, asked: str, reached: Callable[[float], bool]) -> Check:
    """Judge as NodeBench does: any expected tool among the first five is enough; their share stands beside."""
    found, share = (float(answers.of_split(metric, name).mean()) for metric in (ANY_AT_5, "r@5"))
    figures = f"{_percent(found)}; as the share of expected tools {_percent(share)}"
    return Check(f"{NODEBENCH}, {name}: R@5 as NodeBench counts it {asked}", reached(found), figures)


def _against_peers(found: Found) -> Iterator[Check]:
    named = [name for name in found if name in PEERS and len(_shared(found, SINGLE, (DEFAULT, name))) > 1]
    for metric in METRICS if named else ():
        gains = {
            name: paired(*_of(found, _shared(found, SINGLE, (DEFAULT, name)), DEFAULT, name), metric) for name in named
        }
        ahead = [name for name, gain in gains.items() if gain.mean < 0 and gain.significant]
        nearest = min(gains, key=lambda name: gains[name].mean)
        asked = f"none of {len(named)} peers beats default significantly on macro {label(metric)}"
        yield Check(asked, not ahead, f"{', '.join(ahead) or nearest}: {gains[ahead[0] if ahead else nearest]}")


def _against_untuned(found: Found, untuned: str) -> Iterator[Check]:
    """Ask what tuning the model earned in the same pipeline."""
    if set(SINGLE) <= set(_shared(found, SINGLE, (DEFAULT, untuned))):
        mean, gain = _macro(found, DEFAULT, SINGLE, JUDGED_BY), paired(*_of(found, SINGLE, DEFAULT, untuned), JUDGED_BY)
        yield Check("macro nDCG@10 at least 88", mean >= 0.88, _percent(mean))
        asked = f"macro nDCG@10 at least 3 above {untuned}, significantly"
        yield Check(asked, gain.mean >= 0.03 and gain.significant, str(gain))
        yield from _tuned_trial(found)
    for name, metrics, least in ((UNSEEN, (JUDGED_BY,), 0.06), (AUTHORED, ("top1", JUDGED_BY), 0.10)):
        for metric in metrics if _shared(found, [name], (DEFAULT, untuned)) else ():
            gain = paired(*_of(found, [name], DEFAULT, untuned), metric, by_split=True)
            asked = f"{name}: {label(metric)} at least {100 * least:.0f} above {untuned}"
            yield Check(asked, gain.mean >= least, str(gain))
    for style in ("new_user", "hard") if _shared(found, [AUTHORED], (DEFAULT, untuned)) else ():
        for metric in ("top1", JUDGED_BY):
            ours, theirs = (found[each][AUTHORED].of_split(metric, style) for each in (DEFAULT, untuned))
            gain_of_style = float(ours.mean() - theirs.mean())
            asked = f"{AUTHORED}, {style}: {label(metric)} at least 10 above {untuned}"
            yield Check(asked, gain_of_style >= 0.10, f"{100 * gain_of_style:+.1f}")
    shared = _shared(found, list(found[DEFAULT]), (DEFAULT, untuned))
    losses = {n: paired(*_of(found, [n], DEFAULT, untuned), JUDGED_BY, by_split=n in BY_SPLIT) for n in shared}
    worst = min(losses, key=lambda name: losses[name].mean)
    asked = f"no set's nDCG@10 more than 1.0 below {untuned}"
    yield Check(asked, losses[worst].mean >= -TOLERANCE, f"least: {worst} {losses[worst]}")


def _tuned_trial(found: Found) -> Iterator[Check]:
    """Hold large sets to the trial with a tuned model one by one, and small ones together."""
    sizes = {name: len(found[DEFAULT][name].ids) for name in SINGLE}
    for name in (name for name, queries in sizes.items() if queries >= MANY):
        mean, floor = _mean(found[DEFAULT][name], JUDGED_BY), TRIAL[name][4] / 100
        asked = f"{name}: nDCG@10 no more than 1.0 below the tuned trial's {_percent(floor)}"
        yield Check(asked, mean >= floor - TOLERANCE, _percent(mean))
    small = [name for name, queries in sizes.items() if queries < FEW]
    pooled = float(np.concatenate([found[DEFAULT][name].values[JUDGED_BY] for name in small]).mean())
    floor = sum(TRIAL[name][4] * sizes[name] for name in small) / sum(sizes[name] for name in small) / 100
    asked = f"{', '.join(small)} pooled: nDCG@10 no more than 1.0 below the tuned trial's {_percent(floor)}"
    yield Check(asked, pooled >= floor - TOLERANCE, _percent(pooled))


def _shared(found: Found, sets: Sequence[str], contenders: Sequence[str]) -> list[str]:
    """Name the sets that all of these were asked."""
    return [name for name in sets if all(name in found.get(each, ()) for each in contenders)]


def _of(found: Found, sets: Sequence[str], one: str, other: str) -> tuple[list[Answers], list[Answers]]:
    return [found[one][name] for name in sets], [found[other][name] for name in sets]


def _common(one: Answers, other: Answers) -> tuple[Answers, Answers]:
    if one.ids == other.ids:
        return one, other
    theirs = set(other.ids)
    ids = [each for each in one.ids if each in theirs]
    return one.only(ids), other.only(ids)


def _macro(found: Found, contender: str, sets: Sequence[str], metric: str) -> float:
    values: list[Values] = [found[contender][name].values[metric] for name in sets]
    return macro(values)


def _mean(answers: Answers, metric: str) -> float:
    return float(answers.values[metric].mean())


def _percent(value: float) -> str:
    return f"{100 * value:.1f}"
