"""`shortlist storage`: move what was recorded from files into a shared database."""

import argparse
from contextlib import closing
from pathlib import Path
from typing import Any

from shortlist.cli.arguments import add_command
from shortlist.cli.vault import revealed
from shortlist.config.load import load_settings
from shortlist.errors import InvalidInput, StoreError
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
    migrate.add_argument("--logins", action="store_true", help="copy only the logins, also into a database in use")
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
    with closing(open_storage(arguments.target)) as target:  # says what to install where the driver is missing
        return _copy_logins(folder, target) if arguments.logins else _move(folder, arguments.target)


def _move(folder: Path, address: str) -> int:
    from shortlist.storage.postgres.moving import move  # noqa: PLC0415 (an optional dependency)

    logins = _logins(folder)
    for what, count in move(folder, address, logins or {}):
        print(f"{what}: {count:,}", flush=True)
    if logins is None:
        print(
            "logins: left in the folder. To share them, set SHORTLIST_SECRET_KEY and run this command again "
            "with --logins."
        )
    return 0


def _copy_logins(folder: Path, target: Storage) -> int:
    """Copy the logins that the database does not have; those in it may be newer."""
    logins = _logins(folder)
    if logins is None or target.shared is None:
        raise InvalidInput(
            "Gateways share logins only where all of them have the same key. Set SHORTLIST_SECRET_KEY to 32 random "
            "bytes in base64, as in: openssl rand -base64 32"
        )
    known = target.shared.grants.names()
    missing = [name for name in logins if name not in known]
    for name in missing:
        target.shared.grants.put(name, logins[name])
    print(f"logins: {len(missing):,}")
    return 0


def _logins(folder: Path) -> dict[str, bytes] | None:
    from shortlist.cli.grants import sealed_logins  # noqa: PLC0415 - other commands do not need the cipher

    try:
        return sealed_logins(folder)
    except StoreError as error:
        raise StoreError(f"Nothing was copied. {error}") from None
