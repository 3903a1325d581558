"""`shortlist stats` and `shortlist events`: what was recorded about use."""

import argparse
import json
import sys
import time
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any, TextIO

from shortlist.catalog.naming import shown_name
from shortlist.cli.arguments import add_command, add_json
from shortlist.cli.shown import shown_json
from shortlist.cli.storing import configured_storage
from shortlist.errors import InvalidInput
from shortlist.storage.port import EventQuery, EventStore, StoredEvent
from shortlist.telemetry.events import EVENTS, Called
from shortlist.telemetry.figures import parse_since, stats, stats_text
from shortlist.text.tokens import one_line

OK = 0
FOLLOW_SECONDS = 0.5
LATEST = 20
"""Events shown by default."""


def register(subparsers: Any) -> None:
    """Add `stats` and `events`."""
    figures = add_command(subparsers, "stats")
    figures.add_argument("--since", help="a duration such as 24h or 7d, or a date (default: everything recorded)")
    figures.add_argument("--export", metavar="FILE", help="write the events to a JSON Lines file")
    add_json(figures)
    figures.set_defaults(run=_stats)
    events = add_command(subparsers, "events")
    events.add_argument("--since", help=f"a duration such as 24h or 7d, or a date (default: the last {LATEST})")
    kinds = sorted(event.kind for event in EVENTS)
    events.add_argument("--kind", action="append", default=[], choices=kinds, help="show only this kind (repeatable)")
    events.add_argument("--misses", action="store_true", help="show only retrieval misses")
    events.add_argument("--follow", action="store_true", help="keep printing new events until interrupted")
    events.add_argument("--json", action="store_true", help="print one JSON object per line")
    events.set_defaults(run=_events)


def _stats(arguments: argparse.Namespace) -> int:
    since = parse_since(arguments.since) if arguments.since else None
    storage = configured_storage()
    if arguments.export:
        _export(storage.events, Path(arguments.export), since)
    found = stats(storage.tallies, since)
    print(json.dumps(found.json(), indent=2) if arguments.json else stats_text(found))
    return OK


def _export(store: EventStore, path: Path, since: float | None) -> None:
    count = 0
    try:
        with path.open("w", encoding="utf-8") as file:
            for event in store.events(EventQuery(since=since)):
                _write(event, file)
                count += 1
    except OSError as error:
        raise InvalidInput(f"Cannot write {str(path)!r}: {error.strerror}.") from None
    print(f"shortlist: {count:,} events written to {path}", file=sys.stderr)


def _events(arguments: argparse.Namespace) -> int:
    store, last = configured_storage().events, 0
    for event in _first(store, arguments):
        _show(event, arguments)
        last = event.id
    while arguments.follow:
        sys.stdout.flush()
        time.sleep(FOLLOW_SECONDS)
        for event in store.events(_query(arguments, after=last)):
            _show(event, arguments)
            last = event.id
    return OK


def _first(store: EventStore, arguments: argparse.Namespace) -> list[StoredEvent] | Iterator[StoredEvent]:
    if arguments.since:
        return store.events(_query(arguments, since=parse_since(arguments.since)))
    return list(store.events(_query(arguments, latest=True, limit=LATEST)))[::-1]


def _query(arguments: argparse.Namespace, **more: Any) -> EventQuery:
    return EventQuery(kinds=tuple(arguments.kind), missed=arguments.misses, **more)


def _show(event: StoredEvent, arguments: argparse.Namespace) -> None:
    if arguments.json:
        _write(event, sys.stdout)
    else:
        print(_line(event))


def _write(event: StoredEvent, file: TextIO) -> None:
    file.write(shown_json(event.json()) + "\n")


def _line(event: StoredEvent) -> str:
    at = datetime.fromtimestamp(event.at / 1000).astimezone().strftime("%Y-%m-%d %H:%M:%S")
    facts = {
        "": event.outcome,
        "rank": event.rank,
        "miss": event.miss,
        "ms": None if event.milliseconds is None else f"{event.milliseconds:.1f}",
        "tokens": event.tokens,
    }
    details = " ".join(f"{name} {value}".strip() for name, value in facts.items() if value is not None)
    subject = shown_name(event.subject or "") if event.kind == Called.kind else event.subject or ""
    who, about = (event.workspace or "")[:8], one_line(subject, 60)
    return f"{at}  {who:<8}  {event.kind:<10} {about}  {details}".rstrip()
