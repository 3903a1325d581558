"""A saved index: columns as they are in memory, and tools as lines that are read when asked for.

What has an entry for every tool is a column, an array in a file of its own. `index.json` holds the rest: words,
servers, categories and tags. `catalog.json` describes the servers, for a start that does not know them from elsewhere.
"""

import json
import os
import shutil
import tempfile
import threading
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from pydantic_core import from_json

from shortlist.catalog.catalog import Catalog
from shortlist.catalog.stored import StoredTools, line_of, server_of
from shortlist.errors import IndexFormatError
from shortlist.index.columns import ByRow, Grouped, Growing, TextRows, Texts
from shortlist.index.facets import Facets
from shortlist.index.index import Index
from shortlist.index.lexical import ExactLexicalIndex
from shortlist.index.mapped import MappedFolder
from shortlist.index.nearest import ApproximateVectorIndex
from shortlist.models import Server, ToolId
from shortlist.paths import private_folder

VERSION = 4
MAPPED_FROM = 256_000_000
"""Bytes of columns, those of about 200,000 tools, from which on an index is mapped into memory instead of read.

A start does not read a mapped column, and processes share its pages. But not every system protects a process from a
program that truncates a mapped file (`mapped`), so an index that is read in a moment is read.
"""
_Parts: TypeAlias = Callable[[str], Mapping[str, NDArray[Any]]]
HEADER, _CATALOG, _TOOLS = "index.json", "catalog.json", "tools.jsonl"


def save_index(index: Index, folder: Path) -> None:
    """Write an index beside the old one and swap them, so that a reader never sees half of it."""
    private_folder(folder.parent)
    fresh = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
    try:
        _write(index, fresh)
        _swap(fresh, folder)
    finally:
        shutil.rmtree(fresh, ignore_errors=True)


def load_index(folder: Path, known: Catalog | None = None) -> Index:
    """Read a saved index; anything unexpected in it is an `IndexFormatError`, and building anew is the remedy.

    Its tools come from the `known` catalog where that has the same content.
    """
    try:
        header: dict[str, Any] = from_json((folder / HEADER).read_bytes(), cache_strings="none")
        version = header["version"]
        if version == VERSION:
            same = known is not None and known.fingerprint == header["fingerprint"]
            with MappedFolder() as mapped:
                part = partial(_Arrays, folder, mapped.array if _is_large(folder) else np.load)
                return _read(folder, header, part, known if same else None)
    except Exception as error:  # damaged bytes may claim anything, such as arrays that no memory holds
        raise IndexFormatError(
            f"The index in {str(folder)!r} is damaged or missing ({error}); build it again."
        ) from None
    raise IndexFormatError(
        f"The index in {str(folder)!r} has format {version!r}, but this version reads {VERSION}; build it again."
    )


def _write(index: Index, folder: Path) -> None:
    compact = index if index.size == len(index) else index.compacted()
    values, facets = compact.facets.state()
    names = dict(sorted(compact.names.items()))
    parts: dict[str, Mapping[str, NDArray[Any]]] = {
        "lexical": compact.lexical.state(),
        "dense": compact.dense.state() if compact.dense is not None else {},
        "ids": {**Texts.state(compact.ids), **TextRows.state(compact.ids)},
        "names": {**Texts.state(names), **TextRows.state(names)},
        "named": Grouped.state(names),
        "facets": facets,
        "hashes": Texts.state(compact.catalog.hashes[tool_id] for tool_id in compact.ids),
        "places": {"ends": _write_tools(compact, folder / _TOOLS)},
        "members": _members_state(compact),
    }
    for part, arrays in parts.items():
        for name, array in arrays.items():
            np.save(folder / f"{part}-{name}.npy", array)
    header = {
        "version": VERSION,
        "fingerprint": compact.catalog.fingerprint,
        "model": compact.dense.model_id if compact.dense else None,
        "vocabulary": list(compact.lexical.vocabulary),
        "facets": values,
        "shared": {name: sorted(found) for name, found in compact.shared.items() if found},
    }
    described = {"servers": [asdict(server) for server in compact.catalog.servers.values() if _is_described(server)]}
    for name, part_of_it in ((HEADER, header), (_CATALOG, described)):
        (folder / name).write_text(json.dumps(part_of_it, ensure_ascii=False), "utf-8")


def _write_tools(index: Index, path: Path) -> NDArray[np.int64]:
    with path.open("wb") as file:
        lengths = [file.write(line_of(index.tool(row)) + b"\n") for row in range(len(index.ids))]
    return np.cumsum(np.array(lengths, np.int64))


def _members_state(index: Index) -> dict[str, NDArray[Any]]:
    """Return the rows of every server, by the numbers of the servers and the ids of its tools."""
    codes, ids = index.facets.servers.codes(), list(index.ids)
    rows = np.array(sorted(range(len(ids)), key=ids.__getitem__), np.int32)
    ends = np.cumsum(np.bincount(codes, minlength=len(index.facets.servers.values)))
    return {"rows": rows[np.argsort(codes[rows], kind="stable")], "ends": ends}


