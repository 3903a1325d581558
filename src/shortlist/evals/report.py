"""The tables: quality, comparison, leaderboard, ablation, sweep, sizes and diagnosis."""

import math
from collections.abc import Callable, Mapping, Sequence

from shortlist.evals import cells
from shortlist.evals.ablation import SHOWN, Ablation, Row
from shortlist.evals.cells import NOTHING, label
from shortlist.evals.compare import Comparison, Delta, delta, pair_up
from shortlist.evals.doctor import Diagnosis
from shortlist.evals.metrics import LENIENT
from shortlist.evals.runner import Run
from shortlist.evals.sizes import SizePoint, advise
from shortlist.evals.summary import MACRO, Summary, summarise, summarise_each
from shortlist.evals.sweep import Point
from shortlist.evals.tables import Table, table_of

MARK_NOTE = "* p < 0.05, ** p < 0.01 in a paired randomisation test."
INTERVAL_NOTE = "In brackets: 95 % bootstrap interval."
SWEPT = tuple(LENIENT + name for name in ("top1", "r@5", "mrr", "ndcg@10"))


def quality_table(runs: Sequence[Run], *, lenient: bool = True) -> Table:
    """Show every set, its splits and segments, and the macro averages."""
    summaries = summarise_each(runs)
    prefix = LENIENT if lenient else ""
    columns = {
        "set": lambda s: s.dataset,
        "part": lambda s: s.part or "all",
        "queries": lambda s: str(s.queries),
        "top-1": lambda s: cells.interval(s.metrics[prefix + "top1"]),
        "R@5": lambda s: cells.percent(s.metrics[prefix + "r@5"].mean),
        "MRR": lambda s: cells.percent(s.metrics[prefix + "mrr"].mean),
        "nDCG@10": lambda s: cells.interval(s.metrics[prefix + "ndcg@10"]),
        "complete@5": lambda s: cells.percent(s.metrics[prefix + "complete@5"].mean),
        **_abstention_columns(summaries),
        "ECE": lambda s: cells.percent(s.calibration_error),
        "ms p50": lambda s: cells.number(s.milliseconds_p50),
        "ms p95": lambda s: cells.number(s.milliseconds_p95),
        "tokens": lambda s: cells.whole(s.tokens),
    }
    scoring = "lenient: any acceptable tool counts" if lenient else "strict: only the gold tool counts"
    return table_of(f"Quality of {runs[0].pipeline} ({scoring})", columns, summaries, (INTERVAL_NOTE,))


def _abstention_columns(summaries: Sequence[Summary]) -> dict[str, Callable[[Summary], str]]:
    if not any(summary.abstention.no_match for summary in summaries):
        return {}
    return {
        "none precision": lambda s: cells.percent(s.abstention.precision),
        "none recall": lambda s: cells.percent(s.abstention.recall),
    }


def comparison_table(comparisons: Sequence[Comparison], before: str, after: str) -> Table:
    metrics = [change.metric for change in comparisons[0].deltas]
    columns: dict[str, Callable[[Comparison], str]] = {
        "set": lambda c: c.dataset,
        "queries": lambda c: str(c.queries),
        **{label(metric): _delta_cell(number) for number, metric in enumerate(metrics)},
        "same first hit": lambda c: cells.percent(c.same_top_1),
        "overlap@5": lambda c: cells.percent(c.overlap_at_5),
        "time ratio": lambda c: cells.number(c.latency_ratio),
    }
    notes = (MARK_NOTE, INTERVAL_NOTE, *dict.fromkeys(note for each in comparisons for note in each.notes))
    return table_of(f"From {before} to {after}", columns, comparisons, notes)


def _delta_cell(number: int) -> Callable[[Comparison], str]:
    return lambda comparison: cells.change(comparison.deltas[number])


def leaderboard(runs: Mapping[str, Sequence[Run]], metric: str, reference: str) -> Table:
    """Show contenders by sets for one metric; marks say where one differs from the reference for certain."""
    sets = [run.dataset for run in runs[reference]]
    rows = [_leaderboard_row(name, found, runs[reference], metric) for name, found in runs.items()]
    columns = ("pipeline", *sets, *((MACRO,) if len(sets) > 1 else ()))
    note = f"Marks compare with {reference}: {MARK_NOTE}"
    return Table(f"{label(metric)} by set", columns, tuple(rows), (note,))


