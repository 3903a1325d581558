"""Indexes saved between starts: reading one is faster than building it, and what changed since is updated."""

import hashlib
import json
import secrets
import shutil
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TypeAlias

from shortlist.catalog.catalog import Catalog
from shortlist.errors import IndexFormatError
from shortlist.index.index import Index
from shortlist.index.store import load_index, save_index
from shortlist.models import ToolId
from shortlist.version import own_version

SAVED_FROM = 500
"""Fewer tools are indexed faster than they are read back."""
KEPT = 8
"""Indexes on disk; the one least recently used is removed first."""
CHANGED_SHARE = 0.1
"""An index is saved again once this share of its tools has changed; up to then a start applies the difference."""


class SavedIndexes:
    """A folder with an index for each catalog and model used lately.

    Indexes are kept apart by version of the package, since another one may read words differently.
    """

    def __init__(self, folder: Path, model_id: str | None) -> None:
        self._folder, self._model_id = folder, model_id
        self._saved: Catalog | None = None
        """What the newest index on disk is of."""

    def open(self, catalog: Catalog) -> Index:
        """Read the index of a catalog, or that of an older version of it and update it, or build it."""
        if len(catalog) < SAVED_FROM:
            return Index.build(catalog)
        for place in self._places(catalog):
            try:
                index = load_index(place, catalog)
            except IndexFormatError:
                continue
            if index.catalog is not catalog and _share_changed(index.catalog, catalog) > CHANGED_SHARE:
                continue
            place.touch()
            self._saved = index.catalog
            return index if index.catalog is catalog else index.updated(catalog)[0]
        return Index.build(catalog)

    def keep(self, index: Index) -> None:
        """Save an index that differs enough from the saved one; a full disk is not an error."""
        if len(index) < SAVED_FROM:
            return
        if self._saved is not None and _share_changed(self._saved, index.catalog) <= CHANGED_SHARE:
            return
        try:
            save_index(index, self._place(index.catalog))
            self._saved = index.catalog
            self._forget()
        except OSError:
            return

    def _places(self, catalog: Catalog) -> list[Path]:
        """Return where the index of a catalog may be: its own place, then the one used last."""
        own = self._place(catalog)
        if own.exists():
            return [own]
        others = sorted(self._folder.glob(f"{self._prefix()}-*"), key=lambda place: place.stat().st_mtime)
        return others[-1:]

    def _place(self, catalog: Catalog) -> Path:
        return self._folder / f"{self._prefix()}-{catalog.fingerprint}"

    def _prefix(self) -> str:
        model = hashlib.blake2b(str(self._model_id).encode(), digest_size=4).hexdigest()
        return f"{own_version()}-{model}"

    def _forget(self) -> None:
        places = sorted(self._folder.glob("[!.]*"), key=lambda place: place.stat().st_mtime)
        for place in places[:-KEPT]:
            shutil.rmtree(place, ignore_errors=True)


FoundCopy: TypeAlias = tuple[ToolId, ToolId, list[str]]
"""A copy, its original, and the words that set the name of the copy's server apart."""


class SavedCopies:
    """Which tools were found to be copies of which: comparing all tools takes seconds where there are thousands."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def load(self, catalog: Catalog, order: Sequence[object]) -> list[FoundCopy] | None:
        """Return what was found in the same catalog with servers in the same order; None where nothing was saved."""
        try:
            saved = json.loads(self._place(catalog, order).read_text("utf-8"))
            found = [(copy, original, [str(word) for word in words]) for copy, original, words in saved]
        except (OSError, ValueError, TypeError):
            return None
        known = all(copy in catalog.tools and original in catalog.tools for copy, original, _ in found)
        return found if known else None

    def keep(self, catalog: Catalog, order: Sequence[object], copies: Sequence[FoundCopy]) -> None:
        """Save what was found; a full disk is not an error."""
        if len(catalog) < SAVED_FROM:
            return
        with suppress(OSError):
            self._folder.mkdir(parents=True, exist_ok=True)
            place = self._place(catalog, order)
            written = place.with_suffix(f".{secrets.token_hex(4)}")
            written.write_text(json.dumps(copies), "utf-8")
            written.replace(place)
            for old in sorted(self._folder.glob("*.json"), key=lambda path: path.stat().st_mtime)[:-KEPT]:
                old.unlink(missing_ok=True)

    def _place(self, catalog: Catalog, order: Sequence[object]) -> Path:
        said = json.dumps([own_version(), catalog.fingerprint, *order]).encode()
        return self._folder / f"{hashlib.blake2b(said, digest_size=16).hexdigest()}.json"


def _share_changed(older: Catalog, newer: Catalog) -> float:
    diff = older.diff(newer)
    changed = len(diff.added) + len(diff.changed) + len(diff.removed)
    redescribed = sum(older.servers.get(name) != server for name, server in newer.servers.items())
    return max(changed, redescribed) / max(len(older), 1)
