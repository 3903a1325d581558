"""A saved index: arrays as they are in memory, tools as lines on disk that are read when asked for."""

import json
import mmap
import os
import shutil
import tempfile
import zipfile
import zlib
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from shortlist.catalog.catalog import Catalog
from shortlist.catalog.stored import StoredTools, Text, line_of, server_of
from shortlist.errors import IndexFormatError
from shortlist.index.facets import Facets
from shortlist.index.index import Index
from shortlist.index.lexical import ExactLexicalIndex
from shortlist.index.vectors import ExactVectorIndex
from shortlist.models import ToolId

VERSION = 1
_HEADER = "index.json"


def save_index(index: Index, folder: Path) -> None:
    """Write an index beside the old one and swap them, so that a reader never sees half of it."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    fresh = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
    try:
        _write(index, fresh)
        _swap(fresh, folder)
    finally:
        shutil.rmtree(fresh, ignore_errors=True)


def load_index(folder: Path) -> Index:
    """Read a saved index; anything unexpected in it is an `IndexFormatError`, and building anew is the remedy."""
    try:
        header: dict[str, Any] = json.loads((folder / _HEADER).read_text("utf-8"))
        version = header["version"]
        if version == VERSION:
            return _read(folder, header)
    except (OSError, ValueError, KeyError, TypeError, IndexError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        raise IndexFormatError(
            f"The index in {str(folder)!r} is damaged or missing ({error}); build it again."
        ) from None
    raise IndexFormatError(
        f"The index in {str(folder)!r} has format {version!r}, but this version reads {VERSION}; build it again."
    )


def _write(index: Index, folder: Path) -> None:
    compact = index if index.size == len(index) else index.compacted()
    places = _write_tools(compact, folder / "tools.jsonl")
    np.savez(folder / "lexical.npz", **compact.lexical.state())  # type: ignore[arg-type]
    if compact.dense is not None:
        np.savez(folder / "dense.npz", **compact.dense.state())  # type: ignore[arg-type]
    header = {
        "version": VERSION,
        "fingerprint": compact.catalog.fingerprint,
        "model": compact.dense.model_id if compact.dense else None,
        "ids": compact.ids,
        "hashes": [compact.tool(row).content_hash for row in range(len(compact.ids))],
        "places": places,
        "servers": [asdict(server) for server in compact.catalog.servers.values()],
        "vocabulary": list(compact.lexical.vocabulary),
        "facets": compact.facets.state(),
        "names": compact.names,
        "shared": {name: sorted(found) for name, found in compact.shared.items() if found},
    }
    (folder / _HEADER).write_text(json.dumps(header, ensure_ascii=False), "utf-8")


def _write_tools(index: Index, path: Path) -> list[int]:
    ends, position = [], 0
    with path.open("wb") as file:
        for row in range(len(index.ids)):
            position += file.write(line_of(index.tool(row)) + b"\n")
            ends.append(position)
    return ends


def _read(folder: Path, header: dict[str, Any]) -> Index:
    ids: list[ToolId] = header["ids"]
    ends: list[int] = header["places"]
    if (folder / "tools.jsonl").stat().st_size != (ends[-1] if ends else 0):
        raise ValueError("tools.jsonl is cut off")
    servers = {raw["name"]: server_of(raw) for raw in header["servers"]}
    text = _mapped(folder / "tools.jsonl")
    starts = [0, *ends][: len(ends)]
    tools = StoredTools({i: (text, start, end) for i, start, end in zip(ids, starts, ends, strict=True)})
    hashes = dict(zip(ids, header["hashes"], strict=True))
    with np.load(folder / "lexical.npz") as arrays:
        lexical = ExactLexicalIndex.restore(header["vocabulary"], arrays)
    dense = None
    if header["model"]:
        with np.load(folder / "dense.npz") as arrays:
            dense = ExactVectorIndex.restore(header["model"], arrays)
    if not len(ids) == lexical.size == (dense.size if dense else len(ids)):
        raise ValueError("its parts differ in size")
    return Index(
        catalog=Catalog.stored(tools, servers, hashes, header["facets"]["servers"]),
        ids=ids,
        rows={tool_id: row for row, tool_id in enumerate(ids)},
        facets=Facets.restore(header["facets"]),
        lexical=lexical,
        dense=dense,
        names=header["names"],
        shared={name: frozenset(header["shared"].get(name, ())) for name in servers},
        counts={},
    )


def _mapped(path: Path) -> Text:
    """Map a file into memory: what is never looked at is never read."""
    with path.open("rb") as file:
        return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) if path.stat().st_size else b""


def _swap(fresh: Path, folder: Path) -> None:
    old = folder.with_name(f".{folder.name}-old-{os.getpid()}")
    if folder.exists():
        folder.rename(old)
    fresh.rename(folder)
    shutil.rmtree(old, ignore_errors=True)
