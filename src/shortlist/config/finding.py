"""Finds the configuration file. This module imports little, since every command needs it before anything else."""

import os
from collections.abc import Mapping
from pathlib import Path


def user_config_path(environment: Mapping[str, str] = os.environ) -> Path:
    """Return the path of the user's own configuration."""
    return Path(environment.get("XDG_CONFIG_HOME") or Path.home() / ".config") / "shortlist" / "config.json"


def find_config(explicit: str | None, environment: Mapping[str, str] = os.environ) -> Path | None:
    """Return the file to read: the one asked for, else the user's own if there is one."""
    if explicit is not None:
        return Path(explicit).expanduser()
    own = user_config_path(environment)
    return own if own.is_file() else None
