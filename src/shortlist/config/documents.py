"""Configuration files as trees: JSON as editors write it (comments, trailing commas), and TOML."""

import json
import re
import tomllib
from pathlib import Path
from typing import Any

from shortlist.config.jsonc import line_of
from shortlist.errors import InvalidConfig

_TOKENS = re.compile(
    r'(?P<string>"(?:[^"\\]|\\.)*")|(?P<comment>//[^\n]*|/\*.*?\*/)|(?P<comma>,)(?=(?:\s|//[^\n]*|/\*.*?\*/)*[}\]])',
    re.DOTALL,
)


def read_document(path: Path) -> dict[str, Any]:
    """Read a file by its suffix; raises InvalidConfig with the place of the mistake in one line."""
    text = read_text(path)
    tree = _toml(text, path) if path.suffix == ".toml" else _json(text, path)
    if not isinstance(tree, dict):
        raise InvalidConfig(f"{path}: line 1: a configuration is an object; begin it with '{{'")
    return tree


def read_text(path: Path) -> str:
    """Read a file as UTF-8; raises InvalidConfig with the reason and a remedy."""
    try:
        return path.read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        raise InvalidConfig(f"{path}: there is no such file; check the path") from None
    except UnicodeDecodeError as error:
        raise InvalidConfig(f"{path}: byte {error.start} is not UTF-8; save the file as UTF-8") from None
    except OSError as error:
        raise InvalidConfig(f"{path}: the file cannot be read ({error.strerror}); check its permissions") from None


def with_line(message: str, source: Path) -> str:
    """Add the line of the key that a message names."""
    problem = message.removeprefix(f"{source}: ")
    place = problem.partition(": ")[0]
    text = read_text(source)
    line = _toml_line(text, place) if source.suffix == ".toml" else line_of(text, place)
    return f"{source}: line {line}: {problem}" if line else message


def _toml_line(text: str, place: str) -> int | None:
    """Return the line of a key such as `mcp_servers.wiki.args[1]`, or of the table or key around it."""
    here: tuple[str, ...] = ()
    best, found = 0, None
    wanted = tuple(re.sub(r"\[\d+\]", "", place).split("."))
    for number, line in enumerate(text.splitlines(), 1):
        table = re.match(r"\s*\[+\s*([^\]]+?)\s*\]", line)
        key = re.match(r"\s*([\w.\"'-]+)\s*=", line)
        if table is None and key is None:
            continue
        parts = tuple(part.strip(" \"'") for part in (table or key)[1].split("."))  # type: ignore[index]
        here, path = (parts, parts) if table else (here, (*here, *parts))
        if path == wanted[: len(path)] and len(path) > best:
            best, found = len(path), number
    return found


def _json(text: str, path: Path) -> Any:
    try:
        return json.loads(strip_comments(text), object_pairs_hook=_without_twins)
    except json.JSONDecodeError as error:
        raise InvalidConfig(
            f"{path}: line {error.lineno}, column {error.colno}: not JSON ({error.msg}); correct it there"
        ) from None
    except RecursionError:
        raise InvalidConfig(f"{path}: it is nested too deeply; a configuration is a few levels deep") from None
    except _Twin as twin:
        raise InvalidConfig(f"{path}: the key {str(twin)!r} appears twice in one object; keep one of them") from None


def _toml(text: str, path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise InvalidConfig(f"{path}: not TOML: {error}; correct it there") from None


def strip_comments(text: str) -> str:
    """Blank out comments and trailing commas; every other character keeps its line and column."""

    def blank(match: re.Match[str]) -> str:
        return match[0] if match["string"] else re.sub(r"[^\n]", " ", match[0])

    return _TOKENS.sub(blank, text)


class _Twin(Exception):
    """A key that an object has twice; JSON would silently keep the last."""


def _without_twins(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise _Twin(key)
        found[key] = value
    return found
