"""Adds the gateway to a client's configuration, and removes it again without a trace."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from difflib import unified_diff
from hashlib import sha256
from pathlib import Path
from typing import Any

from shortlist.config.clients.importing import Candidate, Plan, apply, is_gateway, plan_import
from shortlist.config.clients.known import OURS, KnownClient, Launch, Place
from shortlist.config.clients.texts import (
    NotEditable,
    decoded,
    format_of,
    put,
    read_bytes,
    remove,
    replace_file,
    tree_of,
)
from shortlist.config.masking import MASK, masked
from shortlist.models import Json

LEAST_SECRET = 4
"""Shorter values are not masked in a diff, because they would match unrelated text."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectPlan:
    """What connecting a client would change: its file, and the servers that move to ours."""

    client: KnownClient
    path: Path
    before: bytes | None = field(repr=False)
    after: str = field(repr=False)
    moved: tuple[Candidate, ...]
    stays: tuple[Candidate, ...]
    """Servers that stay in the client, each with the reason."""
    imports: Plan = field(repr=False)

    @property
    def changes(self) -> bool:
        return self.after.encode() != (self.before or b"")

    def diff(self) -> str:
        """Return the change of the client's file as a unified diff, with secrets masked."""
        return file_diff(self.path, decoded(self.before, self.path), self.after)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Record:
    """What was done to a client's file, so that it can be undone."""

    path: str
    existed: bool
    after: str
    """The hash of the file as it was written."""
    backup: str
    moved: Mapping[str, Json]
    """The client's own entries that were moved, by name."""


def plan_connection(
    client: KnownClient, place: Place, target: Path, launch: Launch, *, keep: bool = False
) -> ConnectPlan:
    """Work out the change; raises NotEditable or InvalidConfig where the client's file cannot be read."""
    path = client.file(place)
    before = read_bytes(path)
    text, form = decoded(before, path), format_of(path)
    tree = _tree(text, path)
    imports = plan_import([] if keep else [(client.name, path)], target, place)
    own = [each for each in imports.candidates if each.keys[:-1] == client.keys]
    moved = tuple(each for each in own if each.verdict != "left_out")
    stays = tuple(each for each in own if each.verdict == "left_out" and not is_gateway(each.entry))
    for each in moved:
        text = remove(text, form, each.keys)
    present = client.read(_entries(tree, client).get(OURS) or {}) or {}
    if not is_gateway(present) or present.get("command") != launch.command:  # options in its arguments are the user's
        text = put(text, form, (*client.keys, OURS), client.write(launch))
    return ConnectPlan(client=client, path=path, before=before, after=text, moved=moved, stays=stays, imports=imports)


def connect(connection: ConnectPlan, records: Path) -> Path | None:
    """Import the servers, keep a backup, and write the client's file; return where the backup is."""
    if connection.imports.additions:
        apply(connection.imports)
    if not connection.changes:
        return None
    path, before, after = connection.path, connection.before, connection.after.encode()
    known = _load(records, connection.client)
    entries = _entries(tree_of(decoded(before, path), format_of(path)), connection.client)
    moved = {each.keys[-1]: entries[each.keys[-1]] for each in connection.moved}
    backup = records / f"{connection.client.name}.backup"
    if known is not None and before is not None and _hash(before) == known.after:
        # Connected again: undoing leads back to the file before the first time.
        record = _Record(**{**asdict(known), "after": _hash(after), "moved": {**known.moved, **moved}})
    else:
        replace_file(backup, before or b"", expected=read_bytes(backup), private=True)
        record = _Record(
            path=str(path), existed=before is not None, after=_hash(after), backup=str(backup), moved=moved
        )
    _save(records, connection.client, record)
    replace_file(path, after, expected=before)
    return backup


@dataclass(frozen=True, slots=True, kw_only=True)
class Disconnection:
    """What taking the gateway out of a client would change."""

    client: KnownClient
    path: Path
    before: bytes | None = field(repr=False)
    after: bytes | None = field(repr=False)
    """None deletes the file: connecting had made it."""
    exact: bool
    """Whether the file becomes what it was, byte for byte; else it was edited since, and only our entry goes."""

    @property
    def changes(self) -> bool:
        return self.before != self.after

    def diff(self) -> str:
        return file_diff(self.path, decoded(self.before, self.path), decoded(self.after, self.path))


