"""Search quality on every set beside every peer: peers/bin/python -m benchmarks.quality [--also MODEL].

The same queries in the same run, each embedded once per model; peers that rank by vectors are given our embedder.
Strict scoring, lenient where sets list equivalent tools. `--also` puts the default pipeline with another model beside
it: the one ours was tuned from, ours before quantisation (a folder each), or another tier. Peers do not change when we
do, so their rankings are kept from run to run; `--fresh` asks them again. `--keep-queries FILE` keeps the value of each
query of the default pipeline, and `--against FILE` compares this run with such a file, query by query.
"""

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from benchmarks.measuring import publish
from benchmarks.quality_checks import DEFAULT, Check, checks, paired, published
from benchmarks.quality_data import (
    BARE,
    BY_SPLIT,
    LARGE,
    METRICS,
    PEERS,
    SETS,
    SINGLE,
    Answers,
    Model,
    bench_of,
    ours,
    peer,
    say,
)
from benchmarks.quality_queries import against, read_queries, write_queries

from shortlist.evals import cells
from shortlist.evals.cells import NOTHING, label
from shortlist.evals.datasets import Dataset, load_dataset
from shortlist.evals.report import MARK_NOTE
from shortlist.evals.significance import Interval, bootstrap_columns
from shortlist.evals.summary import MACRO
from shortlist.evals.tables import Table
from shortlist.index.cache import StoredVectors
from shortlist.index.embedders import EMBEDDERS, shipped
from shortlist.paths import cache_folder
from shortlist.storage.sqlite_vectors import SqliteVectors

OURS = ("default", "lexical", "dense", "weighted", BARE, "rrf")
ALSO = ("default", "dense", "weighted", BARE)
"""What another model is put beside ours in."""
OUR_MODELS = "shortlist-"
WITHOUT_MODEL = ("default", "lexical")
INTERVAL_NOTE = "In brackets: 95 % bootstrap interval, resampled within each set."


def main() -> None:
    options = _options()
    main_model = _model(options.embedder)
    others = {Path(name).name: model for name in options.also if (model := _model(name))}
    also = [f"{name} · {other}" for other in others for name in ALSO]
    found: dict[str, dict[str, Answers]] = {name: {} for name in options.contenders + also}
    left_out: dict[str, dict[str, str]] = {}
    for name in options.sets:
        dataset = load_dataset(name)
        for contender, answers in _ours(dataset, options.contenders, main_model, others).items():
            found[contender][name] = answers
        for contender in (each for each in options.contenders if each in PEERS):
            asked = peer(dataset, contender, main_model, options.peer_queries, fresh=options.fresh)
            if isinstance(asked, str):
                left_out.setdefault(contender, {})[name] = asked
            else:
                found[contender][name] = asked
    found = {name: by_set for name, by_set in found.items() if by_set}
    say("intervals and significance")
    untuned = [f"{DEFAULT} · {name}" for name, model in others.items() if not model.model_id.startswith(OUR_MODELS)]
    _publish(options, found, left_out, checks(found, untuned))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sets", nargs="+", default=list(SETS), metavar="NAME[:SPLIT]")
    parser.add_argument("--contenders", nargs="+", default=[*OURS, *PEERS], choices=[*OURS, *PEERS], metavar="NAME")
    parser.add_argument("--embedder", default="small", help=EMBEDDERS)
    parser.add_argument("--also", action="append", default=[], metavar="MODEL", help="another model beside it")
    parser.add_argument("--peer-queries", type=int, default=150, help=f"asked of peers above {LARGE:,} tools")
    parser.add_argument("--fresh", action="store_true", help="ask peers again, whatever is kept of them")
    parser.add_argument("--name", default="quality", help="what the file of results is called")
    parser.add_argument("--keep-queries", type=Path, metavar="FILE", help="keep the value of every query (.json.gz)")
    parser.add_argument("--against", type=Path, metavar="FILE", help="compare with the kept values of an earlier run")
    options = parser.parse_args()
    if DEFAULT not in options.contenders:
        options.contenders = [DEFAULT, *options.contenders]
    if options.embedder == "none":
        options.contenders = [name for name in options.contenders if name in (*WITHOUT_MODEL, *PEERS)]
    return options


