"""`shortlist doctor`: examine the user's servers, explain what is wrong, and offer to fix it."""

import argparse
import logging
import os
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

from shortlist import upstream
from shortlist.cli.arguments import add_command, add_json
from shortlist.cli.asking import confirmed
from shortlist.cli.diagnosis import BrokenServer, ServerDiagnosis, diagnose
from shortlist.cli.grants import open_logins
from shortlist.cli.reading import log_folder
from shortlist.cli.shown import shown_json
from shortlist.cli.stack import run_plainly
from shortlist.cli.vault import revealed, stored_secret
from shortlist.config.clients.known import Place, server_entries
from shortlist.config.clients.texts import decoded, format_of, put, read_bytes, replace_file, tree_of
from shortlist.config.load import load_settings
from shortlist.config.settings import Settings
from shortlist.errors import InvalidConfig, InvalidInput, StoreError
from shortlist.models import Json
from shortlist.observability.logs import quieter
from shortlist.paths import data_folder, find_config
from shortlist.storage.opening import open_storage
from shortlist.storage.private import writing_problem
from shortlist.text.tokens import clean_text
from shortlist.upstream.events import UpstreamEvent, UpstreamStatus
from shortlist.upstream.isolation import SANDBOX_GAPS, problem_with
from shortlist.upstream.login import Logins
from shortlist.upstream.pool import UpstreamPool

OK, FAILED = 0, 1
SETTLE_SECONDS = 45.0
ISOLATIONS = ("sandbox", "container")


def register(subparsers: Any) -> None:
    """Add `doctor`."""
    parser = add_command(subparsers, "doctor")
    parser.add_argument("servers", nargs="*", metavar="SERVER", help="servers to examine (default: all)")
    parser.add_argument("--config", help="a configuration file (default: your own)")
    parser.add_argument("--yes", action="store_true", help="apply every fix without asking")
    add_json(parser)
    parser.set_defaults(run=_doctor)


def _doctor(arguments: argparse.Namespace) -> int:
    path = find_config(arguments.config)
    if path is None:
        raise InvalidInput(
            "There is no configuration yet. Import the servers of your clients with `shortlist setup`, or add one: "
            "shortlist add NAME -- COMMAND"
        )
    return examine(path, servers=arguments.servers, yes=arguments.yes, as_json=arguments.json)


def examine(path: Path, *, servers: Sequence[str] = (), yes: bool = False, as_json: bool = False) -> int:
    """Start the servers of a configuration, report on each, and offer to apply fixes."""
    try:
        settings = load_settings(path)
    except InvalidConfig as error:
        if not as_json:
            raise
        print(shown_json({"file": str(path), "servers": {}, "problem": str(error)}))
        return FAILED
    unknown = [name for name in servers if name not in settings.servers]
    if unknown:
        raise InvalidInput(f"No server {unknown[0]!r}. There are {', '.join(settings.servers)}.")
    chosen = replace(settings, servers={n: s for n, s in settings.servers.items() if not servers or n in servers})
    statuses, state = _statuses(chosen), _state_problem(chosen)
    found = {
        name: diagnose(BrokenServer(settings=chosen.servers[name], status=status, environment=os.environ))
        for name, status in statuses.items()
        if status.state != "ready"
    }
    if as_json:
        print(shown_json(_data(path, statuses, found, state), indent=2))
    else:
        print(_report(path, statuses, found, state))
    fixable = [each for each in found.values() if each.fix is not None]
    fixed = [each for each in fixable if yes or (not as_json and confirmed(f"{each.server}: {each.fix.what}?"))]  # type: ignore[union-attr]
    if fixed:
        apply_fixes(path, fixed)
        if not as_json:
            print(f"Fixed {', '.join(each.server for each in fixed)} in {path}. Run `shortlist doctor` again.")
    elif fixable and not as_json:
        print("To apply the fixes marked with *: shortlist doctor --yes")
    return OK if not found and state is None else FAILED


def apply_fixes(path: Path, fixes: Sequence[ServerDiagnosis]) -> None:
    """Write fixes into a configuration; its comments and order stay."""
    before = read_bytes(path)
    text, form = decoded(before, path), format_of(path)
    for each in fixes:
        places = {keys[-1]: keys for keys, _ in server_entries("file", tree_of(text, form), Place())}
        if each.fix is not None:
            text = put(text, form, (*places[each.server], *each.fix.keys), each.fix.value)
    replace_file(path, text.encode(), expected=before)


def _statuses(settings: Settings) -> Mapping[str, UpstreamStatus]:
    """Start the servers with the logins that a gateway of this configuration would use."""
    with closing(open_storage(revealed(settings).storage)) as storage:
        return _settled(settings, open_logins(storage))


def _settled(settings: Settings, logins: Logins) -> Mapping[str, UpstreamStatus]:
    async def run() -> Mapping[str, UpstreamStatus]:
        async with UpstreamPool(
            settings.servers,
            on_event=_ignore,
            limits=settings.limits,
            log_directory=log_folder(),
            logins=logins,
            secrets=stored_secret,
        ) as pool:
            await pool.settled(SETTLE_SECONDS)
            return pool.status()

    with quieter(logging.ERROR, upstream.__name__):  # the report says it all, once
        return run_plainly(run)


def _state_problem(settings: Settings) -> str | None:
    """Return what a gateway could not read or save of its state."""
    try:
        with closing(open_storage(revealed(settings).storage)) as storage:
            storage.pins.overview()
    except StoreError as error:
        return f"approvals cannot be read, so a server that connects serves nothing: {error}"
    problem = writing_problem(data_folder())
    return problem and f"{problem}. Tools are served; approvals and events are lost at the next restart."


def _ignore(_: UpstreamEvent) -> None:
    """Ignore an event: only the final statuses count."""


def _report(
    path: Path, statuses: Mapping[str, UpstreamStatus], found: Mapping[str, ServerDiagnosis], state: str | None
) -> str:
    lines = [f"{path}: {len(statuses) - len(found)} of {len(statuses)} servers work."]
    for name, status in statuses.items():
        problem = found.get(name)
        if problem is None:
            lines.append(f"✓ {name:<24} {status.tools} tools")
        else:
            star = "*" if problem.fix else ""
            lines.append(f"✗ {name:<24} {clean_text(problem.cause)}\n  → {clean_text(problem.remedy)}{star}")
    if state is not None:
        lines.append(f"✗ State: {clean_text(state)}")
    for kind in ISOLATIONS:
        trouble = problem_with(kind)
        lines.append(f"Isolation {kind!r} works here." if trouble is None else f"Isolation {kind!r}: {trouble}.")
        if kind == "sandbox" and trouble is None:
            lines.extend(f"  It does not limit {gap}." for gap in SANDBOX_GAPS)
    return "\n".join(lines)


def _data(
    path: Path, statuses: Mapping[str, UpstreamStatus], found: Mapping[str, ServerDiagnosis], state: str | None
) -> dict[str, Json]:
    rows: dict[str, Json] = {}
    for name, status in statuses.items():
        problem = found.get(name)
        rows[name] = {
            "state": status.state,
            "tools": status.tools,
            "cause": problem.cause if problem else None,
            "remedy": problem.remedy if problem else None,
            "fix": {"keys": list(problem.fix.keys), "value": problem.fix.value} if problem and problem.fix else None,
        }
    isolation: dict[str, Json] = {kind: problem_with(kind) for kind in ISOLATIONS}
    checked: dict[str, Json] = {"isolation": isolation, "sandbox_does_not_limit": list(SANDBOX_GAPS)}
    return {"file": str(path), "servers": rows, "problem": None, "state": state, **checked}
