"""Where things live on this machine, by the XDG rules. It imports little: every command needs it before all else."""

import os
from collections.abc import Mapping
from pathlib import Path


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


def _folder(variable: str, default: str) -> Path:
    given = os.environ.get(variable)
    root = Path(given) if given and Path(given).is_absolute() else Path.home() / default
    return root / "shortlist"
