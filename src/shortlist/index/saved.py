"""Indexes saved between starts: reading one is faster than building it, and what changed since is updated."""

import hashlib
import json
import logging
import os
import secrets
import shutil
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from shortlist.catalog.catalog import Catalog
from shortlist.errors import IndexFormatError
from shortlist.index.index import Index
from shortlist.index.store import load_index, save_index
from shortlist.models import ToolId
from shortlist.paths import cache_folder
from shortlist.version import own_version

logger = logging.getLogger(__name__)

SAVED_FROM = 500
"""Fewer tools are indexed faster than they are read back."""
KEPT = 8
"""Indexes on disk; the one least recently used is removed first."""
ABANDONED_SECONDS = 86_400.0
"""How old an unfinished index is that a killed process must have left."""
_COPIES = "copies.json"
CHANGED_SHARE = 0.1
"""An index is saved again once this share of its tools has changed; up to then a start applies the difference."""


def indexes_folder(choice: bool | str) -> Path:
    """Return where indexes are saved: in the folder that was chosen, or in the user's cache."""
    return Path(choice) if isinstance(choice, str) else cache_folder() / "indexes"


class SavedIndexes:
    """A folder with an index for each catalog and model used lately.

    Indexes are kept apart by version of the package, since another one may read words differently. Several processes
    and machines may share the folder: an index in it is never changed, so each maps the same files, and the tools that
    were added, changed or removed since are kept beside them in memory until enough have gathered for a new index.
    """

    def __init__(self, folder: Path, model_id: str | None) -> None:
        self._folder, self._model_id = folder, model_id
        self.newest: tuple[Path, Catalog] | None = None
        """The index on disk that was opened or saved last, and what it is of."""

    def open(self, catalog: Catalog) -> Index:
        """Read the index of a catalog, or that of an older version of it and update it, or build it."""
        if len(catalog) < SAVED_FROM:
            return Index.build(catalog)
        for place in self._places(catalog):
            try:
                index = load_index(place, catalog)
            except IndexFormatError as error:
                logger.warning("%s", error)
                continue
            if index.catalog is not catalog and _share_changed(index.catalog, catalog) > CHANGED_SHARE:
                continue
            with suppress(OSError):  # replicas may share a folder that only one of them writes
                os.utime(place)
            self.newest = place, index.catalog
            return index if index.catalog is catalog else index.updated(catalog)[0]
        return Index.build(catalog)

    def keep(self, index: Index) -> None:
        """Save an index that differs enough from the saved one; a full disk is not an error."""
        if len(index) < SAVED_FROM:
            return
        if self.newest is not None and _share_changed(self.newest[1], index.catalog) <= CHANGED_SHARE:
            return
        place = self._place(index.catalog)
        try:
            save_index(index, place)
            self.newest = place, index.catalog
            self._forget()
        except OSError:
            return

    def _places(self, catalog: Catalog) -> list[Path]:
        """Return where the index of a catalog may be: its own place, then the one used last."""
        own = self._place(catalog)
        if own.exists():
            return [own]
        return sorted(self._folder.glob(f"{self._prefix()}-*"), key=_used_at)[-1:]

    def _place(self, catalog: Catalog) -> Path:
        return self._folder / f"{self._prefix()}-{catalog.fingerprint}"

    def _prefix(self) -> str:
        model = hashlib.blake2b(str(self._model_id).encode(), digest_size=4).hexdigest()
        return f"{own_version()}-{model}"

    def _forget(self) -> None:
        """Remove what is no longer used: older indexes, and unfinished ones of processes that were killed."""
        older = sorted(self._folder.glob("[!.]*"), key=_used_at)[:-KEPT]
        abandoned = [each for each in self._folder.glob(".*") if _used_at(each) < time.time() - ABANDONED_SECONDS]
        for place in (*older, *abandoned):
            shutil.rmtree(place, ignore_errors=True)


class SavedCopies:
    """Which tools are copies of which, saved with an index: comparing thousands of tools takes seconds."""

    def __init__(self, indexes: SavedIndexes) -> None:
        self._indexes = indexes

    def load(self, order: Sequence[object]) -> tuple[int, dict[ToolId, ToolId]] | None:
        """Return how many rows the opened index was saved with, and the copies that were found in them.

        None where there is no such index, or where its servers had another order.
        """
        opened = self._indexes.newest
        if opened is None:
            return None
        place, catalog = opened
        try:
            saved = json.loads((place / _COPIES).read_text("utf-8"))
            originals = {str(copy): str(original) for copy, original in saved["copies"].items()}
            same = saved["order"] == order and all(i in catalog.tools for i in (*originals, *originals.values()))
        except (OSError, ValueError, TypeError, KeyError, AttributeError):
            return None
        return (len(catalog), originals) if same else None

    def keep(self, catalog: Catalog, order: Sequence[object], originals: Mapping[ToolId, ToolId]) -> None:
        """Save what was found beside the index of the same catalog; a full disk is not an error."""
        newest = self._indexes.newest
        if newest is None or newest[1].fingerprint != catalog.fingerprint or self.load(order) is not None:
            return
        place = newest[0] / _COPIES
        with suppress(OSError):
            written = place.with_suffix(f".{secrets.token_hex(4)}")
            written.write_text(json.dumps({"order": order, "copies": originals}), "utf-8")
            written.replace(place)


def _used_at(place: Path) -> float:
    """Return when an index was last used; zero where another process has just removed it."""
    try:
        return place.stat().st_mtime
    except OSError:
        return 0.0


def _share_changed(older: Catalog, newer: Catalog) -> float:
    diff = older.diff(newer)
    changed = len(diff.added) + len(diff.changed) + len(diff.removed)
    redescribed = sum(older.servers.get(name) != server for name, server in newer.servers.items())
    return max(changed, redescribed) / max(len(older), 1)
