"""The benchmark folder as values: tools, queries and where each came from."""

import gzip
import hashlib
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from shortlist.catalog.readers import read_catalog
from shortlist.models import Tool

UNION_SETS = ("mcp_union", "mcp_union_unseen")


@dataclass(frozen=True, slots=True)
class Case:
    """A query with its right tools; `groups` lists each right tool with its equivalents."""

    query: str
    gold: tuple[str, ...]
    groups: tuple[tuple[str, ...], ...]
    source: str
    split: str


@dataclass(frozen=True)
class Folder:
    """One folder of tools and, where there are any, queries."""

    path: Path

    @property
    def name(self) -> str:
        return self.path.name

    @cached_property
    def tools(self) -> tuple[Tool, ...]:
        return tuple(read_catalog(self.path / "tools.jsonl.gz").catalog.tools.values())

    @cached_property
    def cases(self) -> tuple[Case, ...]:
        queries = self.path / "queries.jsonl.gz"
        return tuple(case_of(record, self.name) for record in read_lines(queries)) if queries.exists() else ()

    @cached_property
    def by_id(self) -> Mapping[str, Tool]:
        return {tool.id: tool for tool in self.tools}


def data_folder(given: str | None = None) -> Path:
    """Return the folder of the benchmark data: the argument, the environment, else the git-ignored default."""
    return Path(given or os.environ.get("SHORTLIST_BENCH_DATA") or "benchmarks/data")


def folders(data: Path, part: str) -> tuple[Folder, ...]:
    return tuple(Folder(path.parent) for path in sorted((data / part).glob("*/tools.jsonl.gz")))


def case_of(record: Mapping[str, Any], folder: str) -> Case:
    gold = tuple(record["gold"])
    groups = record.get("gold_groups") or [[identifier] for identifier in gold]
    source = record.get("source", folder) if folder == "labelled" else folder
    return Case(record["query"], gold, tuple(tuple(group) for group in groups), source, record.get("split", ""))


def read_lines(path: Path) -> Iterator[dict[str, Any]]:
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        for line in lines:
            yield json.loads(line)


def write_lines(path: Path, records: Iterator[Mapping[str, Any]]) -> None:
    """Write gzipped JSON lines without a time stamp, so that the same data gives the same bytes."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "wb") as raw, gzip.GzipFile("", "wb", 9, raw, mtime=0) as packed:
        for record in records:
            packed.write(json.dumps(record, ensure_ascii=False, separators=(",", ":")).encode() + b"\n")


def file_hashes(data: Path) -> dict[str, str]:
    """Return the SHA-256 of every file that training or its checks read."""
    return {
        str(path.relative_to(data)): hashlib.sha256(path.read_bytes()).hexdigest()
        for part in ("train", "catalogs", "eval")
        for path in sorted((data / part).glob("*/*.jsonl.gz"))
    }


def chat_messages(turns: Sequence[Sequence[str]]) -> list[dict[str, Any]]:
    """Write turns of the user (`u`) and the assistant (`a`), and calls of tools (`c`), as OpenAI's messages."""
    return [message for number, turn in enumerate(turns) for message in _messages(number, *turn)]


def _messages(number: int, role: str, text: str) -> list[dict[str, Any]]:
    if role != "c":
        return [{"role": "user" if role == "u" else "assistant", "content": text}]
    call = {"id": f"call_{number}", "type": "function", "function": {"name": text, "arguments": "{}"}}
    result = {"role": "tool", "tool_call_id": call["id"], "content": "ok"}
    return [{"role": "assistant", "content": "", "tool_calls": [call]}, result]
