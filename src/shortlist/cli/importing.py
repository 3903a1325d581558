"""`shortlist import`: shows which servers of other clients it would add, and adds them after a yes."""

import argparse
import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, get_args

from shortlist.cli.arguments import add_command, add_json
from shortlist.cli.asking import confirmed
from shortlist.cli.shown import shown_json
from shortlist.config.clients.importing import Candidate, Plan, apply, plan_import
from shortlist.config.clients.known import ClientName, Place, well_known_files
from shortlist.config.masking import masked, redact_json
from shortlist.errors import InvalidInput
from shortlist.paths import user_config_path
from shortlist.text.tokens import one_line

_ADDRESSES = ("url", "httpUrl", "serverUrl")
_SHOWN = frozenset((*_ADDRESSES, "command", "args", "env", "headers", "type", "transport", "name"))
_MARKS = {"add": "+", "present": "=", "left_out": "!"}


def register(subparsers: Any) -> None:
    """Add `import`."""
    parser = add_command(subparsers, "import")
    parser.add_argument("files", nargs="*", type=Path, metavar="FILE", help="files to read instead of the known ones")
    clients = [name for name in get_args(ClientName) if name != "file"]
    parser.add_argument(
        "--from", action="append", dest="clients", choices=clients, help="only this client (repeatable)"
    )
    parser.add_argument("--to", type=Path, default=None, metavar="FILE", help="the file to add to (default: your own)")
    parser.add_argument("--yes", action="store_true", help="add without asking")
    add_json(parser)
    parser.set_defaults(run=_import)


def _import(options: argparse.Namespace) -> int:
    place = Place()
    target = options.to or user_config_path(place.environment)
    plan = plan_import(_files(options, place), target, place)
    if not options.json:
        for line in _lines(plan):
            print(line)
    written = bool(plan.additions) and (
        options.yes or (not options.json and confirmed(f"Add {len(plan.additions)} to {plan.target}?"))
    )
    if written:
        apply(plan)
    print(shown_json(_summary(plan, written), indent=2) if options.json else _ending(plan, written, options))
    return 1 if options.files and plan.problems else 0


def _files(options: argparse.Namespace, place: Place) -> list[tuple[ClientName, Path]]:
    if options.files:
        missing = next((path for path in options.files if not path.is_file()), None)
        if missing:
            raise InvalidInput(
                f"There is no file {str(missing)!r}. Pass the configuration file of a client, or leave it out."
            )
        return [("file", path) for path in options.files]
    return [found for found in well_known_files(place) if not options.clients or found[0] in options.clients]


def _lines(plan: Plan) -> Iterator[str]:
    """Yield the plan as text, one file at a time, with secrets masked."""
    seen: Path | None = None
    for candidate in plan.candidates:
        if candidate.path != seen:
            seen = candidate.path
            yield f"{candidate.client}  {candidate.path}"
        reason = f"  ({one_line(candidate.reason)})" if candidate.reason else ""
        yield f"  {_MARKS[candidate.verdict]} {one_line(candidate.name)}: {described(candidate)}{reason}"
    yield from (f"! {one_line(problem)}" for problem in plan.problems)


def described(candidate: Candidate) -> str:
    """Return everything that an entry says, on one line and with secrets masked: nothing is added unseen."""
    entry = masked(candidate.entry)
    address = next((entry[key] for key in _ADDRESSES if entry.get(key)), None)
    line = str(address) if address else shlex.join([str(entry.get("command", "?")), *map(str, entry.get("args", ()))])
    rest = {key: value for key, value in entry.items() if key not in _SHOWN and value not in (None, "", [], {})}
    others = (f"{key}={shown_json(redact_json(value))}" for key, value in rest.items())
    return one_line("  ".join((line, *_pairs(entry.get("env")), *_pairs(entry.get("headers")), *others)))


def _pairs(values: object) -> list[str]:
    return [f"{name}={value}" for name, value in values.items()] if isinstance(values, Mapping) else []


def _ending(plan: Plan, written: bool, options: argparse.Namespace) -> str:
    count = len(plan.additions)
    if written:
        config = ["--config", str(options.to)] if options.to else []
        return f"Added {count} to {plan.target}. Start the gateway with: {shlex.join(['shortlist', 'serve', *config])}"
    if count:
        return f"Nothing was written. To add {count} to {plan.target}: {_again(options)} --yes"
    return "Nothing to add." if plan.candidates or plan.problems else "Nothing to add: there are no servers."


def _again(options: argparse.Namespace) -> str:
    """Return the command as it was typed."""
    clients = [word for client in options.clients or () for word in ("--from", client)]
    target = ["--to", str(options.to)] if options.to else []
    return shlex.join(["shortlist", "import", *map(str, options.files), *clients, *target])


def _summary(plan: Plan, written: bool) -> dict[str, Any]:
    return {
        "target": str(plan.target),
        "written": written,
        "servers": [
            {
                "name": candidate.name,
                "client": candidate.client,
                "file": str(candidate.path),
                "verdict": candidate.verdict,
                "reason": candidate.reason,
                "entry": masked(candidate.entry),
            }
            for candidate in plan.candidates
        ],
        "problems": list(plan.problems),
    }
