"""Edits of configuration files as text: one entry changes, and comments, order and line endings stay.

Every edit is checked by reading the result again: where it would change anything else, the file is left alone.
"""

import copy
import json
import os
import tempfile
import tomllib
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal, TypeAlias

import tomlkit
import yaml
from tomlkit.exceptions import TOMLKitError

from shortlist.config import jsonc
from shortlist.config.documents import strip_comments
from shortlist.errors import InvalidInput
from shortlist.paths import private_folder

FileFormat: TypeAlias = Literal["json", "toml", "yaml"]
Keys: TypeAlias = Sequence[str]

PRIVATE = 0o600
_FORMATS: dict[str, FileFormat] = {".toml": "toml", ".yaml": "yaml", ".yml": "yaml"}
_MARK = "\ufeff"


class NotEditable(InvalidInput):
    """A file that cannot be changed without harm; the message says why, and nothing was written."""


def format_of(path: Path) -> FileFormat:
    return _FORMATS.get(path.suffix, "json")


def tree_of(text: str, form: FileFormat) -> dict[str, Any]:
    """Read a text; raises ValueError where it is not of that form."""
    if not text.strip():
        return {}
    if form == "toml":
        tree: Any = tomllib.loads(text)
    elif form == "yaml":
        try:
            tree = yaml.safe_load(text)
        except yaml.YAMLError as error:
            raise ValueError(str(error).replace("\n", " ")) from None
    else:
        tree = json.loads(strip_comments(text.removeprefix(_MARK)))
    if tree is None:
        return {}
    if not isinstance(tree, dict):
        raise ValueError("the file does not hold an object")
    return tree


def put(text: str, form: FileFormat, keys: Keys, value: Any) -> str:
    """Set one entry; objects on the way there are made where they are missing."""
    expected = tree_of(text, form)
    inner = expected
    for key in keys[:-1]:
        if not isinstance(inner.setdefault(key, {}) or {}, dict):
            raise NotEditable(f"{key!r} is not an object there; correct it first.")
        inner[key] = inner[key] or {}
        inner = inner[key]
    inner[keys[-1]] = value
    edit = {"json": _put_json, "toml": _put_toml, "yaml": _put_yaml}[form]
    return _checked(_with_newlines(text, lambda plain: edit(plain, keys, value)), form, expected)


def remove(text: str, form: FileFormat, keys: Keys) -> str:
    """Remove one entry; a text without it is returned unchanged."""
    expected = tree_of(text, form)
    inner: Any = expected
    for key in keys[:-1]:
        inner = inner.get(key) if isinstance(inner, dict) else None
    if not isinstance(inner, dict) or keys[-1] not in inner:
        return text
    del inner[keys[-1]]
    edit = {"json": _remove_json, "toml": _remove_toml, "yaml": _remove_yaml}[form]
    return _checked(_with_newlines(text, lambda plain: edit(plain, keys)), form, expected)


def read_bytes(path: Path) -> bytes | None:
    """Read a file that may not be there."""
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise NotEditable(f"{path} cannot be used: {error.strerror}. Check the path and its permissions.") from None


def decoded(raw: bytes | None, path: Path) -> str:
    try:
        return (raw or b"").decode("utf-8")
    except UnicodeDecodeError as error:
        raise NotEditable(f"{path}: byte {error.start} is not UTF-8. Save the file as UTF-8 first.") from None


def replace_file(path: Path, new: bytes, *, expected: bytes | None, private: bool = False) -> None:
    """Replace a file in one step, if it still is what was read; whatever fails, the old file stays.

    A new file, and one that is `private`, can be read by its owner alone.
    """
    target = path.resolve()  # a link stays a link
    if read_bytes(target) != expected:
        raise NotEditable(f"{path} was changed by another program meanwhile; nothing was written. Try again.")
    temporary = None
    try:
        private_folder(target.parent)  # whoever may write to it can replace what a client starts
        mode = target.stat().st_mode & 0o777 if expected is not None and not private else PRIVATE
        if expected is not None and not os.access(target, os.W_OK):
            raise PermissionError(0, "it is read-only")
        descriptor, temporary = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)
        with os.fdopen(descriptor, "wb") as file:
            file.write(new)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, mode)
        os.replace(temporary, target)
    except OSError as error:
        if temporary is not None:
            with suppress(OSError):
                os.unlink(temporary)
        raise NotEditable(f"{path} cannot be written: {error.strerror}. The file is as it was.") from None


def _checked(text: str, form: FileFormat, expected: dict[str, Any]) -> str:
    try:
        right = _filled(tree_of(text, form)) == _filled(expected)
    except ValueError:
        right = False
    if not right:
        raise NotEditable("The file is written in a way that cannot be edited in place; change it by hand.")
    return text


