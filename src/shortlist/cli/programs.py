"""`shortlist programs`: save a program that worked, review it, and offer it as a tool of its own."""

import argparse
import getpass
import json
import re
import time
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from shortlist.access.scope import effects_of
from shortlist.catalog.catalog import Catalog
from shortlist.catalog.naming import wire_name
from shortlist.catalog.saved import SavedCatalog
from shortlist.cli.arguments import add_command, add_json
from shortlist.cli.reading import demo
from shortlist.cli.shown import shown_json
from shortlist.cli.vault import revealed
from shortlist.code.naming import NamedMembers, PythonNames
from shortlist.code.parameters import named_functions, parametrised
from shortlist.config.load import load_settings
from shortlist.config.settings import Settings
from shortlist.errors import InvalidInput
from shortlist.models import PROGRAMS, Json, ToolId
from shortlist.paths import find_config
from shortlist.storage.opening import open_storage
from shortlist.storage.port import EventQuery, Storage, StoredEvent
from shortlist.storage.programs import StoredProgram, Writing
from shortlist.text.tokens import clean_text, one_line

RECENT_RUNS = 200
RECENT_CALLS = 5_000
_NAME = re.compile(r"[a-z][a-z0-9_]{0,39}")


def register(subparsers: Any) -> None:
    """Add `programs` with its actions."""
    actions = add_command(subparsers, "programs").add_subparsers(metavar="ACTION", required=True)
    listed = _action(actions, "list", _list, "list saved programs", named=False)
    add_json(listed)
    saved = _action(actions, "save", _save, "save a program that worked, or one in a file, under a name")
    source = saved.add_mutually_exclusive_group()
    source.add_argument(
        "--run", dest="of_run", metavar="ID", help="the run to save (default: the latest one that succeeded)"
    )
    source.add_argument("--file", type=Path, help="a file with the source")
    saved.add_argument("--description", required=True, help="what it does, in the words that a search should find")
    saved.add_argument(
        "--parameter",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="let callers choose what is the literal VALUE in the source; VALUE stays the default (repeatable)",
    )
    saved.add_argument("--replace", action="store_true", help="replace the program of this name")
    _action(actions, "show", _show, "show the source of a program, its parameters and the tools it uses")
    approved = _action(actions, "approve", _approve, "offer a program as a tool")
    approved.add_argument("--allow-write", action="store_true", help="let it call tools that may write without asking")
    _action(actions, "remove", _remove, "remove a program")


def _action(actions: Any, name: str, run: Any, what: str, *, named: bool = True) -> argparse.ArgumentParser:
    parser = add_command(actions, name, what)
    if named:
        parser.add_argument("name", metavar="NAME", help="the name of the program")
    parser.add_argument("--config", help="a configuration file (default: your own)")
    parser.set_defaults(run=run)
    return parser


def _settings(arguments: argparse.Namespace) -> Settings:
    path = find_config(arguments.config)
    return revealed(load_settings(path)) if path else demo()


def _list(arguments: argparse.Namespace) -> int:
    programs = open_storage(_settings(arguments).storage).programs.load()
    if arguments.json:
        print(shown_json([asdict(program) for program in programs.values()], indent=2))
        return 0
    for program in programs.values():
        state = f"approved by {program.approved_by}" if program.approved_by else "not approved"
        print(f"{program.name}({', '.join(program.parameters)})  {state}  {one_line(program.description, 80)}")
    if not programs:
        print(
            "No program is saved. `shortlist programs save NAME --description TEXT` saves the latest one that worked."
        )
    return 0


def _save(arguments: argparse.Namespace) -> int:
    if not _NAME.fullmatch(arguments.name):
        raise InvalidInput(f"{arguments.name!r} cannot be a name. Use lower-case letters, digits and _, at most 40.")
    settings = _settings(arguments)
    storage = open_storage(settings.storage)
    if arguments.name in storage.programs.load() and not arguments.replace:
        raise InvalidInput(f"There is a program {arguments.name!r} already. Pass --replace, or choose another name.")
    source, called = _source(arguments, storage)
    parameters = dict(_parameter(text) for text in arguments.parameter)
    catalog = SavedCatalog(storage.catalogs, settings.servers).load()
    tools = dict.fromkeys((*_named_tools(source, catalog), *called))
    storage.programs.put(
        StoredProgram(
            name=arguments.name,
            source=parametrised(source, parameters),
            description=clean_text(arguments.description),
            parameters=parameters,
            tools=tuple(tools),
            saved=time.time(),
        )
    )
    print(f"Saved {arguments.name}, which uses {', '.join(tools) or 'no tools'}.")
    print(f"Review it: shortlist programs show {arguments.name}")
    print(f"Offer it:  shortlist programs approve {arguments.name}")
    return 0


