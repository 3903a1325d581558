"""`shortlist audit`: check and export the log of who was allowed or refused what."""

import argparse
import json
from contextlib import closing
from typing import Any

from shortlist.cli.arguments import add_command, add_json
from shortlist.cli.reading import say
from shortlist.cli.shown import shown_json
from shortlist.cli.storing import configured_storage

OK, FAILED = 0, 1


def register(subparsers: Any) -> None:
    """Add `audit` with its actions."""
    actions = add_command(subparsers, "audit").add_subparsers(metavar="ACTION", required=True)
    verify = add_command(actions, "verify", "check that no record was changed, removed or inserted")
    add_json(verify)
    verify.set_defaults(run=_verify)
    export = add_command(actions, "export", "print every record as one JSON object per line")
    export.set_defaults(run=_export)
    for parser in (verify, export):
        parser.add_argument("--config", help="a configuration file (default: your own)")


def _verify(arguments: argparse.Namespace) -> int:
    with closing(configured_storage(arguments.config)) as storage:
        checks = storage.audit.checks()
    if arguments.json:
        rows = [
            {"file": check.name, "records": check.records, "problem": check.problem, "closed": check.closed}
            for check in checks
        ]
        print(json.dumps(rows, indent=2))
    else:
        for check in checks:
            state = check.problem or ("complete" if check.closed else "not closed: its gateway runs, or was killed")
            print(f"{check.name}  {check.records} records  {state}")
        if not checks:
            say('there is no audit log; `"audit": {"enabled": true}` in the configuration starts one')
    return FAILED if any(check.problem for check in checks) else OK


def _export(arguments: argparse.Namespace) -> int:
    with closing(configured_storage(arguments.config)) as storage:
        for record in storage.audit.records():
            print(shown_json(record))
    return OK
