"""Mapped columns, and programs that truncate or overwrite their files meanwhile."""

import gc
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

from shortlist.index.mapped import MappedFolder

VALUES = np.arange(300_000)
SEARCHES = """
import os, sys
from pathlib import Path
from shortlist.catalog.catalog import Catalog
from shortlist.catalog.readers import tool_from_mcp
from shortlist.index import store
from shortlist.index.index import Index
from shortlist.models import Query
from shortlist.search.searcher import Searcher

def searched(index):
    return [(hit.tool.id, hit.score) for hit in Searcher(index).search(Query(text="thing number 77")).hits]

store.MAPPED_FROM = 0
tools = [tool_from_mcp({"name": f"tool_{n}", "description": f"Does thing number {n}."}, "s") for n in range(100)]
built = Index.build(Catalog.of(tools))
folders = [Path(sys.argv[1]) / name for name in ("truncated", "overwritten")]
for folder in folders:
    store.save_index(built, folder)
indexes = [store.load_index(folder) for folder in folders]
indexes[0].lexical.name_sizes[0] = 7
for path in folders[0].glob("*.npy"):
    os.truncate(path, 0)
for path in folders[1].glob("*.npy"):
    path.write_bytes(b"\\xff" * path.stat().st_size)
assert [searched(index) for index in indexes] == [searched(built)] * 2
assert len(searched(built)) == 5
assert indexes[0].lexical.name_sizes[0] == 7, "what was written stays"
"""
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="leases on files are a feature of Linux")


def grants_leases(folder: Path) -> bool:
    import fcntl

    path = folder / "probe"
    path.touch()
    with path.open("rb") as file:
        try:
            fcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.F_RDLCK)
        except OSError:
            return False
    return True


def watches() -> set[threading.Thread]:
    return {thread for thread in threading.enumerate() if thread.name == "index-leases"}


def test_an_index_that_is_truncated_or_overwritten_while_mapped_answers_as_before(tmp_path: Path) -> None:
    if not grants_leases(tmp_path):
        pytest.skip("this file system grants no leases")
    command = [sys.executable, "-c", SEARCHES, str(tmp_path)]  # a process of its own, since the kernel may end it
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("Let only the gateway write to this folder") == 2


def test_leases_end_with_the_last_array(tmp_path: Path) -> None:
    if not grants_leases(tmp_path):
        pytest.skip("this file system grants no leases")
    np.save(tmp_path / "a.npy", VALUES)
    before = watches()
    with MappedFolder() as folder:
        column = folder.array(tmp_path / "a.npy")
    (watch,) = watches() - before
    part = column[10:20]
    del column, folder
    gc.collect()
    assert part.tolist() == list(range(10, 20))
    del part
    watch.join(60)
    assert not watch.is_alive()


def test_a_file_that_is_open_for_writing_is_mapped_without_a_lease(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", VALUES)
    before = watches()
    with (tmp_path / "a.npy").open("r+b"), MappedFolder() as folder:
        column = folder.array(tmp_path / "a.npy")
    assert watches() <= before
    assert np.array_equal(column, VALUES)


def test_arrays_keep_their_shape_and_order_and_writing_changes_this_process_alone(tmp_path: Path) -> None:
    table = np.asfortranarray(np.arange(12, dtype=np.float32).reshape(3, 4))
    np.save(tmp_path / "a.npy", table)
    with MappedFolder() as folder:
        column = folder.array(tmp_path / "a.npy")
    assert np.array_equal(column, table)
    column[0, 0] = 100
    assert np.array_equal(np.load(tmp_path / "a.npy"), table)
