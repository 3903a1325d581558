"""Saved tool lists as JSON files, one per server; gateways share the folder without locks, and the last write wins."""

import json
import logging
import os
import secrets
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from shortlist.models import Json

logger = logging.getLogger(__name__)


class CatalogFiles:
    """A folder of documents; each is replaced whole, and one that could not be read is never overwritten."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._reported: set[str] = set()

    def load(self, key: str) -> Json:
        """Return the document of a key; None where there is none that can be read."""
        path = self._path(key)
        try:
            return json.loads(path.read_text("utf-8"))
        except FileNotFoundError:
            return None
        except (OSError, ValueError, RecursionError) as error:
            self._report(key, f"the saved tools in {path} cannot be read ({error}); they are listed again")
            return None

    def save(self, key: str, document: Mapping[str, Json]) -> None:
        """Replace the document of a key; a damaged one is kept beside it, and one of a newer format is kept."""
        path = self._path(key)
        written = path.with_name(f"{path.name}.{secrets.token_hex(4)}")
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            if not self._may_replace(key, path, document):
                return
            written.write_text(json.dumps(document), "utf-8")
            os.replace(written, path)
        except OSError as error:  # costs the next start a little time, and nothing else
            self._report(f"save {key}", f"the tools cannot be saved in {path}: {error}")
            with suppress(OSError):
                written.unlink(missing_ok=True)

    def _may_replace(self, key: str, path: Path, document: Mapping[str, Json]) -> bool:
        try:
            known = json.loads(path.read_text("utf-8"))
        except FileNotFoundError:
            return True
        except (ValueError, RecursionError):
            os.replace(path, path.with_suffix(".damaged"))
            return True
        newer = _format(known) > _format(document)
        if newer:
            self._report(f"newer {key}", f"{path} was saved by a newer version of shortlist and is left unchanged")
        return not newer

    def _path(self, key: str) -> Path:
        return self._folder / f"{key}.json"

    def _report(self, about: str, message: str) -> None:
        if about not in self._reported:
            self._reported.add(about)
            logger.warning("%s", message)


def _format(document: Json) -> int:
    number = document.get("format") if isinstance(document, Mapping) else None
    return number if isinstance(number, int) else 0
