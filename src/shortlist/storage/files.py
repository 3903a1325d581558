"""Saved tool lists as JSON files, one per server; gateways share the folder without locks, and the last write wins."""

import logging
import os
import re
from contextlib import suppress
from pathlib import Path

from shortlist.paths import READING, private_folder
from shortlist.storage.private import replace_private

logger = logging.getLogger(__name__)

_FORMAT = re.compile(rb'\{"format": ?(\d{1,9})[,}]')
_ENDING_BYTES = 16
READ_BYTES = 60 * 1024
"""Most lists fit in one read; the buffer of a larger one would be mapped and unmapped for each file."""


class CatalogFiles:
    """A folder of documents; each is replaced whole, and one that could not be read is never overwritten."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._reported: set[str] = set()

    def names(self) -> frozenset[str]:
        """Return the keys of all documents; none where the folder cannot be read."""
        with suppress(OSError):
            return frozenset(name[:-5] for name in os.listdir(self._folder) if name.endswith(".json"))
        return frozenset()

    def load(self, key: str) -> bytes | None:
        """Return the document of a key; None where there is none that can be read."""
        path = f"{self._folder}/{key}.json"  # no Path and no file object: a start reads thousands of these
        try:
            file = os.open(path, READING)
            try:
                parts = [os.read(file, READ_BYTES)]
                while len(parts[-1]) == READ_BYTES:
                    parts.append(os.read(file, READ_BYTES))
            finally:
                os.close(file)
            return b"".join(parts)
        except FileNotFoundError:
            return None
        except OSError as error:
            self._report(key, f"the saved tools in {path} cannot be read ({error}); they are listed again")
            return None

    def save(self, key: str, document: bytes) -> None:
        """Replace the document of a key; a damaged one is kept beside it, and one of a newer format is kept."""
        path = self._folder / f"{key}.json"
        try:
            private_folder(self._folder)
            if self._may_replace(key, path, document):
                replace_private(path, document)
        except OSError as error:  # costs the next start a little time, and nothing else
            self._report(f"save {key}", f"the tools cannot be saved in {path}: {error}")

    def _may_replace(self, key: str, path: Path, document: bytes) -> bool:
        known = _format_of_file(path)
        if known is None:
            os.replace(path, path.with_suffix(".damaged"))
            return True
        newer = known > (declared_format(document) or 0)
        if newer:
            self._report(f"newer {key}", f"{path} was saved by a newer version of shortlist and is left unchanged")
        return not newer

    def _report(self, about: str, message: str) -> None:
        if about not in self._reported:
            self._reported.add(about)
            logger.warning("%s", message)


def _format_of_file(path: Path) -> int | None:
    """Return the format that a file declares: 0 where there is no file, None where it is no whole document."""
    try:
        with os.fdopen(os.open(path, READING), "rb") as file:
            start = file.read(64)
            file.seek(max(0, file.seek(0, os.SEEK_END) - _ENDING_BYTES))
            end = file.read()
    except FileNotFoundError:
        return 0
    return declared_format(start) if end.rstrip().endswith(b"}") else None


def declared_format(document: bytes) -> int | None:
    """Return the format that a document declares first; None where it declares none."""
    found = _FORMAT.match(document[:64])
    return int(found[1]) if found else None
