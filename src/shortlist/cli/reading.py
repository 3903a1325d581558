"""What all commands share: messages, the settings, and the folders of logs. It imports nothing that talks MCP."""

import logging
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from shortlist.cli.vault import revealed
from shortlist.config.settings import EMPTY, Settings
from shortlist.observability.logs import NOTICES, configure_logs
from shortlist.paths import data_folder, find_config

notices = logging.getLogger(NOTICES)


def say(line: str) -> None:
    """Print a message to stderr; stdout belongs to the protocol."""
    notices.info(line)


def read_settings(explicit: str | None, logs: Mapping[str, Any] = EMPTY, *, reveal: bool = True) -> Settings:
    """Read the configuration asked for, else the user's own, else the bundled demo servers; say which.

    `logs` are the log settings of the command line, which come before those of the configuration. Stored secrets of the
    gateway's own settings are put in their place, unless `reveal` is false.
    """
    from shortlist.config.load import load_settings  # noqa: PLC0415 - a tenth of a gateway's start

    path = find_config(explicit)
    settings = load_settings(path, lenient=True) if path else demo()
    configure_logs(replace(settings.logs, **logs))
    count = len(settings.servers)
    if path:
        say(f"using {path} ({count} server{'' if count == 1 else 's'})")
    else:
        say(f"no configuration: using the {count} bundled demo servers (`shortlist setup` adds yours)")
    return revealed(settings) if reveal else settings


def demo() -> Settings:
    """Return the settings of a user without a configuration: the bundled demo servers."""
    from shortlist.demo.server import demo_settings  # noqa: PLC0415 - takes a second, and few users have no configuration

    return Settings(servers=demo_settings())


def log_folder() -> Path:
    """Return where the stderr of servers is kept."""
    return data_folder() / "logs"
