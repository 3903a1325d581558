"""Redaction: secrets are always masked; queries and arguments are kept, hashed or omitted as configured."""

import hashlib
import json
import logging
import os
import re
import secrets
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from shortlist.config.settings import Keeping
from shortlist.models import Json

logger = logging.getLogger(__name__)

MASK = "••••"
LONGEST_QUERY = 1_000
LONGEST_SOURCE = 20_000
LONGEST_ARGUMENTS = 2_000
LARGEST_ARGUMENTS = 50_000
"""Of larger arguments only the size is kept."""
HASH_BYTES = 8
KEY_BYTES = 32

_WORD = r"[\w-]{0,40}"  # bounded, so that matching stays linear
_NAME = rf"(?:{_WORD}(?:api[_-]?key|access[_-]?key|secret|token|passw(?:or)?d|pwd|credentials?|authorization){_WORD})"
_SECRET_NAME = re.compile(rf"^{_NAME}$", re.IGNORECASE)
_PATTERNS = (
    re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)", re.DOTALL),
    re.compile(r"(?<=://)[^/\s:@]+:[^/\s@]+(?=@)"),  # https://user:password@host
    re.compile(r"(?<=\bbearer )\S{6,}|(?<=\bbasic )[A-Za-z0-9+/=]{12,}", re.IGNORECASE),
    re.compile(
        rf"(?:(?<=[\s\"'?&,;{{(])|^){_NAME}[\"']?(?:\s*[=:]\s*|\s+is\s+)[\"']?([^\s\"'&,;)}}]{{3,}})", re.IGNORECASE
    ),
    re.compile(r"\beyJ[\w-]{5,}\.[\w-]{5,}\.[\w-]*"),  # a JSON web token
    re.compile(
        r"\b(?:(?:sk|pk|rk|gh[pousr]|github_pat|glpat|xox[abeprs]|hf|npm|pypi)[-_]|AKIA|ASIA|AIza)"
        r"(?=[\w-]{0,60}\d)[\w-]{12,}"
    ),  # by the prefixes that services give their keys
    re.compile(r"(?<![\w/.-])(?=[\w+-]*\d)(?=[\w+-]*[a-z])(?=[\w+-]*[A-Z])[\w+-]{32,}={0,2}(?![\w/])"),  # random
    re.compile(r"\b[0-9a-f]{40,}\b"),
)


def redact(text: str) -> str:
    """Mask keys, tokens and passwords, and what looks like them."""
    for pattern in _PATTERNS:
        text = pattern.sub(_masked, text)
    return text


def redact_json(value: Json, name: str = "") -> Json:
    """Mask secrets in a JSON value: everything under a secret's name, and what looks like a secret elsewhere."""
    if isinstance(value, Mapping):
        return {str(key): redact_json(inner, str(key)) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [redact_json(item, name) for item in value]
    if value is not None and not isinstance(value, bool) and _SECRET_NAME.match(name):
        return MASK
    return redact(value) if isinstance(value, str) else value


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
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        draft = path.with_name(f"{path.name}.{secrets.token_hex(4)}")
        try:
            with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
                file.write(key)
            with suppress(FileExistsError):  # another process was first
                os.link(draft, path)
        finally:
            draft.unlink(missing_ok=True)
    return path.read_bytes()


def _masked(match: re.Match[str]) -> str:
    if not match.lastindex:
        return MASK
    start = match.start(1) - match.start()
    return match.group()[:start] + MASK


def _json(value: Json) -> str:
    return json.dumps(value, sort_keys=True, ensure_ascii=False, separators=(",", ":"), default=str)


def _encodable(text: str) -> str:
    """Replace lone surrogates, which databases refuse."""
    return text.encode("utf-8", "replace").decode()
