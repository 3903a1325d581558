"""The commands that measure: eval, compare, ablate, sweep, lint and rank."""

import argparse
import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeAlias

from shortlist.catalog.catalog import Catalog
from shortlist.cli.arguments import add_command, count, counts, new_file, numbers
from shortlist.cli.benches import load, open_bench, open_embedder, read_catalog, read_datasets, read_exemplars
from shortlist.cli.progress import counted, say
from shortlist.cli.shown import shown_json
from shortlist.errors import InvalidInput, ShortlistError
from shortlist.evals import report
from shortlist.evals.ablation import Ablation, ablate
from shortlist.evals.bench import SWEEPS
from shortlist.evals.cases import read_queries
from shortlist.evals.compare import compare
from shortlist.evals.contender import Ranked
from shortlist.evals.datasets import Dataset, demo_catalog, load_dataset
from shortlist.evals.doctor import Doctor
from shortlist.evals.gates import Gate, read_limits
from shortlist.evals.learned import LOCAL, Learned
from shortlist.evals.runfile import load_runs, save_runs
from shortlist.evals.runner import LIMIT, Run, no_progress
from shortlist.evals.sizes import SizePoint, measure_size
from shortlist.evals.summary import summarise_each
from shortlist.evals.sweep import STACKONE_ALPHAS, sweep
from shortlist.evals.tables import Table, to_json, to_markdown
from shortlist.index.embedders import EMBEDDERS, Embedder

Arguments: TypeAlias = argparse.Namespace
Command: TypeAlias = Callable[[Arguments], int]
Subparsers: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"

DEFAULT_DATASET = "golden:test"
SIZES_DATASET = "mcp_union"
SIZES_PIPELINES = ("lexical", "dense", "default")
SWEEP_DATASET = "golden:validation"
"""Sweeps choose a parameter, so they use data that is not reported."""
DEFAULT_PIPELINE = "default"
DEFAULT_EMBEDDER = "small"
OWN_TOOLS = "a file or folder with your tools (repeatable)"

PASSED, FAILED, BAD_INPUT = 0, 1, 2


def register(subparsers: Subparsers) -> None:
    """Add every command of this module."""
    for add in (_add_eval, _add_compare, _add_ablate, _add_sweep, _add_lint, _add_rank):
        add(subparsers)


def _add_eval(subparsers: Subparsers) -> None:
    parser = _command(subparsers, "eval", _eval)
    _add_dataset_arguments(parser)
    _add_engine_arguments(parser)
    parser.add_argument("--strict", action="store_true", help="count only the gold tool, no alternatives")
    parser.add_argument("--sizes", type=_sizes, metavar="N,N,…", help="measure by catalog size instead")
    parser.add_argument(
        "--distractors", type=Path, action="append", default=[], help="a catalog with additional tools for larger sizes"
    )
    parser.add_argument("--baseline", type=Path, metavar="RUN.jsonl", help="compare with an earlier run")
    _add_gate_argument(parser, "--fail-under", "exit with status 1 if a metric is lower, as in top1=0.8 (repeatable)")
    _add_gate_argument(
        parser, "--max-drop", "exit with status 1 if a metric dropped by more than this since the baseline (repeatable)"
    )
    parser.add_argument("--out", type=new_file, metavar="RUN.jsonl", help="save the result of every query")
    _add_limit_argument(parser)
    _add_learned_arguments(parser)
    _add_format_arguments(parser)


def _add_compare(subparsers: Subparsers) -> None:
    parser = _command(subparsers, "compare", _compare)
    side = "RUN.jsonl, PIPELINE, PIPELINE@EMBEDDER or @EMBEDDER"
    parser.add_argument("before", help=side)
    parser.add_argument("after", help=side)
    parser.add_argument(
        "--dataset", dest="datasets", action="append", default=[], help="NAME or NAME:SPLIT (repeatable)"
    )
    _add_own_arguments(parser)
    parser.add_argument("--embedder", default=DEFAULT_EMBEDDER, help=f"for a side without an embedder: {EMBEDDERS}")
    _add_format_arguments(parser)


