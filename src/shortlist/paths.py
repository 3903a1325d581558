"""Where things live on this machine, by the XDG rules. It imports little: every command needs it before all else."""

import os
from collections.abc import Mapping
from pathlib import Path

READING = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
"""Flags to open our own files with: no link is followed, perhaps to a device without end, and no pipe waited for."""


def cache_folder() -> Path:
    """Return the folder for what can be computed again, such as vectors."""
    return _folder("XDG_CACHE_HOME", ".cache")


def config_folder() -> Path:
    """Return the folder for configuration."""
    return _folder("XDG_CONFIG_HOME", ".config")


def data_folder() -> Path:
    """Return the folder for what the gateway stores: events, saved catalogs, logs."""
    return _folder("XDG_DATA_HOME", ".local/share")


def user_config_path(environment: Mapping[str, str] = os.environ) -> Path:
    """Return the path of the user's own configuration."""
    return Path(environment.get("XDG_CONFIG_HOME") or Path.home() / ".config") / "shortlist" / "config.json"


def find_config(explicit: str | None, environment: Mapping[str, str] = os.environ) -> Path | None:
    """Return the file to read: the one asked for, else the user's own if there is one."""
    if explicit is not None:
        return Path(explicit).expanduser()
    own = user_config_path(environment)
    return own if own.is_file() else None


def private_folder(folder: Path) -> Path:
    """Return a folder that only its owner can enter; it and the folders above it are made where they are missing."""
    if not folder.exists():
        private_folder(folder.parent)
        folder.mkdir(mode=0o700, exist_ok=True)
    return folder


def private_opener(path: str, flags: int) -> int:
    """Open a file that only its owner can read, and no link: `open(path, "ab", opener=private_opener)`."""
    descriptor = os.open(path, flags | getattr(os, "O_NOFOLLOW", 0), 0o600)
    if hasattr(os, "fchmod"):
        os.fchmod(descriptor, 0o600)  # earlier releases made files that others could read
    return descriptor


def _folder(variable: str, default: str) -> Path:
    given = os.environ.get(variable)
    root = Path(given) if given and Path(given).is_absolute() else Path.home() / default
    return root / "shortlist"
