"""Tables of attempts: what each setup completes, and at what cost."""

from collections.abc import Callable, Mapping, Sequence

from shortlist.evals.tables import Table
from shortlist.harness.tasks import Attempt

AttemptFigure = Callable[[Sequence[Attempt]], str]


def setups_table(attempts: Sequence[Attempt]) -> Table:
    """Summarise the attempts of every setup."""
    setups = list(dict.fromkeys(each.setup for each in attempts))
    by_setup = {setup: [each for each in attempts if each.setup == setup] for setup in setups}
    rows = tuple((label, *(figure(by_setup[setup]) for setup in setups)) for label, figure in _FIGURES.items())
    return Table("Setups compared", ("", *setups), rows)


def tasks_table(attempts: Sequence[Attempt]) -> Table:
    """Compare the setups for each task."""
    setups = list(dict.fromkeys(each.setup for each in attempts))
    tasks = list(dict.fromkeys(each.task for each in attempts))
    cells: dict[tuple[str, str], list[str]] = {}
    for each in attempts:
        cells.setdefault((each.task, each.setup), []).append(_cell(each))
    rows = tuple((task, *("; ".join(cells.get((task, setup), ["–"])) for setup in setups)) for task in tasks)
    return Table("Tasks", ("task", *setups), rows)


def _cell(each: Attempt) -> str:
    if each.failure:
        return f"failed: {each.failure}"
    tokens = each.prompt_tokens + each.completion_tokens
    return f"{'completed' if each.completed else 'NOT completed'}, {each.turns} turns, {tokens:,} tokens"


def _mean(pick: Callable[[Attempt], float]) -> AttemptFigure:
    return lambda attempts: f"{sum(pick(each) for each in attempts) / len(attempts):,.1f}"


def _share(pick: Callable[[Attempt], bool]) -> AttemptFigure:
    return lambda attempts: f"{sum(pick(each) for each in attempts)} of {len(attempts)}"


def _misses(attempts: Sequence[Attempt]) -> str:
    known = [each.misses for each in attempts if each.misses is not None]
    return f"{sum(known) / len(known):,.1f}" if known else "–"


_FIGURES: Mapping[str, AttemptFigure] = {
    "completed": _share(lambda each: each.completed),
    "could not be run": _share(lambda each: bool(each.failure)),
    "turns (mean)": _mean(lambda each: each.turns),
    "prompt tokens (mean)": _mean(lambda each: each.prompt_tokens),
    "completion tokens (mean)": _mean(lambda each: each.completion_tokens),
    "searches (mean)": _mean(lambda each: each.searches),
    "calls (mean)": _mean(lambda each: each.calls),
    "errors (mean)": _mean(lambda each: each.errors),
    "retrieval misses (mean)": _misses,
}