def _source(arguments: argparse.Namespace, storage: Storage) -> tuple[str, Sequence[ToolId]]:
    """Return the source of a file, or of a run with the tools that it called."""
    if arguments.file is not None:
        try:
            return arguments.file.read_text("utf-8"), ()
        except (OSError, UnicodeDecodeError) as error:
            raise InvalidInput(f"{str(arguments.file)!r} cannot be read: {error}. Name a text file.") from None
    run = _run(storage, arguments.of_run)
    source, program = run.data.get("source"), run.data.get("program")
    if not isinstance(source, str) or source.startswith("hash:"):
        raise InvalidInput(
            f"The source of run {program} was not recorded: `telemetry.queries` is not keep. Pass it with --file."
        )
    calls = storage.events.events(EventQuery(kinds=("called",), latest=True, limit=RECENT_CALLS))
    made = [str(call.subject) for call in calls if call.data.get("program") == program and call.outcome == "ok"]
    return source, tuple(dict.fromkeys(reversed(made)))


def _run(storage: Storage, wanted: str | None) -> StoredEvent:
    runs = storage.events.events(EventQuery(kinds=("program",), latest=True, limit=RECENT_RUNS))
    worked = [run for run in runs if run.outcome == "ok"]
    found = [run for run in worked if wanted in (None, str(run.id), run.data.get("program"))]
    if found:
        return found[0]
    if wanted is not None:
        known = ", ".join(str(run.data.get("program")) for run in worked[:5]) or "none"
        raise InvalidInput(f"No run {wanted!r} that succeeded. Recent ones: {known}.")
    raise InvalidInput("No program has succeeded yet. Run one with run_code, or pass its source with --file.")


def _parameter(text: str) -> tuple[str, Json]:
    name, equals, value = text.partition("=")
    if not equals:
        raise InvalidInput(f"{text!r} is not NAME=VALUE. Example: --parameter repo=shop")
    try:
        return name.strip(), json.loads(value)
    except ValueError:
        return name.strip(), value


def _named_tools(source: str, catalog: Catalog) -> list[ToolId]:
    """Resolve the functions that a source names to tools; raise InvalidInput for those that nobody offers."""
    names, found = PythonNames(NamedMembers(catalog.members)), []
    for path in named_functions(source):
        tool_id = names.find(path)
        if tool_id is None:
            raise InvalidInput(f"No tool is called tools.{path} in a program. Find its name with search_tools.")
        found.append(tool_id)
    return found


def _known(arguments: argparse.Namespace) -> tuple[Storage, StoredProgram]:
    storage = open_storage(_settings(arguments).storage)
    programs = storage.programs.load()
    if arguments.name not in programs:
        raise InvalidInput(f"No program {arguments.name!r}. Saved: {', '.join(programs) or 'none'}.")
    return storage, programs[arguments.name]


def _show(arguments: argparse.Namespace) -> int:
    _, program = _known(arguments)
    effects = effects_of(_settings(arguments))
    state = f"approved by {program.approved_by}" if program.approved_by else "not approved"
    writing = ", may write without asking" if program.allow == "write" else ""
    print(f"{program.name}: {program.description}\n{state}{writing}\n")
    for name, value in program.parameters.items():
        print(f"parameter {name} = {shown_json(value)}")
    for tool_id in program.tools:
        print(f"uses {tool_id} ({effects.get(tool_id) or 'no effect configured'})")
    print(f"\n{clean_text(program.source)}")
    return 0


def _approve(arguments: argparse.Namespace) -> int:
    storage, program = _known(arguments)
    allow: Writing = "write" if arguments.allow_write else "read"
    storage.programs.put(replace(program, approved_by=getpass.getuser(), allow=allow))
    print(f"Approved {program.name}. Running gateways offer it as {wire_name(PROGRAMS, program.name)} within seconds.")
    return 0


def _remove(arguments: argparse.Namespace) -> int:
    storage, program = _known(arguments)
    storage.programs.remove(program.name)
    print(f"Removed {program.name}.")
    return 0
