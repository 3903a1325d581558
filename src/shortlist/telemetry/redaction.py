"""Redaction: secrets are always masked; queries and arguments are kept, hashed or omitted as configured."""

import hashlib
import json
import logging
import os
import secrets
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from shortlist.config.masking import redact, redact_json
from shortlist.config.settings import Keeping
from shortlist.models import Json
from shortlist.paths import READING, private_folder

logger = logging.getLogger(__name__)

LONGEST_QUERY = 1_000
LONGEST_SOURCE = 20_000
LONGEST_ARGUMENTS = 2_000
LARGEST_ARGUMENTS = 50_000
"""Of larger arguments only the size is kept."""
HASH_BYTES = 8
KEY_BYTES = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class Privacy:
    """How texts are kept; `key` is the key of the hashes."""

    queries: Keeping = "keep"
    arguments: Keeping = "omit"
    key: bytes = field(default=b"", repr=False)

    def workspace(self, name: str) -> str:
        """Return a keyed hash of a workspace's name, which may contain a handle."""
        return self._hash(name)

    def query(self, text: str) -> str | None:
        if self.queries == "omit":
            return None
        return f"hash:{self._hash(text)}" if self.queries == "hash" else _encodable(redact(text))[:LONGEST_QUERY]

    def source(self, text: str) -> str | None:
        """Return what is kept of a program, which may be longer than a query and is treated like one."""
        kept = self.query(text)
        return kept if self.queries != "keep" else _encodable(redact(text))[:LONGEST_SOURCE]

    def call(self, arguments: Mapping[str, Json] | None) -> Json:
        """Return what is kept of a call's arguments; None where nothing is."""
        if self.arguments == "omit" or arguments is None:
            return None
        if self.arguments == "hash":
            return f"hash:{self._hash(_json(arguments))}"
        if (size := len(_json(arguments))) > LARGEST_ARGUMENTS:
            return f"{size:,} characters"
        kept = redact_json(arguments)
        text = _json(kept)
        return kept if len(text) <= LONGEST_ARGUMENTS else f"{text[:LONGEST_ARGUMENTS]}…"

    def name(self, text: str) -> str:
        """Return a name that a caller sent, redacted and shortened."""
        return _encodable(redact(text))[:200]

    def _hash(self, text: str) -> str:
        return hashlib.blake2b(_encodable(text).encode(), key=self.key, digest_size=HASH_BYTES).hexdigest()


def hash_key(path: Path) -> bytes:
    """Return this machine's key for hashes, creating it once.

    A key that cannot be read or is damaged is left as it is; this process then uses a key of its own.
    """
    made = secrets.token_bytes(KEY_BYTES)
    try:
        found = _created(path, made)
        if len(found) == KEY_BYTES:
            return found
        trouble = f"it has {len(found)} bytes, not {KEY_BYTES}"
    except OSError as error:
        trouble = str(error)
    logger.warning(
        "%s cannot be used (%s): workspaces of this process cannot be matched with earlier ones. "
        "Move the file away, and a new key is created.",
        path,
        trouble,
    )
    return made


def _created(path: Path, key: bytes) -> bytes:
    """Return what a file contains, after writing it whole if it does not exist."""
    if not os.path.lexists(path):
        private_folder(path.parent)
        draft = path.with_name(f"{path.name}.{secrets.token_hex(4)}")
        try:
            with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
                file.write(key)
            with suppress(FileExistsError):  # another process was first
                os.link(draft, path)
        finally:
            draft.unlink(missing_ok=True)
    with os.fdopen(os.open(path, READING), "rb") as file:
        return file.read()


def _json(value: Json) -> str:
    return json.dumps(value, sort_keys=True, ensure_ascii=False, separators=(",", ":"), default=str)


def _encodable(text: str) -> str:
    """Replace lone surrogates, which databases refuse."""
    return text.encode("utf-8", "replace").decode()
