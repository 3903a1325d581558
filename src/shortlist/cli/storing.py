"""`shortlist storage`: move what was recorded from files into a shared database."""

import argparse
from contextlib import closing
from pathlib import Path
from typing import Any

from shortlist.cli.arguments import add_command
from shortlist.cli.vault import revealed
from shortlist.config.load import load_settings
from shortlist.errors import InvalidInput
from shortlist.paths import data_folder, find_config
from shortlist.storage.opening import open_storage
from shortlist.storage.port import Storage


def configured_storage(explicit: str | None = None) -> Storage:
    """Return the storage that the configuration names, for commands that start nothing."""
    path = find_config(explicit)
    return open_storage(revealed(load_settings(path)).storage if path else "")


def register(subparsers: Any) -> None:
    """Add the command."""
    actions = add_command(subparsers, "storage").add_subparsers(dest="action", required=True, metavar="ACTION")
    migrate = add_command(actions, "migrate", "copy everything from a data folder into an empty PostgreSQL database")
    migrate.add_argument("source", metavar="FOLDER", help="the data folder, or its events.sqlite; '-' for your own")
    migrate.add_argument("target", metavar="ADDRESS", help="postgresql://USER:PASSWORD@HOST/DATABASE")
    migrate.set_defaults(run=_migrate)


def _migrate(arguments: argparse.Namespace) -> int:
    source = data_folder() if arguments.source == "-" else Path(arguments.source).expanduser()
    folder = source.parent if source.is_file() else source
    if not folder.is_dir():
        raise InvalidInput(f"{str(folder)!r} is not a folder. Name the data folder that the gateway used, or '-'.")
    if not arguments.target.startswith(("postgresql://", "postgres://")):
        raise InvalidInput(
            "The second argument is not the address of a database: write postgresql://USER@HOST/DATABASE."
        )
    target = open_storage(arguments.target)  # says what to install where the driver is missing
    from shortlist.cli.grants import move_logins  # noqa: PLC0415 - other commands do not need the cipher
    from shortlist.storage.postgres.moving import move  # noqa: PLC0415 (an optional dependency)

    for what, count in move(folder, arguments.target):
        print(f"{what}: {count:,}", flush=True)
    with closing(target):
        logins = move_logins(folder, target)
    left = "left in the folder; set SHORTLIST_SECRET_KEY to share them"
    print(f"logins: {left if logins is None else format(logins, ',')}")
    return 0
