"""A pipe without a writer, or a link to a device without end, in place of a file that is ours to read."""

import os
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from shortlist.storage.files import CatalogFiles
from shortlist.storage.private import read_private
from shortlist.telemetry.redaction import hash_key

pytestmark = pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no such files")
SECONDS = 60
"""After which a reader that waits for ever is given up."""


def pipe(path: Path) -> None:
    os.mkfifo(path)


def endless(path: Path) -> None:
    path.symlink_to("/dev/zero")


def load(path: Path) -> None:
    assert not CatalogFiles(path.parent).load(path.stem)


def save(path: Path) -> None:
    CatalogFiles(path.parent).save(path.stem, b'{"format": 1}')


def read(path: Path) -> None:
    with suppress(OSError):
        assert not read_private(path)


def read_key(path: Path) -> None:
    assert len(hash_key(path)) == len(hash_key(path.with_name("new.key")))


@pytest.mark.parametrize("make", [pipe, endless])
@pytest.mark.parametrize("use", [load, save, read, read_key])
def test_what_is_not_a_file_is_neither_waited_for_nor_read_without_end_nor_replaced(
    make: Callable[[Path], None], use: Callable[[Path], None], tmp_path: Path
) -> None:
    path = tmp_path / "odd.json"
    make(path)
    failed: list[BaseException] = []

    def guarded() -> None:
        try:
            use(path)
        except BaseException as error:
            failed.append(error)

    reader = threading.Thread(target=guarded, daemon=True)
    reader.start()
    reader.join(SECONDS)
    assert not reader.is_alive()
    assert failed == []
    assert path.is_fifo() or path.is_symlink()
