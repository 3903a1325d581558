"""A saved index: arrays as they are in memory, mapped from files, and tools as lines that are read when asked for.

What every start needs is in `index.json` and the arrays. `catalog.json` describes the tools, for a start that does not
know them from elsewhere.
"""

import json
import mmap
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shortlist.catalog.catalog import Catalog
from shortlist.catalog.stored import StoredTools, line_of, server_of
from shortlist.errors import IndexFormatError
from shortlist.index.facets import Facets
from shortlist.index.index import Index
from shortlist.index.lexical import ExactLexicalIndex
from shortlist.index.vectors import ExactVectorIndex
from shortlist.models import ToolId

VERSION = 2
_HEADER, _CATALOG, _TOOLS = "index.json", "catalog.json", "tools.jsonl"


def save_index(index: Index, folder: Path) -> None:
    """Write an index beside the old one and swap them, so that a reader never sees half of it."""
    folder.parent.mkdir(parents=True, exist_ok=True)
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
        header: dict[str, Any] = json.loads((folder / _HEADER).read_bytes())
        version = header["version"]
        if version == VERSION:
            same = known is not None and known.fingerprint == header["fingerprint"]
            return _read(folder, header, known if known is not None and same else _read_catalog(folder, header))
    except (OSError, ValueError, KeyError, TypeError, IndexError, EOFError) as error:
        raise IndexFormatError(
            f"The index in {str(folder)!r} is damaged or missing ({error}); build it again."
        ) from None
    raise IndexFormatError(
        f"The index in {str(folder)!r} has format {version!r}, but this version reads {VERSION}; build it again."
    )


def _write(index: Index, folder: Path) -> None:
    compact = index if index.size == len(index) else index.compacted()
    _write_arrays(folder, "lexical", compact.lexical.state())
    if compact.dense is not None:
        _write_arrays(folder, "dense", compact.dense.state())
    header = {
        "version": VERSION,
        "fingerprint": compact.catalog.fingerprint,
        "model": compact.dense.model_id if compact.dense else None,
        "ids": compact.ids,
        "vocabulary": list(compact.lexical.vocabulary),
        "facets": compact.facets.state(),
        "names": compact.names,
        "shared": {name: sorted(found) for name, found in compact.shared.items() if found},
    }
    described = {
        "hashes": [compact.tool(row).content_hash for row in range(len(compact.ids))],
        "places": _write_tools(compact, folder / _TOOLS),
        "servers": [asdict(server) for server in compact.catalog.servers.values()],
    }
    for name, part in ((_HEADER, header), (_CATALOG, described)):
        (folder / name).write_text(json.dumps(part, ensure_ascii=False), "utf-8")


def _write_tools(index: Index, path: Path) -> list[int]:
    ends, position = [], 0
    with path.open("wb") as file:
        for row in range(len(index.ids)):
            position += file.write(line_of(index.tool(row)) + b"\n")
            ends.append(position)
    return ends


def _read(folder: Path, header: dict[str, Any], catalog: Catalog) -> Index:
    ids: list[ToolId] = header["ids"]
    facets = Facets.restore(header["facets"])
    lexical = ExactLexicalIndex.restore(header["vocabulary"], _Arrays(folder, "lexical"))
    dense = ExactVectorIndex.restore(header["model"], _Arrays(folder, "dense")) if header["model"] else None
    sizes = {len(ids), len(catalog), len(facets.servers), lexical.size, dense.size if dense else len(ids)}
    if len(sizes) > 1:
        raise ValueError("its parts differ in size")
    return Index(
        catalog=catalog,
        ids=ids,
        rows=dict(zip(ids, range(len(ids)), strict=True)),
        facets=facets,
        lexical=lexical,
        dense=dense,
        names=header["names"],
        shared={name: frozenset(header["shared"].get(name, ())) for name in catalog.servers},
        counts={},
    )


def _read_catalog(folder: Path, header: dict[str, Any]) -> Catalog:
    described = json.loads((folder / _CATALOG).read_bytes())
    ids, ends = header["ids"], described["places"]
    if (folder / _TOOLS).stat().st_size != (ends[-1] if ends else 0):
        raise ValueError(f"{_TOOLS} is cut off")
    text = _mapped(folder / _TOOLS)
    starts = [0, *ends][: len(ends)]
    members: dict[str, list[ToolId]] = {}
    for tool_id, server in sorted(zip(ids, header["facets"]["servers"], strict=True)):
        members.setdefault(server, []).append(tool_id)
    return Catalog.stored(
        StoredTools({i: (text, start, end) for i, start, end in zip(ids, starts, ends, strict=True)}),
        [server_of(raw) for raw in described["servers"]],
        dict(zip(ids, described["hashes"], strict=True)),
        {server: tuple(found) for server, found in members.items()},
        [header["fingerprint"]],
    )


class _Arrays(Mapping[str, NDArray[Any]]):
    """The arrays of one part, mapped into memory: what a search does not look at is not read, and nothing is copied.

    They may be written to, which changes this process alone.
    """

    def __init__(self, folder: Path, part: str) -> None:
        self._folder, self._part = folder, part

    def __getitem__(self, name: str) -> NDArray[Any]:
        return np.asarray(np.load(self._folder / f"{self._part}-{name}.npy", mmap_mode="c"))

    def __iter__(self) -> Iterator[str]:
        return (path.stem.removeprefix(f"{self._part}-") for path in self._folder.glob(f"{self._part}-*.npy"))

    def __len__(self) -> int:
        return sum(1 for _ in self)


def _write_arrays(folder: Path, part: str, arrays: Mapping[str, NDArray[Any]]) -> None:
    for name, array in arrays.items():
        np.save(folder / f"{part}-{name}.npy", array)


def _mapped(path: Path) -> memoryview:
    with path.open("rb") as file:
        return memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) if path.stat().st_size else b"")


def _swap(fresh: Path, folder: Path) -> None:
    old = folder.with_name(f".{folder.name}-old-{os.getpid()}")
    if folder.exists():
        folder.rename(old)
    fresh.rename(folder)
    shutil.rmtree(old, ignore_errors=True)
