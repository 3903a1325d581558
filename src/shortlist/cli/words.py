"""What this team's words mean: read when a gateway starts, and again when their files change."""

from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from shortlist.text.queries import Expansions

Stamp = tuple[int, int]


class Words:
    """The expansions of files; a missing or broken file raises and changes nothing."""

    def __init__(self, files: Sequence[Path]) -> None:
        self.expansions: Expansions | None = None
        """None while there are no files: the shipped words are read with the first search, not at the start."""
        self._seen: tuple[tuple[Path, Stamp | None], ...] = ()
        self.follow(files)

    def follow(self, files: Sequence[Path]) -> bool:
        """Read the files if their list or one of them has changed, and say whether they were read."""
        now = tuple((file, stamp(file)) for file in files)
        if now == self._seen:
            return False
        self._seen = now  # also if reading fails, so that a mistake is reported once and its correction noticed
        self.expansions = import_module("shortlist.text.queries").read_expansions(*files) if files else None
        return True


def stamp(file: Path) -> Stamp | None:
    """Return what changes when a file is written, or None without a file."""
    try:
        status = file.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size
