"""Formatting of figures for table cells."""

import math

from shortlist.evals.compare import Delta
from shortlist.evals.metrics import LENIENT
from shortlist.evals.significance import Interval

NOTHING = "–"
MARKS = ((0.01, "**"), (0.05, "*"))


def label(metric: str) -> str:
    """Write a metric's name as people do."""
    bare = metric.removeprefix(LENIENT)
    return {"top1": "top-1", "mrr": "MRR"}.get(bare, bare.replace("r@", "R@").replace("ndcg", "nDCG"))


def percent(value: float) -> str:
    return NOTHING if math.isnan(value) else f"{100 * value:.1f}"


def number(value: float) -> str:
    return NOTHING if math.isnan(value) else f"{value:.2f}"


def whole(value: float) -> str:
    return NOTHING if math.isnan(value) else f"{value:.0f}"


def rank(rank: float) -> str:
    return f"{rank:.0f}" if math.isfinite(rank) else "∞"


def interval(value: Interval) -> str:
    if math.isnan(value.mean):
        return NOTHING
    return f"{percent(value.mean)} [{percent(value.low)}, {percent(value.high)}]"


def change(found: Delta) -> str:
    mean = found.difference.mean
    if math.isnan(mean):
        return NOTHING
    bounds = f"[{100 * found.difference.low:+.1f}, {100 * found.difference.high:+.1f}]"
    return f"{100 * mean:+.1f}{mark(found.p_value)} {bounds}"


def mark(p_value: float) -> str:
    return next((mark for limit, mark in MARKS if p_value < limit), "")
