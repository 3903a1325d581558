"""Indexes kept between starts, by the content of their catalog: building one takes longer than reading it."""

import hashlib
import shutil
from dataclasses import replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from shortlist.catalog.catalog import Catalog
from shortlist.errors import IndexFormatError
from shortlist.index.index import Index
from shortlist.index.store import load_index, save_index

SAVED_FROM = 500
"""Fewer tools are indexed faster than they are read back."""
KEPT = 8
"""Indexes on disk; the one least recently used goes first."""


class SavedIndexes:
    """A folder with an index for each catalog and model seen lately.

    Kept per version of the package: another one may read words differently.
    """

    def __init__(self, folder: Path, model_id: str | None) -> None:
        self._folder, self._model_id = folder, model_id
        self._read = ""
        """The fingerprint of what was read whole, and so needs no writing."""

    def open(self, catalog: Catalog) -> Index:
        """Read the index of a catalog, or build it."""
        place = self._place(catalog)
        if len(catalog) < SAVED_FROM or not place.exists():
            return Index.build(catalog)
        try:
            index = load_index(place)
        except IndexFormatError:
            return Index.build(catalog)
        saved = index.catalog
        if saved.hashes != catalog.hashes or saved.servers != catalog.servers:
            return Index.build(catalog)
        place.touch()
        self._read = catalog.fingerprint
        return replace(index, catalog=catalog)  # the same tools, in memory already

    def keep(self, index: Index) -> None:
        """Save an index, and forget the oldest where there are many; a full disk is no reason to fail."""
        if len(index) < SAVED_FROM or index.catalog.fingerprint == self._read:
            return
        try:
            save_index(index, self._place(index.catalog))
            self._forget()
        except OSError:
            return

    def _place(self, catalog: Catalog) -> Path:
        model = hashlib.blake2b(str(self._model_id).encode(), digest_size=4).hexdigest()
        return self._folder / f"{_version()}-{model}-{catalog.fingerprint}"

    def _forget(self) -> None:
        places = sorted(self._folder.glob("[!.]*"), key=lambda place: place.stat().st_mtime)
        for place in places[:-KEPT]:
            shutil.rmtree(place, ignore_errors=True)


def _version() -> str:
    try:
        return version("shortlist-mcp")
    except PackageNotFoundError:
        return "source"