def _filled(tree: Any) -> Any:
    """Drop empty objects: TOML and YAML have no good way to write them."""
    if not isinstance(tree, dict):
        return tree
    inner = {key: _filled(value) for key, value in tree.items()}
    return {key: value for key, value in inner.items() if value not in ({}, None)}


def _with_newlines(text: str, edit: Any) -> str:
    """Edit with plain line ends, and write them as the file has them."""
    if "\r\n" not in text or "\n" in text.replace("\r\n", ""):
        found: str = edit(text)
        return found
    return str(edit(text.replace("\r\n", "\n"))).replace("\n", "\r\n")


def _put_json(text: str, keys: Keys, value: Any) -> str:
    mark = _MARK if text.startswith(_MARK) else ""
    try:
        return mark + jsonc.put(text.removeprefix(_MARK), keys, value)
    except jsonc.NotJson:
        raise NotEditable("The file is not valid JSON; correct it first.") from None


def _remove_json(text: str, keys: Keys) -> str:
    mark = _MARK if text.startswith(_MARK) else ""
    return mark + jsonc.remove(text.removeprefix(_MARK), keys)


def _put_toml(text: str, keys: Keys, value: Any) -> str:
    try:
        document: Any = tomlkit.parse(text)
        inner = document
        for key in keys[:-1]:
            if key not in inner:
                inner[key] = tomlkit.table(is_super_table=True)
            inner = inner[key]
        inner[keys[-1]] = copy.deepcopy(value)
        return tomlkit.dumps(document)
    except TOMLKitError:
        raise NotEditable("The file is not valid TOML; correct it first.") from None


def _remove_toml(text: str, keys: Keys) -> str:
    document: Any = tomlkit.parse(text)
    inner = document
    for key in keys[:-1]:
        inner = inner[key]
    del inner[keys[-1]]
    return tomlkit.dumps(document)


def _put_yaml(text: str, keys: Keys, value: Any) -> str:
    """Add an entry as the first one below its parent: where a last one ends is hard to tell from comments."""
    text = _remove_yaml(text, keys)
    *outer, name = keys
    nodes = _yaml_entries(text, outer)
    if nodes is None:
        for key in reversed(outer[1:]):
            value, name = {name: value}, key
        block = _yaml_block({outer[0]: {name: value}} if outer else {name: value}, 0)
        return text + ("" if not text or text.endswith("\n") else "\n") + block
    line, column, filled = nodes
    lines = text.splitlines(keepends=True)
    if not filled:  # `extensions: {}` or `extensions:` with nothing below
        lines[line] = lines[line].partition(":")[0] + ":\n"
    elif not lines[line].endswith("\n"):
        lines[line] += "\n"
    return "".join([*lines[: line + 1], _yaml_block({name: value}, column), *lines[line + 1 :]])


def _remove_yaml(text: str, keys: Keys) -> str:
    node = _yaml_node(text, keys[:-1])
    if not isinstance(node, yaml.MappingNode) or node.flow_style:
        return text
    key = next((key for key, _ in node.value if key.value == keys[-1]), None)
    if key is None:
        return text
    lines = text.splitlines(keepends=True)
    first, column = key.start_mark.line, key.start_mark.column
    last = first + 1
    for number in range(first + 1, len(lines)):
        content = lines[number].strip()
        depth = len(lines[number]) - len(lines[number].lstrip())
        if content and depth <= column and not (content.startswith("- ") and depth == column):
            break
        if content:
            last = number + 1
    return "".join(lines[:first] + lines[last:])


def _yaml_node(text: str, keys: Keys) -> Any:
    node = yaml.compose(text, Loader=yaml.SafeLoader)
    for key in keys:
        pairs = node.value if isinstance(node, yaml.MappingNode) else []
        node = next((value for name, value in pairs if name.value == key), None)
    return node


def _yaml_entries(text: str, keys: Keys) -> tuple[int, int, bool] | None:
    """Return the line that a mapping's key is on, the column of its entries, and whether it has any."""
    parent, node = _yaml_node(text, keys[:-1]), _yaml_node(text, keys)
    if node is None or not keys:
        return None
    name = next(name for name, value in parent.value if name.value == keys[-1])
    if isinstance(node, yaml.MappingNode) and node.value and not node.flow_style:
        return name.start_mark.line, node.value[0][0].start_mark.column, True
    return name.start_mark.line, name.start_mark.column + 2, False


def _yaml_block(value: Any, column: int) -> str:
    written = yaml.safe_dump(value, sort_keys=False, allow_unicode=True, width=1_000)
    return "".join(" " * column + line for line in written.splitlines(keepends=True))
