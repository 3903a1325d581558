"""`scan` and `review`: what the scanner makes of definitions, and decisions about those that are held."""

import argparse
import getpass
import gzip
import json
import re
import shlex
import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from shortlist.catalog.catalog import Catalog
from shortlist.catalog.naming import SEPARATOR
from shortlist.cli.arguments import add_command, add_json
from shortlist.cli.asking import confirmed
from shortlist.cli.catalogs import read_tools
from shortlist.cli.pinning import open_scanner
from shortlist.cli.progress import progress_bar, say
from shortlist.cli.shown import shown_json
from shortlist.cli.storing import configured_storage
from shortlist.config.load import load_settings
from shortlist.errors import InvalidInput
from shortlist.paths import find_config
from shortlist.storage.port import PinStore
from shortlist.text.tokens import one_line
from shortlist.trust.deciding import (
    SHOWN_DIGITS,
    decide_effect,
    decide_shown,
    held_as_shown,
    held_named,
    set_hash,
)
from shortlist.trust.definitions import ToolDefinition, surroundings
from shortlist.trust.diff import words_changed
from shortlist.trust.pins import Held
from shortlist.trust.stored import held_of, pins_of
from shortlist.trust.verdicts import ScanVerdict

MARKS = {"same": ("", ""), "added": ("{+", "+}"), "removed": ("[-", "-]")}
"""As in `git diff --word-diff`."""
DECIDED = {"approve": "approved", "reject": "rejected"}
_WITH_HASH = re.compile(rf"(.+)@([0-9a-f]{{{SHOWN_DIGITS},64}})", re.DOTALL)


def register(subparsers: Any) -> None:
    """Add `scan` and `review`."""
    scan = add_command(subparsers, "scan")
    scan.add_argument(
        "source", nargs="?", type=Path, help="JSON lines with id, server, tool and server_instructions, or a catalog"
    )
    scan.add_argument("--configured", action="store_true", help="scan the tools of your configured servers")
    scan.add_argument("--config", help="a configuration file (default: your own)")
    add_json(scan)
    scan.set_defaults(run=_scan)
    review = add_command(subparsers, "review")
    review.add_argument(
        "action",
        nargs="?",
        choices=("list", "show", "approve", "reject", "read-only", "may-write", "export"),
        default="list",
        help="what to do (default: list); read-only lets programs call accepted tools without asking, may-write "
        "takes that back; export prints all decisions as JSON lines",
    )
    review.add_argument(
        "names",
        nargs="*",
        metavar="SERVER[/NAME][@HASH]",
        help="a server, or one definition of it; approve needs the hash of what you saw, or asks on a terminal",
    )
    add_json(review)
    review.set_defaults(run=_review)


def _scan(options: argparse.Namespace) -> int:
    if (options.source is None) == (not options.configured):
        raise InvalidInput("Name a file to scan, or pass --configured to scan the tools of your servers.")
    definitions = list(_configured(options.config) if options.configured else _read(options.source))
    around = surroundings(definitions)
    scanner, counts = open_scanner(), {"clean": 0, "suspicious": 0, "dangerous": 0}
    verdicts = []
    with progress_bar("scanning tools") as progress:
        for definition in definitions:
            verdicts.append(scanner.scan(definition, around[definition.server]))
            progress(len(verdicts), len(definitions))
    for definition, verdict in zip(definitions, verdicts, strict=True):
        counts[verdict.level] += 1
        if options.json:
            line = {"id": definition.id, "verdict": verdict.level, "reasons": [r.shown() for r in verdict.reasons]}
            print(shown_json(line))
        elif verdict.level != "clean":
            _print_verdict(definition.id, verdict)
    say(f"shortlist: {counts['dangerous']} dangerous, {counts['suspicious']} suspicious, {counts['clean']} clean")
    return 1 if counts["dangerous"] else 0


def _print_verdict(name: str, verdict: ScanVerdict) -> None:
    print(f"{verdict.level}: {one_line(name)}")
    for reason in verdict.reasons:
        start, end = reason.span
        print(f"  {reason.family} in {one_line(reason.field, 80)} [{start}:{end}]: {one_line(reason.why)}")