def _add_ablate(subparsers: Subparsers) -> None:
    parser = _command(subparsers, "ablate", _ablate)
    _add_dataset_arguments(parser)
    _add_engine_arguments(parser)
    parser.add_argument("--segment", default="", help="only this segment of the queries")
    parser.add_argument("--verbose", action="store_true", help="list the queries that each part affects")
    _add_format_arguments(parser)


def _add_sweep(subparsers: Subparsers) -> None:
    parser = _command(subparsers, "sweep", _sweep)
    _add_dataset_arguments(parser)
    parser.add_argument("--embedder", default=DEFAULT_EMBEDDER, help=EMBEDDERS)
    parser.add_argument("--of", choices=tuple(SWEEPS), default="alpha", help="the parameter to sweep (default: alpha)")
    parser.add_argument(
        "--values", type=numbers, default=STACKONE_ALPHAS, metavar="X,X,…", help="the values to measure"
    )
    _add_format_arguments(parser)


def _add_lint(subparsers: Subparsers) -> None:
    parser = _command(subparsers, "lint", _lint)
    parser.add_argument("--catalog", type=Path, action="append", default=[], help=OWN_TOOLS)
    _add_engine_arguments(parser)
    _add_format_arguments(parser)


def _add_rank(subparsers: Subparsers) -> None:
    parser = _command(subparsers, "rank", _rank)
    parser.add_argument("--catalog", type=Path, action="append", required=True, help=OWN_TOOLS)
    parser.add_argument("--queries", type=Path, required=True, help="JSON lines, each with an id and a query")
    _add_engine_arguments(parser)
    _add_limit_argument(parser)
    _add_learned_arguments(parser)
    parser.add_argument("--out", type=new_file, required=True, metavar="RANKED.jsonl", help="the file to write")


def _command(subparsers: Subparsers, name: str, command: Command) -> argparse.ArgumentParser:
    parser = add_command(subparsers, name)
    parser.set_defaults(run=_told(command))
    return parser


def _add_dataset_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("datasets", nargs="*", metavar="DATASET", help="NAME or NAME:SPLIT")
    _add_own_arguments(parser)


def _add_own_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--catalog", type=Path, action="append", default=[], help=OWN_TOOLS)
    parser.add_argument("--cases", type=Path, help="your labelled queries, JSON lines")
    parser.add_argument("--split", default="", help="only this split of the queries")


def _add_engine_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--pipeline", action="append", default=[], help="search pipeline: default, bm25 …")
    parser.add_argument("--embedder", default=DEFAULT_EMBEDDER, help=EMBEDDERS)


