"""Where things live on this machine, by the XDG rules."""

import os
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


def _folder(variable: str, default: str) -> Path:
    given = os.environ.get(variable)
    root = Path(given) if given and Path(given).is_absolute() else Path.home() / default
    return root / "shortlist"
