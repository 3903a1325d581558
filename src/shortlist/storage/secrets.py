"""Secrets at rest, in an encrypted file whose key is in the keyring of the operating system, where there is one.

The file protects against someone who reads it alone. Whoever can also read its key (the environment variable
SHORTLIST_SECRET_KEY, the keyring, or the key file beside it) can read every secret.
"""

import base64
import importlib
import json
import logging
import os
import secrets
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from shortlist.errors import InvalidConfig, SecretsUnreadable, StoreError
from shortlist.storage.private import locked, read_private, write_private
from shortlist.storage.shared import SealedStore

KEY_VARIABLE = "SHORTLIST_SECRET_KEY"
SERVICE = "shortlist"
"""The name of our entries in a keyring."""
KEY_BYTES = 32
NONCE_BYTES = 12
logger = logging.getLogger(__name__)


class FileSecrets:
    """Secrets in one AES-GCM file; each is bound to its name, so that two cannot be swapped."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "secrets.json"
        self._key = SecretKey(folder)

    @property
    def key_place(self) -> str:
        """Say where the key of the secrets is kept."""
        return self._key.place

    def get(self, name: str) -> str | None:
        sealed = self._read().get(name)
        return None if sealed is None else self._open(name, sealed)

    def put(self, name: str, value: str) -> None:
        with locked(self.path):
            kept = self._read()
            key = self._key.find() if kept else self._key.found_or_made()
            kept[name] = base64.b64encode(_sealed(AESGCM(key), name, value)).decode()
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
        self._key.find()  # says what to do where there is no key at all
        for key in self._key.every():
            with suppress(InvalidTag, ValueError):
                return _opened(AESGCM(key), name, base64.b64decode(sealed, validate=True))
        raise StoreError(
            f"The secret {name!r} cannot be decrypted: the key is wrong, or {str(self.path)!r} is damaged. "
            "Set it again, or restore the key."
        )

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


class SharedSecrets:
    """Secrets that gateways share in a database; all of them have the same key in SHORTLIST_SECRET_KEY.

    Without the key, secrets can be named and removed, and neither read nor written.
    """

    def __init__(self, store: SealedStore, key: str | None) -> None:
        self._store = store
        self._key = None if key is None else AESGCM(_parse_key(key))
        self.locked = store.locked

    @property
    def _cipher(self) -> AESGCM:
        if self._key is None:
            raise SecretsUnreadable(
                f"Shared secrets cannot be decrypted without their key. Set {KEY_VARIABLE} to that of the gateways."
            )
        return self._key

    def get(self, name: str) -> str | None:
        sealed = self._store.get(name)
        if sealed is None:
            return None
        try:
            return _opened(self._cipher, name, sealed)
        except (InvalidTag, ValueError):
            raise SecretsUnreadable(
                f"The shared secret {name!r} cannot be decrypted: {KEY_VARIABLE} differs from that of the gateway that "
                "stored it. Set the same key for all gateways."
            ) from None

    def put(self, name: str, value: str) -> None:
        self._store.put(name, _sealed(self._cipher, name, value))

    def remove(self, name: str) -> bool:
        return self._store.remove(name)

    def names(self) -> tuple[str, ...]:
        return self._store.names()


class SecretKey:
    """The key of the secrets: in the environment, in a private file, or in the keyring of the operating system."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / "secrets.key"
        self._account = f"secrets of {folder}"

    @property
    def place(self) -> str:
        """Say where the key is, or where it will be created."""
        if KEY_VARIABLE in os.environ:
            return f"the environment variable {KEY_VARIABLE}"
        if not self._path.exists() and (keyring := system_keyring()) is not None:
            return f"the keyring of the operating system ({keyring.name})"
        return f"the file {str(self._path)!r}"

    def find(self) -> bytes:
        """Return the key; raise where it is missing, or the keyring does not give it out."""
        given = self._known()
        if given is None:
            raise SecretsUnreadable(
                f"The key of the secrets is missing: restore {str(self._path)!r} or its entry in the keyring, or set "
                f"{KEY_VARIABLE}."
            )
        return given

    def found_or_made(self) -> bytes:
        """Return the key, and make one where no secret needs an earlier one."""
        known = self._known()
        if known is not None:
            return known
        fresh = secrets.token_bytes(KEY_BYTES)
        written, keyring = base64.b64encode(fresh).decode(), system_keyring()
        if keyring is not None:
            try:
                keyring.set_password(SERVICE, self._account, written)
                return fresh
            except Exception as error:  # each keyring has errors of its own
                logger.warning("the key of the secrets is kept in a file: the keyring refused it (%s)", error)
        write_private(self._path, written.encode())
        return fresh

    def every(self) -> Iterator[bytes]:
        """Yield all keys there are, the one to write with first: a secret may be older than the present key."""
        given = os.environ.get(KEY_VARIABLE)
        if given is not None:
            yield _parse_key(given)
        kept = read_private(self._path)
        if kept is not None:
            yield _parse_key(kept.decode("ascii", "replace"))
        keyring = system_keyring()
        try:
            found = keyring.get_password(SERVICE, self._account) if keyring is not None else None
        except Exception as error:  # a locked keyring, or one whose service is away
            raise SecretsUnreadable(
                f"The key of the secrets cannot be read from the keyring ({error}). Unlock it, or set {KEY_VARIABLE}."
            ) from None
        if found is not None:
            yield _parse_key(found)

    def _known(self) -> bytes | None:
        return next(self.every(), None)


def system_keyring() -> Any | None:
    """Return the keyring of the operating system; None where there is none, or `keyring` is not installed."""
    try:
        keyring = importlib.import_module("keyring")
        backend = keyring.get_keyring()
        # The backends `fail` and `null` stand for "there is none".
        is_usable = backend.priority > 0 and not type(backend).__module__.endswith((".fail", ".null"))
    except Exception:  # an optional package, and backends that cannot say whether they work
        return None
    return backend if is_usable else None


def sealed_secret(key: str, name: str, value: str) -> bytes:
    """Return a secret as gateways with this key share it in a database."""
    return _sealed(AESGCM(_parse_key(key)), name, value)


def _sealed(cipher: AESGCM, name: str, value: str) -> bytes:
    nonce = secrets.token_bytes(NONCE_BYTES)
    return nonce + cipher.encrypt(nonce, value.encode(), name.encode())


def _opened(cipher: AESGCM, name: str, sealed: bytes) -> str:
    return cipher.decrypt(sealed[:NONCE_BYTES], sealed[NONCE_BYTES:], name.encode()).decode()


def _parse_key(text: str) -> bytes:
    try:
        key = base64.b64decode(text.strip(), validate=True)
    except ValueError:
        key = b""
    if len(key) != KEY_BYTES:
        raise InvalidConfig(f"The key of the secrets must be {KEY_BYTES} bytes in base64; it has {len(key)}.")
    return key