def _add_limit_argument(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--limit", type=count, default=LIMIT, help=f"number of tools per query (default: {LIMIT})")


def _add_gate_argument(parser: argparse.ArgumentParser, name: str, help_text: str) -> None:
    parser.add_argument(name, action="append", default=[], metavar="METRIC=VALUE", help=help_text)


def _add_learned_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--exemplars", type=Path, metavar="FILE", help="a file written by `shortlist learned export`")
    parser.add_argument("--as", dest="caller", default=LOCAL.name, help="search as this caller (default: local)")


def _add_format_arguments(parser: argparse.ArgumentParser) -> None:
    shape = parser.add_mutually_exclusive_group()
    shape.add_argument("--json", action="store_true", help="print JSON")
    shape.add_argument("--markdown", action="store_true", help="print Markdown tables (the default)")


def _told(command: Command) -> Command:
    """Turn what the caller can act on into a message and exit code 2."""

    @functools.wraps(command)
    def run(args: Arguments) -> int:
        try:
            return command(args)
        except ShortlistError as error:
            say(f"shortlist: {error}")
            return BAD_INPUT

    return run


def _eval(args: Arguments) -> int:
    if args.sizes:
        return _eval_sizes(args)
    gate = _gate(args)
    datasets, learned = read_datasets(args, DEFAULT_DATASET), read_exemplars(args)
    runs = _runs(datasets, _pipelines(args), open_embedder(args.embedder), args.limit, learned)
    if args.out:
        save_runs([run for found in runs.values() for run in found], args.out)
    first = next(iter(runs.values()))
    failures = gate.failures(first)
    _show(
        args,
        lambda: _eval_tables(runs, gate, strict=args.strict),
        lambda: _eval_data(runs, gate, failures),
    )
    for failure in failures:
        say(f"shortlist: {failure}")
    return FAILED if failures else PASSED


def _eval_tables(runs: Mapping[str, Sequence[Run]], gate: Gate, *, strict: bool) -> list[Table]:
    tables = [report.quality_table(found, lenient=not strict) for found in runs.values()]
    first = next(iter(runs))
    if len(runs) > 1:
        tables += [report.leaderboard(runs, metric, first) for metric in report.SWEPT]
    if gate.baseline:
        tables.append(report.comparison_table(compare(gate.baseline, runs[first]), "the baseline", first))
    return tables


def _eval_data(runs: Mapping[str, Sequence[Run]], gate: Gate, failures: Sequence[str]) -> dict[str, Any]:
    first = next(iter(runs.values()))
    return {
        "summaries": [summary for found in runs.values() for summary in summarise_each(found)],
        "against_baseline": compare(gate.baseline, first) if gate.baseline else [],
        "failures": failures,
    }


def _gate(args: Arguments) -> Gate:
    floors, drops = read_limits(args.fail_under), read_limits(args.max_drop)
    if drops and not args.baseline:
        raise InvalidInput("--max-drop needs --baseline RUN.jsonl to compare with.")
    return Gate(floors=floors, drops=drops, baseline=load_runs(args.baseline) if args.baseline else ())


def _runs(
    datasets: Sequence[Dataset],
    pipelines: Sequence[str],
    embedder: Embedder | None,
    limit: int = LIMIT,
    learned: Learned | None = None,
) -> dict[str, list[Run]]:
    """Run every pipeline on every set; a catalog is read and indexed once."""
    runs: dict[str, list[Run]] = {name: [] for name in pipelines}
    for dataset in datasets:
        loaded = load(dataset, embedder, learned=learned)
        contenders = [loaded.bench.contender(name) for name in runs]  # each is there before any is run
        for contender, found in zip(contenders, runs.values(), strict=True):
            found.append(loaded.run(contender, limit))
    return runs


def _eval_sizes(args: Arguments) -> int:
    (dataset,) = _one(read_datasets(args, SIZES_DATASET))
    loaded = load(dataset, open_embedder(args.embedder), more=args.distractors)
    build = functools.partial(loaded.bench.build, args.pipeline or SIZES_PIPELINES)
    runner, progress = replace(loaded.runner(""), progress=no_progress), counted("sizes")
    points: list[SizePoint] = []
    for done, size in enumerate(args.sizes, start=1):
        points += measure_size(runner, loaded.dataset, build, size)
        progress(done, len(args.sizes))
    _show(args, lambda: report.size_tables(points), lambda: points)
    return PASSED


def _compare(args: Arguments) -> int:
    sides = {text: _saved(text) for text in (args.before, args.after)}
    if not all(sides.values()):
        datasets = _compared_datasets(args, [run for runs in sides.values() for run in runs])
        made = {text: _side(text, args.embedder) for text, runs in sides.items() if not runs}
        sides |= {text: _runs(datasets, [name], embedder)[name] for text, (name, embedder) in made.items()}
    comparisons = compare(sides[args.before], sides[args.after])
    table = report.comparison_table(comparisons, args.before, args.after)
    _show(args, lambda: [table], lambda: comparisons)
    return PASSED


def _saved(text: str) -> Sequence[Run]:
    """Load a run where a file is named; a pipeline or embedder is run later."""
    return load_runs(Path(text)) if text.endswith(".jsonl") or Path(text).is_file() else ()


def _compared_datasets(args: Arguments, saved: Sequence[Run]) -> list[Dataset]:
    """Take the sets that are named, or those of the run on the other side."""
    if saved and not (args.datasets or args.cases):
        return [load_dataset(run.dataset) for run in saved]
    return read_datasets(args, DEFAULT_DATASET)


def _side(text: str, embedder: str) -> tuple[str, Embedder | None]:
    """Read a pipeline and an embedder; raises where there is none of that name, before the other side is run."""
    pipeline, _, model = text.partition("@")
    name = pipeline or DEFAULT_PIPELINE
    open_bench(Catalog.of(()), None).contender(name)
    return name, open_embedder(model or embedder)


def _ablate(args: Arguments) -> int:
    (dataset,) = _one(read_datasets(args, DEFAULT_DATASET))
    (pipeline,) = _one(_pipelines(args))
    loaded = load(dataset.only(segment=args.segment), open_embedder(args.embedder))
    bench, runner = loaded.bench, loaded.runner(pipeline)
    found = ablate(runner, loaded.dataset, bench.contender(pipeline), bench.without_each(pipeline))
    queries = {case.id: case.query for case in loaded.dataset.cases} if args.verbose else {}
    _show(args, lambda: _ablation_tables(found, queries), lambda: _ablation_data(found, queries))
    return PASSED


def _ablation_tables(found: Ablation, queries: Mapping[str, str]) -> list[Table]:
    tables = report.ablation_tables(found, found.segments)
    return [*tables, *([report.moved_table(found, queries)] if queries else [])]


def _ablation_data(found: Ablation, queries: Mapping[str, str]) -> dict[str, Any]:
    rows = [row for segment in found.segments for row in found.rows(segment)]
    return {"rows": rows, "moved": found.moved() if queries else []}


def _sweep(args: Arguments) -> int:
    (dataset,) = _one(read_datasets(args, SWEEP_DATASET))
    loaded = load(dataset, open_embedder(args.embedder) if args.of == "dense" else None)
    points = sweep(loaded.runner(args.of), loaded.dataset, args.values, loaded.bench.swept(args.of))
    _show(
        args,
        lambda: [report.sweep_table(points, args.of)],
        lambda: [{"value": point.value, "summaries": summarise_each(point.runs)} for point in points],
    )
    return PASSED


def _lint(args: Arguments) -> int:
    catalog = read_catalog(tuple(args.catalog) or (demo_catalog(),))
    (pipeline,) = _one(_pipelines(args))
    rank = open_bench(catalog, open_embedder(args.embedder)).contender(pipeline).rank
    doctor = Doctor(rank=rank, progress=counted("lint"))
    diagnosis = doctor.examine(catalog.tools)
    _show(args, lambda: report.diagnosis_tables(diagnosis), lambda: diagnosis)
    return PASSED


def _rank(args: Arguments) -> int:
    queries = read_queries(args.queries)
    if not queries:
        raise InvalidInput(f"There are no queries in {str(args.queries)!r}: write one JSON object per line.")
    (pipeline,) = _one(_pipelines(args))
    catalog = read_catalog(tuple(args.catalog))
    bench = open_bench(catalog, open_embedder(args.embedder), read_exemplars(args))
    contender, progress = bench.contender(pipeline), counted("rank")
    try:
        with args.out.open("w", encoding="utf-8") as out:
            for done, (identifier, text) in enumerate(queries, start=1):
                out.write(_ranked_line(identifier, contender.rank(text, args.limit)))
                progress(done, len(queries))
    except OSError as error:
        raise InvalidInput(f"Cannot write {str(args.out)!r}: {error.strerror}.") from error
    return PASSED


def _ranked_line(identifier: str, answer: Ranked) -> str:
    fields = {
        "id": identifier,
        "ranked": answer.ids,
        "confidence": answer.level,
        "probability": round(answer.probability, 6),
        "milliseconds": round(answer.milliseconds, 3),
    }
    return shown_json(fields) + "\n"


def _pipelines(args: Arguments) -> list[str]:
    return args.pipeline or [DEFAULT_PIPELINE]


def _one(items: Sequence[Any]) -> Sequence[Any]:
    if len(items) != 1:
        raise InvalidInput(f"This takes one dataset and one pipeline, not {len(items)}.")
    return items


def _sizes(text: str) -> tuple[int, ...]:
    sizes = counts(text)
    if min(sizes) < 2:
        raise argparse.ArgumentTypeError("a catalog needs at least 2 tools to be searched")
    return sizes


def _show(args: Arguments, tables: Callable[[], Sequence[Table]], data: Callable[[], Any]) -> None:
    """Print one of the two forms; only that one is rendered."""
    print(to_json(data()) if args.json else to_markdown(tables()).rstrip("\n"))
