"""`shortlist learned` and `mine`: list, export and clear what searches learned from use, and mine test cases."""

import argparse
import time
from collections.abc import Callable, Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from shortlist.catalog.naming import shown_name
from shortlist.cli.arguments import add_command, add_json, new_file
from shortlist.cli.shown import shown_json
from shortlist.cli.storing import configured_storage
from shortlist.errors import InvalidInput
from shortlist.models import Json
from shortlist.storage.port import LearnedPair
from shortlist.telemetry.exemplars import mined_cases, weight_of
from shortlist.text.tokens import one_line

OK = 0
SHOWN = 20


def register(subparsers: Any) -> None:
    """Add `learned` with its three actions, and `mine`."""
    learned = add_command(subparsers, "learned")
    actions = learned.add_subparsers(metavar="ACTION", required=True)
    shown = _action(actions, "list", _list, "show queries and the tools they led to, the latest first")
    shown.add_argument("--limit", type=int, default=SHOWN, help=f"how many (default: {SHOWN})")
    add_json(shown)
    export = _action(
        actions,
        "export",
        _export,
        "write what was learned as JSON lines, for `eval --exemplars` and `rank --exemplars`",
    )
    export.add_argument("file", type=new_file, metavar="FILE.jsonl", help="the file to write")
    _action(actions, "clear", _clear, "delete what was learned; calls so far are not learned again")
    mine = _action(subparsers, "mine", _mine)
    mine.add_argument("file", type=new_file, metavar="CASES.jsonl", help="the file to write")


def _action(
    actions: Any, name: str, run: Callable[[argparse.Namespace], int], what: str | None = None
) -> argparse.ArgumentParser:
    parser = add_command(actions, name, what)
    parser.add_argument("--caller", help="only queries of this caller")
    parser.add_argument("--tool", help="only queries that led to this tool, by its id")
    parser.set_defaults(run=run)
    return parser


def _list(arguments: argparse.Namespace) -> int:
    pairs, now = _pairs(arguments), time.time()
    shown = pairs[: max(arguments.limit, 0)]
    if arguments.json:
        print(shown_json([_exported(pair, now) for pair in shown], indent=2))
        return OK
    print(f"{len(pairs)} queries led to a call of {len({pair.tool for pair in pairs})} tools.")
    for pair in shown:
        count = f"{pair.successes} ok" + (f", {pair.errors} failed" if pair.errors else "")
        led = f"{one_line(pair.query, 80)!r} → {shown_name(pair.tool)}"
        print(f"  {pair.caller}: {led} ({count}; counts {weight_of(pair, now):.2f})")
    if len(shown) < len(pairs):
        print(f"  … and {len(pairs) - len(shown)} more (--limit)")
    return OK


def _export(arguments: argparse.Namespace) -> int:
    now = time.time()
    return _write(arguments.file, [_exported(pair, now) for pair in _pairs(arguments)], "exemplars")


def _clear(arguments: argparse.Namespace) -> int:
    count = configured_storage().exemplars.clear(caller=arguments.caller, tool=arguments.tool)
    print(f"Cleared {count}. Running gateways apply it within seconds.")
    return OK


def _mine(arguments: argparse.Namespace) -> int:
    done = _write(arguments.file, mined_cases(_pairs(arguments)), "cases")
    print(
        "Review each line: correct `gold`, delete what is wrong, set `reviewed` to true. `eval` refuses it until then."
    )
    return done


def _pairs(arguments: argparse.Namespace) -> list[LearnedPair]:
    """Return what was learned up to now, whether or not a gateway is running."""
    store = configured_storage().exemplars
    store.learn()
    return store.pairs(caller=arguments.caller, tool=arguments.tool)


def _exported(pair: LearnedPair, now: float) -> dict[str, Json]:
    return {**asdict(pair), "weight": round(weight_of(pair, now), 4)}


def _write(path: Path, lines: Iterable[dict[str, Json]], what: str) -> int:
    written = [shown_json(line) + "\n" for line in lines]
    try:
        path.write_text("".join(written), "utf-8")
    except OSError as error:
        raise InvalidInput(f"Cannot write {str(path)!r}: {error.strerror}.") from error
    print(f"{len(written)} {what} written to {path}")
    return OK