def plan_disconnection(client: KnownClient, place: Place, records: Path) -> Disconnection:
    """Plan how to restore the client's file."""
    record = _load(records, client)
    path = Path(record.path) if record else client.file(place)
    before = read_bytes(path)
    if record is not None and before is not None and _hash(before) == record.after:
        after = read_bytes(Path(record.backup)) if record.existed else None
        if not record.existed or after is not None:
            return Disconnection(client=client, path=path, before=before, after=after, exact=True)
    text, form = decoded(before, path), format_of(path)
    entries = _entries(_tree(text, path), client)
    if is_gateway(client.read(entries.get(OURS) or {}) or {}):
        text = remove(text, form, (*client.keys, OURS))
        for name, entry in (record.moved if record else {}).items():
            if name not in entries:
                text = put(text, form, (*client.keys, name), entry)
    after = text.encode() if before is not None else None
    return Disconnection(client=client, path=path, before=before, after=after, exact=False)


def disconnect(disconnection: Disconnection, records: Path) -> None:
    """Write the client's file as it was, and forget that it was connected."""
    if disconnection.changes:
        if disconnection.after is None:
            _delete(disconnection.path)
        else:
            replace_file(disconnection.path, disconnection.after, expected=disconnection.before)
    for suffix in (".json", ".backup"):
        (records / f"{disconnection.client.name}{suffix}").unlink(missing_ok=True)


def file_diff(path: Path, before: str, after: str) -> str:
    """Return a unified diff with the values of `env` and `headers` masked."""
    secrets = {value for text in (before, after) for value in _secrets(_tree_or_nothing(text, path))}
    lines = unified_diff(before.splitlines(), after.splitlines(), str(path), str(path), n=2, lineterm="")
    shown = "\n".join(lines)
    for secret in sorted(secrets, key=len, reverse=True):
        shown = shown.replace(secret, MASK)
    return shown


def _secrets(tree: Any) -> set[str]:
    """Collect the texts that masking would hide, wherever an entry stands."""
    if isinstance(tree, list):
        return {secret for item in tree for secret in _secrets(item)}
    if not isinstance(tree, dict):
        return set()
    entry = {
        **tree,
        "env": tree.get("envs") or tree.get("env"),
        "headers": tree.get("http_headers") or tree.get("headers"),
    }
    found = {secret for value in tree.values() for secret in _secrets(value)}
    return found | _hidden(entry, masked(entry))


def _hidden(plain: Any, shown: Any) -> set[str]:
    if isinstance(plain, dict) and isinstance(shown, dict):
        return {secret for key, value in plain.items() for secret in _hidden(value, shown.get(key))}
    if isinstance(plain, list) and isinstance(shown, list):
        return {secret for one, other in zip(plain, shown, strict=True) for secret in _hidden(one, other)}
    return {plain} if isinstance(plain, str) and plain != shown and len(plain) >= LEAST_SECRET else set()


def _tree(text: str, path: Path) -> dict[str, Any]:
    try:
        return tree_of(text, format_of(path))
    except ValueError as error:
        raise NotEditable(f"{path} cannot be read: {error}. Correct it first; nothing was changed.") from None


def _tree_or_nothing(text: str, path: Path) -> dict[str, Any]:
    try:
        return tree_of(text, format_of(path))
    except ValueError:
        return {}


def _entries(tree: Any, client: KnownClient) -> dict[str, Any]:
    for key in client.keys:
        tree = tree.get(key) if isinstance(tree, dict) else None
    return tree if isinstance(tree, dict) else {}


def _hash(data: bytes) -> str:
    return sha256(data).hexdigest()


def _load(records: Path, client: KnownClient) -> _Record | None:
    try:
        return _Record(**json.loads((records / f"{client.name}.json").read_text("utf-8")))
    except (OSError, ValueError, TypeError):
        return None


def _save(records: Path, client: KnownClient, record: _Record) -> None:
    path = records / f"{client.name}.json"
    replace_file(path, json.dumps(asdict(record)).encode(), expected=read_bytes(path), private=True)


def _delete(path: Path) -> None:
    try:
        path.unlink()
    except OSError as error:
        raise NotEditable(f"{path} cannot be deleted: {error.strerror}.") from None