def _configured(config: str | None) -> Iterator[ToolDefinition]:
    path = find_config(config)
    if path is None:
        raise InvalidInput("There is no configuration: run `shortlist import` first, or name one with --config.")
    from shortlist.cli.stack import list_everything  # noqa: PLC0415 - servers and their protocol take a second to import

    catalog, said = list_everything(load_settings(path))
    return _of_catalog(catalog, said)


def _of_catalog(catalog: Catalog, said: Any = None) -> Iterator[ToolDefinition]:
    for tool_id, tool in catalog.tools.items():
        yield ToolDefinition(tool_id, tool.server, tool.mcp(), (said or {}).get(tool.server, ""))


def _read(path: Path) -> Iterator[ToolDefinition]:
    """Read the scanner's own JSON lines, or any catalog."""
    opener: Any = gzip.open if path.suffix == ".gz" else open
    try:
        with opener(path, "rt", encoding="utf-8") as lines:
            first = next((line for line in lines if line.strip()), "")
    except (OSError, UnicodeDecodeError):
        first = ""
    if _is_scan_line(first):
        return _lines(path, opener)
    return _of_catalog(read_tools(path))


def _is_scan_line(line: str) -> bool:
    try:
        raw = json.loads(line)
    except (ValueError, RecursionError):
        return False
    return isinstance(raw, dict) and isinstance(raw.get("tool"), dict)


def _lines(path: Path, opener: Any) -> Iterator[ToolDefinition]:
    with opener(path, "rt", encoding="utf-8") as lines:
        for number, line in enumerate(lines, 1):
            if line.strip():
                yield _definition(line, f"{path} line {number}")


def _definition(line: str, place: str) -> ToolDefinition:
    try:
        raw = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise InvalidInput(f"{place} is not valid JSON ({error}). Write one definition per line.") from None
    if not isinstance(raw, dict) or not isinstance(raw.get("tool"), dict):
        raise InvalidInput(f'{place} has no "tool": write {{"id": …, "server": …, "tool": {{the MCP definition}}}}.')
    identity, server, instructions = (_text(raw.get(key)) for key in ("id", "server", "server_instructions"))
    return ToolDefinition(identity or f"{server}/{raw['tool'].get('name', '')}", server, raw["tool"], instructions)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _review(options: argparse.Namespace) -> int:
    store, action = configured_storage().pins, options.action
    if action == "export":
        return _export(store)
    servers = store.overview()
    wanted = [_Named.of(name, servers) for name in options.names]
    if action == "list":
        return _list(store, {each.server for each in wanted}, options.json)
    if not wanted:
        raise InvalidInput(f"`review {action}` needs a name: SERVER for all of a server, or SERVER/NAME.")
    if action in DECIDED:
        return _decide(store, action, wanted)
    for each in wanted:
        if action == "show":
            _show_all(each, held_named(store, each.server, each.name))
            continue
        names = [each.name] if each.name else []
        for tool in decide_effect(store, each.server, names, action == "read-only", getpass.getuser(), time.time()):
            print(f"{action} {one_line(each.server)}/{one_line(tool)}")
    return 0


class _Named(NamedTuple):
    """What a review is about: a server or one definition of it, and the hash that was shown for it."""

    server: str
    name: str
    digest: str

    @classmethod
    def of(cls, text: str, servers: Iterable[str]) -> "_Named":
        """Split SERVER, SERVER/NAME or SERVER__NAME, each with or without @HASH."""
        match = _WITH_HASH.fullmatch(text)
        text, digest = match.groups() if match else (text, "")
        server = next((each for each in servers if text.startswith(f"{each}{SEPARATOR}")), "")
        if server and "/" not in text:
            return cls(server, text.removeprefix(f"{server}{SEPARATOR}"), digest)
        server, _, rest = text.partition("/")
        return cls(server, rest, digest)

    @property
    def show_command(self) -> str:
        return shlex.join(["shortlist", "review", "show", f"{self.server}/{self.name}" if self.name else self.server])