def _is_described(server: Server) -> bool:
    return server != Server(name=server.name)


def _read(folder: Path, header: dict[str, Any], part: _Parts, known: Catalog | None) -> Index:
    ids, names = Texts(part("ids")), Texts(part("names"))
    rows = TextRows(ids, part("ids"))
    facets = Facets.restore(header["facets"], part("facets"))
    lexical = ExactLexicalIndex.restore(header["vocabulary"], part("lexical"))
    dense = ApproximateVectorIndex.restore(header["model"], part("dense")) if header["model"] else None
    catalog = known or _read_catalog(folder, header, part, rows, facets)
    sizes = {len(ids), len(catalog), len(facets.servers), lexical.size, dense.size if dense else len(ids)}
    if len(sizes) > 1:
        raise ValueError("its parts differ in size")
    return Index(
        catalog=catalog,
        ids=Growing(ids),
        rows=rows,
        facets=facets,
        lexical=lexical,
        dense=dense,
        names=Grouped(TextRows(names, part("names")), part("named")),
        shared={name: frozenset(header["shared"].get(name, ())) for name in catalog.servers},
        counts={},
    )


def _read_catalog(folder: Path, header: dict[str, Any], part: _Parts, rows: TextRows, facets: Facets) -> Catalog:
    described = json.loads((folder / _CATALOG).read_bytes())
    ends, hashes = part("places")["ends"], Texts(part("hashes"))
    if not len(rows) == len(ends) == len(hashes):
        raise ValueError("its parts differ in size")
    lines = _FileLines(folder / _TOOLS, rows, ends)
    return Catalog.stored(
        StoredTools(ByRow(rows, lambda _: lines)),
        [server_of(raw) for raw in described["servers"]],
        ByRow(rows, hashes.__getitem__),
        _members(rows.texts, facets.servers.values, part("members")),
        [header["fingerprint"]],
    )


class _FileLines:
    """The lines of all tools of an index, by row, read from the file one at a time."""

    def __init__(self, path: Path, rows: TextRows, ends: NDArray[np.int64]) -> None:
        self._path, self._rows, self._ends = path, rows, ends
        self._file, self._reading = path.open("rb", buffering=0), threading.Lock()
        weakref.finalize(self, self._file.close)
        if os.fstat(self._file.fileno()).st_size != (ends[-1] if len(ends) else 0):
            raise ValueError(f"{_TOOLS} is cut off")

    def line(self, tool_id: ToolId) -> bytes:
        row = self._rows[tool_id]
        start, end = self._ends.item(row - 1) if row else 0, self._ends.item(row)
        with self._reading:  # not os.pread, which Windows lacks
            self._file.seek(start)
            line = self._file.read(end - start)
        if len(line) < end - start or not line.startswith(b"{"):
            raise IndexFormatError(f"{str(self._path)!r} was changed by another program; restart to build it again.")
        return line


def _members(
    ids: Texts, servers: Sequence[str], arrays: Mapping[str, NDArray[Any]]
) -> Mapping[str, tuple[ToolId, ...]]:
    rows, ends = arrays["rows"], arrays["ends"]
    if len(servers) != len(ends) or len(rows) != (ends[-1] if len(ends) else 0):
        raise ValueError("its parts differ in size")

    def members(number: int) -> tuple[ToolId, ...]:
        start = ends.item(number - 1) if number else 0
        return tuple([ids[row] for row in rows[start : ends.item(number)].tolist()])

    return ByRow({server: number for number, server in enumerate(servers)}, members)


class _Arrays(Mapping[str, NDArray[Any]]):
    """The arrays of one part, mapped or read."""

    def __init__(self, folder: Path, array: Callable[[Path], NDArray[Any]], part: str) -> None:
        self._folder, self._array, self._part = folder, array, part

    def __getitem__(self, name: str) -> NDArray[Any]:
        return self._array(self._path(name))

    def __contains__(self, name: object) -> bool:
        return self._path(name).exists()

    def __iter__(self) -> Iterator[str]:
        return (path.stem.removeprefix(f"{self._part}-") for path in self._folder.glob(f"{self._part}-*.npy"))

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def _path(self, name: object) -> Path:
        return self._folder / f"{self._part}-{name}.npy"


def _is_large(folder: Path) -> bool:
    return sum(path.stat().st_size for path in folder.glob("*.npy")) >= MAPPED_FROM


def _swap(fresh: Path, folder: Path) -> None:
    old = folder.with_name(f".{folder.name}-old-{os.getpid()}")
    if folder.exists():
        folder.rename(old)
    fresh.rename(folder)
    shutil.rmtree(old, ignore_errors=True)
