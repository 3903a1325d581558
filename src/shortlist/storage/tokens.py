"""Tokens in one private JSON file: hashes and scopes, never the tokens themselves."""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, fields, replace
from pathlib import Path

from shortlist.errors import StoreError
from shortlist.models import Json
from shortlist.storage.port import StoredToken
from shortlist.storage.private import locked, read_private, write_private

_LISTS = frozenset({"servers", "toolsets", "tools", "can"})
_KNOWN = frozenset(field.name for field in fields(StoredToken))


class TokenFile:
    """A TokenStore in a file that is replaced whole, under a lock that other processes respect."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def load(self) -> Mapping[str, StoredToken]:
        try:
            content = read_private(self._path)
            raw = json.loads(content) if content is not None else {"tokens": {}}
            return {name: token_of(name, entry) for name, entry in raw["tokens"].items()}
        except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            remedy = "Restore the file or remove it."
            raise StoreError(f"The tokens in {self._path} cannot be read ({error}). {remedy}") from None

    def put(self, token: StoredToken) -> None:
        with self._locked():
            self._save({**self.load(), token.name: token})

    def remove(self, name: str) -> bool:
        with self._locked():
            tokens = dict(self.load())
            found = tokens.pop(name, None) is not None
            if found:
                self._save(tokens)
            return found

    def note_use(self, used: Mapping[str, float]) -> None:
        with self._locked():
            tokens = self.load()
            self._save({name: replace(t, last_used=used[name]) if name in used else t for name, t in tokens.items()})

    @contextmanager
    def _locked(self) -> Iterator[None]:
        try:
            with locked(self._path):
                yield
        except OSError as error:
            raise StoreError(
                f"The tokens cannot be saved in {self._path}: {error.strerror}. Check disk space and permissions."
            ) from None

    def _save(self, tokens: Mapping[str, StoredToken]) -> None:
        document = {"tokens": {name: asdict(token) for name, token in tokens.items()}}
        write_private(self._path, json.dumps(document, indent=2).encode())


def token_of(name: str, entry: Mapping[str, Json]) -> StoredToken:
    known = {key: value for key, value in entry.items() if key in _KNOWN}
    lists = {key: tuple(map(str, known[key])) for key in _LISTS & known.keys() if known[key] is not None}
    return StoredToken(**{**known, **lists, "name": name})