def _model(name: str) -> Model | None:
    embedder = shipped(name)
    return Model(embedder, StoredVectors(SqliteVectors(cache_folder() / "vectors.sqlite"))) if embedder else None


def _ours(
    dataset: Dataset, contenders: Sequence[str], model: Model | None, others: Mapping[str, Model]
) -> dict[str, Answers]:
    bench = bench_of(dataset, model)
    found = {name: ours(dataset, bench, name) for name in contenders if name in OURS}
    for other, its in others.items():
        bench = bench_of(dataset, its)
        found |= {f"{name} · {other}": ours(dataset, bench, name) for name in ALSO}
    say(f"{dataset.name}: ours done")
    return found


def _publish(
    options: argparse.Namespace,
    found: Mapping[str, Mapping[str, Answers]],
    left_out: Mapping[str, Mapping[str, str]],
    held: Sequence[Check],
) -> None:
    single = [name for name in SINGLE if name in options.sets]
    others = [name for name in options.sets if name not in SINGLE]
    tables = [_default_table(found[DEFAULT])]
    tables += [_leaderboard(found, single, metric) for metric in METRICS if single]
    tables += [_leaderboard(found, others, metric) for metric in METRICS if others]
    if options.keep_queries:
        write_queries(options.keep_queries, found[DEFAULT])
    if options.against:
        earlier = read_queries(options.against)
        tables.append(against(found[DEFAULT], earlier, options.against.name))
    tables += [_published_table(found), _check_table(held), *_left_out_tables(found, left_out)]
    data = {
        "embedder": options.embedder if not Path(options.embedder).is_dir() else "a folder",
        "peer_queries": options.peer_queries,
        "figures": {name: {each: _figures(each, a) for each, a in sets.items()} for name, sets in found.items()},
        "macro": {name: _macro_figures(found, name, single) for name in found},
        "against_default": {name: _against_default(found, name, single) for name in found if name != DEFAULT},
        "checks": held,
        "left_out": left_out,
    }
    publish(options.name, tables, data)


def _default_table(answers: Mapping[str, Answers]) -> Table:
    """Show the default pipeline on every set and split, with intervals."""
    rows = [
        (
            name,
            split or ("macro over splits" if name in BY_SPLIT else "all"),
            f"{queries:,}",
            *map(cells.interval, found),
        )
        for name, each in answers.items()
        for split, queries, found in _parts(name, each)
    ]
    columns = ("set", "part", "queries", *map(label, METRICS))
    scoring = f"Strict; lenient on {', '.join(BY_SPLIT)}."
    return Table("The default pipeline", columns, tuple(rows), (scoring, INTERVAL_NOTE))


def _parts(name: str, answers: Answers) -> list[tuple[str, int, tuple[Interval, ...]]]:
    splits = list(dict.fromkeys(answers.splits))
    found = [("", len(answers.ids), _intervals([answers], by_split=name in BY_SPLIT))]
    for split in splits if len(splits) > 1 else ():
        values = np.stack([answers.of_split(metric, split) for metric in METRICS], axis=1)
        found.append((split, len(values), bootstrap_columns([values])))
    return found


def _leaderboard(found: Mapping[str, Mapping[str, Answers]], sets: Sequence[str], metric: str) -> Table:
    """Show contenders by sets; the macro average is over those that a contender was asked whole."""
    with_macro = sets[0] in SINGLE and len(sets) > 1
    rows = tuple(_leaderboard_row(found, name, sets, metric, with_macro=with_macro) for name in found)
    columns = ("pipeline", *sets, *((MACRO, "default less it, on macro") if with_macro else ()))
    asked = {
        each: len(found[name][each].ids) for name in found if name in PEERS for each in sets if each in found[name]
    }
    parts = [f"{each}: {n}" for each, n in asked.items() if n < len(found[DEFAULT][each].ids)]
    note = f"Peers were asked a part of the queries ({', '.join(parts)}); marks compare on these." if parts else ""
    marks = f"Marks say where one differs from default: {MARK_NOTE}"
    averaged = "Sets with splits: the macro average over them." if not with_macro else INTERVAL_NOTE
    return Table(f"{label(metric)} by set", columns, rows, tuple(filter(None, (marks, note, averaged))))