def _decide(store: PinStore, action: str, wanted: list[_Named]) -> int:
    """Approve or reject what the person saw: nothing is approved by a name alone, since its server may change it."""
    chosen = []
    for each in wanted:
        held = held_named(store, each.server, each.name)
        shown = held_as_shown(held, each.digest) if each.digest else held
        if not shown:
            raise InvalidInput(
                f"{each.name or each.server!r} is not held as you saw it: the server has changed it since. "
                f"Run `{each.show_command}`."
            )
        if action == "approve" and not each.digest and not _asked(each, shown):
            return 1
        chosen.append((each.server, shown))
    for server, shown in chosen:
        decide_shown(store, server, shown, action == "approve", getpass.getuser(), time.time())
        for one in shown:
            print(f"{DECIDED[action]} {one_line(server)}/{one_line(one.entry.name)}")
    return 0


def _asked(named: _Named, held: list[Held]) -> bool:
    """Show definitions on the terminal and ask; without a terminal, raise and say how to name what was seen."""
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise InvalidInput(
            "`review approve` needs the hash of what you saw, since a server can change a definition at any time. "
            f"`{named.show_command}` prints the command to run."
        )
    for each in held:
        _show(named.server, each)
    return confirmed("Approve this definition?" if len(held) == 1 else f"Approve these {len(held)} definitions?")


def _list(store: PinStore, servers: set[str], as_json: bool) -> int:
    count = 0
    for server in store.overview():
        if servers and server not in servers:
            continue
        stored = store.read(server)
        rejected, all_held = pins_of(stored).rejected, held_of(stored)
        together = set_hash(all_held)
        for held in all_held:
            count += 1
            is_rejected = held.entry.hash in rejected
            if as_json:
                reasons = [reason.shown() for reason in held.reasons]
                line = {
                    "server": server,
                    "kind": held.entry.kind,
                    "name": held.entry.name,
                    "hash": held.entry.hash,
                    "server_hash": together,
                    "cause": held.cause,
                    "reasons": reasons,
                    "rejected": is_rejected,
                }
                print(shown_json(line))
            else:
                mark = " (rejected)" if is_rejected and held.cause != "rejected" else ""
                print(f"{_handle(server, held)}{mark}  {one_line(held.why, 200)}")
        if len(all_held) > 1 and not as_json:
            print(f"{_handle_of_all(server, all_held)}  all {len(all_held)} of {one_line(server)}")
    if not count and not as_json:
        print("Nothing is held.")
    return 0


def _handle(server: str, held: Held) -> str:
    """Return what stands for a definition on a command line; a name that cannot be typed is left out."""
    name, digest = held.entry.name, held.entry.hash[:SHOWN_DIGITS]
    shown = f"{server}/{name}" if name and one_line(name) == name else server
    return shlex.quote(f"{one_line(shown)}@{digest}")


def _handle_of_all(server: str, held: Iterable[Held]) -> str:
    return shlex.quote(f"{one_line(server)}@{set_hash(held)[:SHOWN_DIGITS]}")


def _show_all(named: _Named, held: list[Held]) -> None:
    for each in held:
        _show(named.server, each)
        print(f"To approve it: shortlist review approve {_handle(named.server, each)}\n")
    if len(held) > 1 and not named.name:
        print(f"To approve all {len(held)}: shortlist review approve {_handle_of_all(named.server, held)}")


def _show(server: str, held: Held) -> None:
    print(f"{one_line(server)}/{one_line(held.entry.name)} ({held.entry.kind}): {one_line(held.why)}")
    for reason in held.reasons:
        print(f"  {reason.family} in {one_line(reason.field, 80)}: {one_line(reason.why)}")
    colours = sys.stdout.isatty()
    print("  ", end="")
    for change in words_changed(held.before, held.entry):
        before, after = MARKS[change.kind]
        tint = {"added": "\x1b[32m", "removed": "\x1b[31m"}.get(change.kind, "") if colours else ""
        text = change.text.replace("\n", "\n  ")  # indented, so that no text passes for a line of ours
        print(f"{tint}{before}{text}{after}{tint and chr(27) + '[0m'}", end="")
    print("\n")


def _export(store: PinStore) -> int:
    """Print all decisions as JSON lines; they hold hashes and names, and no secrets."""
    for server in store.overview():
        for each in store.read(server).decisions:
            line = {
                "server": server,
                "kind": each.kind,
                "name": each.name,
                "hash": each.hash,
                "approved": each.approved,
            }
            print(shown_json({**line, "by": each.by, "at": each.at}))
    return 0
