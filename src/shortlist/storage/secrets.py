"""Secrets at rest, in an encrypted file.

The file protects against someone who reads it alone. Whoever can also read its key (the environment variable
SHORTLIST_SECRET_KEY, or the key file beside it) can read every secret.
"""

import base64
import json
import os
import secrets
from pathlib import Path

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from shortlist.errors import InvalidConfig, SecretsUnreadable, StoreError
from shortlist.storage.private import locked, read_private, write_private

KEY_VARIABLE = "SHORTLIST_SECRET_KEY"
KEY_BYTES = 32
NONCE_BYTES = 12


class FileSecrets:
    """Secrets in one AES-GCM file; each is bound to its name, so that two cannot be swapped."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "secrets.json"
        self._key_path = folder / "secrets.key"

    def get(self, name: str) -> str | None:
        sealed = self._read().get(name)
        return None if sealed is None else self._open(name, sealed)

    def put(self, name: str, value: str) -> None:
        with locked(self.path):
            kept = self._read()
            nonce = secrets.token_bytes(NONCE_BYTES)
            sealed = nonce + AESGCM(self._key(create=True)).encrypt(nonce, value.encode(), name.encode())
            kept[name] = base64.b64encode(sealed).decode()
            self._write(kept)

    def remove(self, name: str) -> bool:
        """Forget a secret and return whether there was one."""
        with locked(self.path):
            kept = self._read()
            found = kept.pop(name, None) is not None
            if found:
                self._write(kept)
            return found

    def names(self) -> tuple[str, ...]:
        return tuple(sorted(self._read()))

    def _open(self, name: str, sealed: str) -> str:
        try:
            raw = base64.b64decode(sealed, validate=True)
            return AESGCM(self._key()).decrypt(raw[:NONCE_BYTES], raw[NONCE_BYTES:], name.encode()).decode()
        except (InvalidTag, ValueError):
            raise StoreError(
                f"The secret {name!r} cannot be decrypted: the key is wrong, or {str(self.path)!r} is damaged. "
                "Set it again, or restore the key."
            ) from None

    def _key(self, *, create: bool = False) -> bytes:
        given = os.environ.get(KEY_VARIABLE)
        if given is not None:
            return _parse_key(given)
        kept = read_private(self._key_path)
        if kept is None and create:
            fresh = secrets.token_bytes(KEY_BYTES)
            write_private(self._key_path, base64.b64encode(fresh))
            return fresh
        if kept is None:
            raise StoreError(
                f"The key of the secrets is missing: restore {str(self._key_path)!r} or set {KEY_VARIABLE}."
            )
        return _parse_key(kept.decode("ascii", "replace"))

    def _read(self) -> dict[str, str]:
        try:
            raw = read_private(self.path)
            kept = {} if raw is None else json.loads(raw)["secrets"]
            if not isinstance(kept, dict) or not all(isinstance(value, str) for value in kept.values()):
                raise ValueError("it does not hold secrets")
            return kept
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise SecretsUnreadable(
                f"The secrets in {str(self.path)!r} cannot be read ({error}). The file was left as it is: restore it, "
                "or move it away and sign in again."
            ) from None

    def _write(self, kept: dict[str, str]) -> None:
        write_private(self.path, json.dumps({"version": 1, "secrets": kept}, indent=1).encode())


def _parse_key(text: str) -> bytes:
    try:
        key = base64.b64decode(text.strip(), validate=True)
    except ValueError:
        key = b""
    if len(key) != KEY_BYTES:
        raise InvalidConfig(f"The key of the secrets must be {KEY_BYTES} bytes in base64; it has {len(key)}.")
    return key