def _leaderboard_row(
    found: Mapping[str, Mapping[str, Answers]], name: str, sets: Sequence[str], metric: str, *, with_macro: bool
) -> tuple[str, ...]:
    at = list(METRICS).index(metric)
    row = [name]
    for each in sets:
        answers = found[name].get(each)
        if answers is None:
            row.append(NOTHING)
            continue
        by_split = each in BY_SPLIT
        mean = float(np.mean([values.mean() for values in answers.strata(metric, by_split=by_split)]))
        same = name == DEFAULT
        differs = (
            "" if same else cells.mark(paired([found[DEFAULT][each]], [answers], metric, by_split=by_split).p_value)
        )
        row.append(f"{cells.percent(mean)}{differs}")
    if with_macro:
        row += _macro_cells(found, name, sets, metric, at)
    return tuple(row)


def _macro_cells(
    found: Mapping[str, Mapping[str, Answers]], name: str, sets: Sequence[str], metric: str, at: int
) -> list[str]:
    if any(each not in found[name] for each in sets):
        return [NOTHING, NOTHING]
    interval = cells.interval(_intervals([found[name][each] for each in sets])[at])
    if name == DEFAULT:
        return [interval, NOTHING]
    gain = paired([found[DEFAULT][each] for each in sets], [found[name][each] for each in sets], metric)
    return [interval, str(gain)]


def _intervals(answers: Sequence[Answers], *, by_split: bool = False) -> tuple[Interval, ...]:
    """Return every metric's macro mean and interval, over sets or over the splits of one."""
    columns = [[values for each in answers for values in each.strata(m, by_split=by_split)] for m in METRICS]
    return bootstrap_columns([np.stack(each, axis=1) for each in zip(*columns, strict=True)])


def _figures(name: str, answers: Answers) -> dict[str, Any]:
    intervals = dict(zip(METRICS, _intervals([answers], by_split=name in BY_SPLIT), strict=True))
    splits = dict.fromkeys(answers.splits)
    means = {split: {m: float(answers.of_split(m, split).mean()) for m in METRICS} for split in splits}
    return {"queries": len(answers.ids), "empty": answers.empty, "note": answers.note, **intervals, "splits": means}


def _macro_figures(
    found: Mapping[str, Mapping[str, Answers]], name: str, sets: Sequence[str]
) -> dict[str, Interval] | None:
    if not sets or any(each not in found[name] for each in sets):
        return None
    return dict(zip(METRICS, _intervals([found[name][each] for each in sets]), strict=True))


def _against_default(
    found: Mapping[str, Mapping[str, Answers]], name: str, sets: Sequence[str]
) -> dict[str, Any] | None:
    if not sets or any(each not in found[name] for each in sets):
        return None
    mine, theirs = ([found[who][each] for each in sets] for who in (DEFAULT, name))
    return {metric: paired(mine, theirs, metric) for metric in METRICS}


def _published_table(found: Mapping[str, Mapping[str, Answers]]) -> Table:
    columns = ("set", "who", "metric", "published", "default", "what differs")
    return Table("Beside what others report", columns, tuple(published(found)))


def _check_table(held: Sequence[Check]) -> Table:
    rows = tuple((check.asked, "holds" if check.holds else "DOES NOT HOLD", check.figures) for check in held)
    return Table("What the default pipeline is held to", ("asked", "", "figures"), rows)


def _left_out_tables(
    found: Mapping[str, Mapping[str, Answers]], left_out: Mapping[str, Mapping[str, str]]
) -> list[Table]:
    """List the failures of peers."""
    said = [(name, each, reason) for name, sets in left_out.items() for each, reason in sets.items()]
    said += [(name, each, a.note) for name, sets in found.items() for each, a in sets.items() if a.note]
    return [Table("Peers that were left out, or needed help", ("peer", "set", "what"), tuple(said))] if said else []


if __name__ == "__main__":
    main()