def _leaderboard_row(name: str, runs: Sequence[Run], reference: Sequence[Run], metric: str) -> tuple[str, ...]:
    pairs = {pair.before.dataset: [pair] for pair in pair_up(reference, runs)}
    if len(pairs) > 1:
        pairs[MACRO] = [pair for found in pairs.values() for pair in found]
    wanted = [*(run.dataset for run in reference), *((MACRO,) if len(reference) > 1 else ())]
    cells = {key: _marked(delta(metric, found)) for key, found in pairs.items()}
    return (name, *(cells.get(key, NOTHING) for key in wanted))


def _marked(change: Delta) -> str:
    return f"{cells.percent(change.after)}{cells.mark(change.p_value)}"


def ablation_tables(ablation: Ablation, segments: Sequence[str]) -> tuple[Table, ...]:
    return tuple(_ablation_table(ablation, segment) for segment in segments)


def _ablation_table(ablation: Ablation, segment: str) -> Table:
    columns: dict[str, Callable[[Row], str]] = {
        "part off": lambda row: row.part,
        **{label(metric): _value_cell(metric) for metric in SHOWN},
        "ΔMRR": lambda row: cells.change(row.change),
    }
    rows = ablation.rows(segment)
    title = f"{ablation.full.dataset}, {segment}: {rows[0].queries} queries"
    return table_of(title, columns, rows, (MARK_NOTE, INTERVAL_NOTE))


def _value_cell(metric: str) -> Callable[[Row], str]:
    return lambda row: cells.percent(row.values.get(metric, math.nan))


def moved_table(ablation: Ablation, queries: Mapping[str, str]) -> Table:
    """List every query that a part helps or hurts."""
    rows = tuple(
        (
            move.part,
            move.case,
            queries.get(move.case, ""),
            cells.rank(move.rank),
            cells.rank(move.rank_without),
        )
        for move in ablation.moved()
    )
    return Table("Queries that move", ("part off", "case", "query", "rank", "rank without"), rows)


def sweep_table(points: Sequence[Point], name: str) -> Table:
    rows = tuple((f"{point.value:g}", *_swept_cells(point)) for point in points)
    title = f"{points[0].runs[0].dataset} by {name}"
    return Table(title, (name, *map(label, SWEPT)), rows, (INTERVAL_NOTE,))


def _swept_cells(point: Point) -> list[str]:
    found = summarise(point.runs)
    return [cells.interval(found.metrics[metric]) for metric in SWEPT]


def size_tables(points: Sequence[SizePoint]) -> tuple[Table, ...]:
    """Show top-1 by size and pipeline, and which pipeline to use at which size."""
    pipelines = list(dict.fromkeys(point.pipeline for point in points))
    cells = {(point.size, point.pipeline): point for point in points}
    rows = [(str(size), *(_size_cell(cells[size, name]) for name in pipelines)) for size in _sizes(points)]
    notes = (INTERVAL_NOTE, "Then the median milliseconds for a query.")
    advice = tuple((str(each.size), each.pipeline, each.most_accurate) for each in advise(points))
    return (
        Table("Top-1 by catalog size", ("tools", *pipelines), tuple(rows), notes),
        Table(
            "Which pipeline at which size",
            ("tools", "use", "most accurate"),
            advice,
            ("Use: the fastest that is not significantly worse than the most accurate.",),
        ),
    )


def _sizes(points: Sequence[SizePoint]) -> list[int]:
    return sorted({point.size for point in points})


def _size_cell(point: SizePoint) -> str:
    return f"{cells.interval(point.accuracy)} {cells.number(point.milliseconds_p50)} ms"


def diagnosis_tables(diagnosis: Diagnosis) -> tuple[Table, ...]:
    findings = tuple((each.kind, ", ".join(each.tools), each.message) for each in diagnosis.findings)
    costs = tuple((each.server or NOTHING, str(each.tools), str(each.tokens)) for each in diagnosis.costs)
    tested = f"{diagnosis.tools} tools, {diagnosis.tested} of them asked for in other words."
    return (
        Table("Findings", ("finding", "tools", "what"), findings, (tested,)),
        Table("Tokens of full definitions", ("server", "tools", "tokens"), costs),
    )
