"""Replay scenarios, and run tasks with a model, through a real gateway."""

import argparse
import json
import os
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from shortlist.cli.arguments import add_command, add_json, count
from shortlist.cli.reading import say
from shortlist.cli.stack import run_plainly
from shortlist.errors import InvalidInput
from shortlist.evals.tables import to_json, to_markdown
from shortlist.harness.attempts import setups_table, tasks_table
from shortlist.harness.chat import KEY_VARIABLE, chat_model
from shortlist.harness.gateway import GatewayFolder, warm_up
from shortlist.harness.replay import by_scenario, replay, totals
from shortlist.harness.scenarios import read_scenarios
from shortlist.harness.tasks import SETUPS, attempt, read_tasks
from shortlist.telemetry.experiments.plan import Variant, read_variant

OK = 0
VARIANTS = ("mode=static", "mode=search", "mode=dynamic")


def register(subparsers: Any) -> None:
    """Add `replay` and `run-tasks`."""
    replayed = add_command(subparsers, "replay")
    replayed.add_argument("scenarios", type=Path, help="a JSON file (format: docs/experiments.md)")
    replayed.add_argument("--only", action="append", help="run only the scenario with this name (repeatable)")
    replayed.add_argument(
        "--variant",
        action="append",
        metavar="SETTINGS",
        help="a variant, such as mode=static,preset=full (repeatable; default: static, search and dynamic)",
    )
    _servers(replayed)
    replayed.set_defaults(run=_replay)
    tasks = add_command(subparsers, "run-tasks")
    tasks.add_argument("tasks", type=Path, help="a JSON file (format: docs/experiments.md)")
    tasks.add_argument(
        "--endpoint", metavar="URL", help="an OpenAI-compatible Chat Completions endpoint (default: OPENAI_BASE_URL)"
    )
    tasks.add_argument("--model", required=True, help="model name at the endpoint")
    tasks.add_argument("--setup", action="append", choices=tuple(SETUPS), help="run only this setup (repeatable)")
    tasks.add_argument("--repeat", type=count, default=1, help="attempts per task and setup (default: 1)")
    _servers(tasks)
    tasks.set_defaults(run=_run_tasks)


def _servers(parser: argparse.ArgumentParser) -> None:
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--config", type=Path, help="a configuration file (default: your own, else the demo servers)")
    which.add_argument("--catalog", type=Path, help="a catalog file, served by stub servers")
    add_json(parser)


def _replay(arguments: argparse.Namespace) -> int:
    scenarios = read_scenarios(arguments.scenarios)
    if arguments.only:
        scenarios = tuple(scenario for scenario in scenarios if scenario.name in arguments.only)
    if not scenarios:
        raise InvalidInput(
            f"No scenario {', '.join(arguments.only or ())!r} in {arguments.scenarios}. Check --only and the file."
        )
    variants = [_served(text) for text in arguments.variant or VARIANTS]

    async def run() -> int:
        async with _place(arguments) as place:
            found = []
            for variant in variants:
                for number, scenario in enumerate(scenarios, 1):
                    say(f"{variant.name}: {number}/{len(scenarios)} {scenario.name}")
                    found.append(await replay(place, scenario, variant))
        tables = [totals(found), by_scenario(found)]
        print(to_json({"replayed": found}) if arguments.json else to_markdown(tables))
        return OK

    return run_plainly(run)


def _run_tasks(arguments: argparse.Namespace) -> int:
    tasks = read_tasks(arguments.tasks)
    setups = arguments.setup or tuple(SETUPS)
    url = arguments.endpoint or os.environ.get("OPENAI_BASE_URL")
    if not url:
        raise InvalidInput("No endpoint. Pass --endpoint, such as http://127.0.0.1:11434/v1, or set OPENAI_BASE_URL.")
    model = chat_model(url, arguments.model, os.environ.get(KEY_VARIABLE))

    async def run() -> int:
        async with _place(arguments) as place:
            attempts = []
            # Setups alternate, so that an endpoint that gets slower affects all of them.
            for task in tasks:
                for setup in (setup for _ in range(arguments.repeat) for setup in setups):
                    attempts.append(await attempt(place, model, task, setup))
                    say(f"{task.name}, {setup}: {'completed' if attempts[-1].completed else 'not completed'}")
        tables = [setups_table(attempts), tasks_table(attempts)]
        print(to_json({"attempts": attempts}) if arguments.json else to_markdown(tables))
        return OK

    try:
        return run_plainly(run)
    finally:
        model.close()


def _served(text: str) -> Variant:
    variant = read_variant(text)
    if extra := set(variant.settings()) - {"mode", "preset"}:
        raise InvalidInput(f"A replay can vary mode and preset, not {', '.join(sorted(extra))}.")
    return variant


@asynccontextmanager
async def _place(arguments: argparse.Namespace) -> AsyncIterator[GatewayFolder]:
    """Yield a data folder for the gateways of a run, with stub servers if a catalog is given."""
    with tempfile.TemporaryDirectory(prefix="shortlist-") as name:
        folder = Path(name)
        async with _config(arguments, folder) as config:
            place = GatewayFolder(folder, config)
            for server, state in (await warm_up(place)).items():
                say(f"{server} is {state}: its tools are missing")
            yield place


@asynccontextmanager
async def _config(arguments: argparse.Namespace, folder: Path) -> AsyncIterator[Path | None]:
    if arguments.catalog is None:
        yield arguments.config.resolve() if arguments.config else None
        return
    # A web server that no other command needs.
    from shortlist.harness.stubs import stubs  # noqa: PLC0415

    async with stubs(arguments.catalog) as config:
        path = folder / "stubs.json"
        path.write_text(json.dumps(config), "utf-8")
        yield path
