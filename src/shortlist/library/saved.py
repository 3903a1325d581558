"""Indexes kept between starts, by the content of their catalog: building one takes longer than reading it."""

import shutil
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
    """A folder with an index for each catalog seen lately.

    Kept per version of the package: another one may read words differently.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def open(self, catalog: Catalog) -> Index:
        """Read the index of a catalog, or build it."""
        place = self._place(catalog)
        if len(catalog) < SAVED_FROM or not place.exists():
            return Index.build(catalog)
        try:
            index = load_index(place)
        except IndexFormatError:
            return Index.build(catalog)
        place.touch()
        return index if index.catalog.fingerprint == catalog.fingerprint else Index.build(catalog)

    def keep(self, index: Index) -> None:
        """Save an index, and forget the oldest where there are many; a full disk is no reason to fail."""
        if len(index) < SAVED_FROM:
            return
        try:
            save_index(index, self._place(index.catalog))
            self._forget()
        except OSError:
            return

    def _place(self, catalog: Catalog) -> Path:
        return self._folder / f"{_version()}-{catalog.fingerprint}"

    def _forget(self) -> None:
        places = sorted(self._folder.glob("[!.]*"), key=lambda place: place.stat().st_mtime)
        for place in places[:-KEPT]:
            shutil.rmtree(place, ignore_errors=True)


def _version() -> str:
    try:
        return version("shortlist-mcp")
    except PackageNotFoundError:
        return "source"
