"""`shortlist ab`: start, watch, report and stop an experiment."""

import argparse
from collections.abc import Callable, Sequence
from typing import Any

from shortlist.cli.arguments import add_command, add_json
from shortlist.cli.shown import shown_json
from shortlist.cli.storing import configured_storage
from shortlist.config.load import load_settings
from shortlist.config.settings import Settings
from shortlist.errors import InvalidInput
from shortlist.models import Json
from shortlist.paths import find_config
from shortlist.telemetry.experiments.metrics import DEFAULT_GUARDRAILS, DEFAULT_METRIC, METRICS
from shortlist.telemetry.experiments.plan import (
    ALPHA,
    AS_CONFIGURED,
    MINIMUM,
    Experiment,
    Variant,
    find_experiment,
    read_variant,
    running_experiment,
    start_experiment,
    stop_experiment,
)
from shortlist.telemetry.experiments.report import build_report, conclusion, report_text

OK = 0
BUILT_IN_PRESETS = ("default", "full")


def register(subparsers: Any) -> None:
    """Add `ab` and its four actions."""
    ab = add_command(subparsers, "ab")
    actions = ab.add_subparsers(metavar="ACTION", required=True)
    _register_start(actions)
    _action(actions, "status", _status, "show the running experiment and its progress")
    report = _action(actions, "report", _report, "report the results of an experiment; valid at any time")
    report.add_argument("name", nargs="?", help="the experiment (default: the latest)")
    stop = _action(actions, "stop", _stop, "stop an experiment; all clients get the configured settings again")
    stop.add_argument("name", nargs="?", help="the experiment (default: the running one)")


def _register_start(actions: Any) -> None:
    start = _action(actions, "start", _start, "start an experiment: assign workspaces to variants at random")
    start.add_argument("name", help="name of the experiment")
    start.add_argument(
        "--variant",
        action="append",
        required=True,
        metavar="SETTINGS",
        help="settings of one variant: mode, preset, pipeline, detail or limit, as in mode=dynamic,limit=10 "
        "(repeatable). The first one is the control; a single one is compared with the current configuration",
    )
    start.add_argument(
        "--metric",
        choices=tuple(METRICS),
        default=DEFAULT_METRIC,
        help="the metric that decides (default: %(default)s)",
    )
    start.add_argument("--guardrail", action="append", choices=tuple(METRICS), help="must not get worse (repeatable)")
    start.add_argument(
        "--alpha", type=float, default=ALPHA, help="false positive rate over all looks together (default: %(default)s)"
    )
    start.add_argument(
        "--minimum",
        type=int,
        default=MINIMUM,
        help="workspaces per variant before a conclusion is drawn (default: %(default)s)",
    )
    start.add_argument("--config", help="the configuration to check presets against")


def _action(actions: Any, name: str, run: Callable[[argparse.Namespace], int], what: str) -> argparse.ArgumentParser:
    parser = add_command(actions, name, what)
    add_json(parser)
    parser.set_defaults(run=run)
    return parser


def _start(arguments: argparse.Namespace) -> int:
    experiment = Experiment(
        name=_named(arguments.name),
        variants=_variants(arguments),
        metric=arguments.metric,
        guardrails=tuple(arguments.guardrail or DEFAULT_GUARDRAILS),
        alpha=_alpha(arguments.alpha),
        minimum=_minimum(arguments.minimum),
    )
    begun = start_experiment(configured_storage().experiments, experiment)
    names = " against ".join(repr(variant.name) for variant in begun.variants)
    _show(
        arguments,
        begun.data(),
        f"Started {begun.name!r}: {names}, decided by {METRICS[begun.metric].meaning}.\n"
        "Running gateways apply it within seconds. Run `shortlist ab report` as often as you like.",
    )
    return OK


def _status(arguments: argparse.Namespace) -> int:
    store = configured_storage().experiments
    running = running_experiment(store)
    outcomes = store.outcomes(running.name) if running else []
    if running is None:
        _show(arguments, None, "No experiment is running. Start one with `shortlist ab start`.")
        return OK
    report = build_report(running, outcomes)
    sizes = ", ".join(f"{name}: {count}" for name, count in report.workspaces.items())
    data = {"experiment": running.data(), "workspaces": dict(report.workspaces), "mismatched": report.mismatched}
    _show(arguments, data, f"{running.name!r} is running. Workspaces: {sizes}\n{conclusion(report)}")
    return OK


def _report(arguments: argparse.Namespace) -> int:
    store = configured_storage().experiments
    experiment = find_experiment(store, arguments.name)
    report = build_report(experiment, store.outcomes(experiment.name))
    _show(arguments, report.data(), report_text(report))
    return OK


def _stop(arguments: argparse.Namespace) -> int:
    store = configured_storage().experiments
    running = running_experiment(store)
    if arguments.name is None and running is None:
        raise InvalidInput("No experiment is running. `shortlist ab start NAME` starts one.")
    stopped = stop_experiment(store, arguments.name or (running.name if running else ""))
    _show(
        arguments,
        stopped.data(),
        f"Stopped {stopped.name!r}. `shortlist ab report {stopped.name}` still shows its result.",
    )
    return OK


def _variants(arguments: argparse.Namespace) -> tuple[Variant, ...]:
    given = tuple(read_variant(text) for text in arguments.variant)
    variants = given if len(given) > 1 else (AS_CONFIGURED, *given)
    if len(set(variants)) < len(variants):
        raise InvalidInput("Two variants are the same. Pass at least one that differs from the current configuration.")
    _check_names(variants, arguments.config)
    return variants


def _check_names(variants: Sequence[Variant], config: str | None) -> None:
    """Raise InvalidInput for a preset or a pipeline that does not exist."""
    # Half a second of imports, needed only to check a pipeline's name.
    from shortlist.search.presets import PIPELINES  # noqa: PLC0415

    path = find_config(config)
    presets = (*(load_settings(path) if path else Settings()).presets, *BUILT_IN_PRESETS)
    for variant in variants:
        if variant.preset is not None and variant.preset not in presets:
            raise InvalidInput(f"No preset {variant.preset!r}. Known presets: {', '.join(presets)}.")
        if variant.pipeline is not None and variant.pipeline not in PIPELINES:
            raise InvalidInput(f"No pipeline {variant.pipeline!r}. Known pipelines: {', '.join(PIPELINES)}.")


def _named(name: str) -> str:
    if not name.strip() or not name.isprintable():
        raise InvalidInput("An experiment needs a name of printable characters.")
    return name.strip()


def _alpha(value: float) -> float:
    if not 0 < value < 0.5:
        raise InvalidInput(f"--alpha must be between 0 and 0.5, for example 0.05, not {value:g}.")
    return value


def _minimum(value: int) -> int:
    if value < 2:
        raise InvalidInput(f"--minimum must be at least 2 workspaces, not {value}.")
    return value


def _show(arguments: argparse.Namespace, data: Json, text: str) -> None:
    print(shown_json(data, indent=2) if arguments.json else text)
