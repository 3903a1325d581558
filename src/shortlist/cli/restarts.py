"""Requests to restart a server, from a command to every gateway of this user: a file that gateways watch."""

import json
import time
from pathlib import Path

from shortlist.cli.words import stamp
from shortlist.models import Json
from shortlist.paths import data_folder


class Restarts:
    """The requests that came since this process started."""

    def __init__(self) -> None:
        self._seen = stamp(_path())
        self._known = _requests()

    def asked(self) -> list[str]:
        """Return the servers that are to be restarted now, each request once."""
        now = stamp(_path())
        if now == self._seen:
            return []
        self._seen = now
        before, self._known = self._known, _requests()
        return [name for name, at in self._known.items() if at != before.get(name)]  # the clock may have been set back


def request_restart(server: str) -> None:
    from shortlist.config.clients.texts import read_bytes, replace_file  # noqa: PLC0415 - no part of a start

    before = read_bytes(_path())
    replace_file(_path(), json.dumps({**_requests(), server: time.time()}).encode(), expected=before)


def _requests() -> dict[str, Json]:
    try:
        asked = json.loads(_path().read_bytes())
    except (OSError, ValueError):
        return {}
    return asked if isinstance(asked, dict) else {}


def _path() -> Path:
    return data_folder() / "restarts.json"
