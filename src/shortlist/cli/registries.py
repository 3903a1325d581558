"""MCP registries over HTTP: one server, all of them as a snapshot on this machine, and bundles to unpack."""

import hashlib
import io
import json
import re
import shutil
import tempfile
import urllib.error
import urllib.request
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

from shortlist.config.clients.registry import OFFICIAL, Package, RegistryServer, is_usable, read_server
from shortlist.config.clients.texts import read_bytes, replace_file
from shortlist.errors import InvalidInput, ShortlistError
from shortlist.models import Json
from shortlist.paths import data_folder, private_folder

SECONDS = 20.0
PAGE = 100
MOST_PAGES = 1_000
MOST_BYTES = 16 * 1024 * 1024
MOST_BUNDLE_BYTES = 256 * 1024 * 1024


class RegistryUnavailable(ShortlistError):
    """A registry that cannot be reached, or answers with something else than its API."""


def registry_url(text: str | None) -> str:
    """Check a registry's address; the public one is the default."""
    url = (text or OFFICIAL).rstrip("/")
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.netloc:
        raise InvalidInput(f"{text!r} is not the address of a registry; write it as in {OFFICIAL}.")
    return url


def find_server(name: str, registry: str) -> RegistryServer:
    """Return the latest version of a server: from the snapshot, else from the registry itself."""
    for raw in snapshot(registry):
        if raw.get("server", {}).get("name") == name:
            return read_server(raw, registry)
    return read_server(_get(f"{registry}/v0.1/servers/{quote(name, safe='')}/versions/latest"), registry)


def search(words: str, registry: str, limit: int) -> list[RegistryServer]:
    """Search the snapshot by words; without a snapshot, ask the registry."""
    kept = snapshot(registry)
    if not kept:
        answer = _get(f"{registry}/v0.1/servers?{urlencode({'search': words, 'limit': limit, 'version': 'latest'})}")
        kept = [raw for raw in _servers(answer, registry) if is_usable(raw)]
    wanted = set(re.findall(r"\w+", words.lower()))
    scored = [(-len(wanted & _words(raw)), raw["server"]["name"], raw) for raw in kept if "server" in raw]
    return [read_server(raw, registry) for score, _, raw in sorted(scored, key=lambda each: each[:2]) if score][:limit]


def sync(registry: str) -> int:
    """Fetch every server of a registry and keep them; return how many there are."""
    found: list[Json] = []
    for answer in _pages(registry):
        found += [raw for raw in _servers(answer, registry) if is_usable(raw)]
    path = _path(registry)
    replace_file(path, json.dumps({"registry": registry, "servers": found}).encode(), expected=read_bytes(path))
    return len(found)


def unpack(package: Package, name: str) -> dict[str, Json]:
    """Download an MCPB bundle, check its hash, unpack it, and return the entry that starts it."""
    if not package.sha256:
        raise InvalidInput(
            f"{package.identifier} has no SHA-256 in the registry, so it cannot be verified. It was not installed."
        )
    data = _fetch(package.identifier, MOST_BUNDLE_BYTES)
    if hashlib.sha256(data).hexdigest() != package.sha256.lower():
        raise RegistryUnavailable(f"{package.identifier} does not have the SHA-256 that the registry states.")
    folder = data_folder() / "bundles" / re.sub(r"[^\w.-]", "_", name)
    try:
        _extract(data, folder)
        manifest = json.loads((folder / "manifest.json").read_text("utf-8"))
        config = manifest["server"]["mcp_config"]
    except (OSError, ValueError, KeyError, TypeError, zipfile.BadZipFile) as error:
        raise InvalidInput(f"{package.identifier} is not a bundle that can be used: {error}.") from None
    entry = json.loads(json.dumps(config).replace("${__dirname}", json.dumps(str(folder))[1:-1]))
    return {key: entry[key] for key in ("command", "args", "env") if entry.get(key)}


def _extract(data: bytes, folder: Path) -> None:
    """Unpack into a fresh folder; a name that leads out of it is refused."""
    private_folder(folder.parent)
    fresh = Path(tempfile.mkdtemp(dir=folder.parent))
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as bundle:
            for name in bundle.namelist():
                if not (fresh / name).resolve().is_relative_to(fresh.resolve()):
                    raise ValueError(f"it contains the path {name!r}")
            if sum(each.file_size for each in bundle.infolist()) > 4 * MOST_BUNDLE_BYTES:
                raise ValueError("it is too large when unpacked")
            bundle.extractall(fresh)
        shutil.rmtree(folder, ignore_errors=True)
        fresh.rename(folder)
    finally:
        shutil.rmtree(fresh, ignore_errors=True)


def _pages(registry: str) -> Iterator[Mapping[str, Any]]:
    cursor, seen = "", set()
    for _ in range(MOST_PAGES):
        query = {"limit": PAGE, "version": "latest", **({"cursor": cursor} if cursor else {})}
        answer = _get(f"{registry}/v0.1/servers?{urlencode(query)}")
        yield answer
        cursor = str((answer.get("metadata") or {}).get("nextCursor") or "")
        if not cursor or cursor in seen:  # a registry that repeats itself would be asked for ever
            return
        seen.add(cursor)


def _servers(answer: Mapping[str, Any], registry: str) -> list[Any]:
    servers = answer.get("servers")
    if not isinstance(servers, list):
        raise RegistryUnavailable(f"{registry} does not answer as a registry does: it lists no servers.")
    return [raw for raw in servers if isinstance(raw, dict) and isinstance(raw.get("server"), dict)]


def _words(raw: Mapping[str, Any]) -> set[str]:
    body = raw.get("server", {})
    return set(
        re.findall(r"\w+", f"{body.get('name', '')} {body.get('title', '')} {body.get('description', '')}".lower())
    )


def snapshot(registry: str) -> list[Any]:
    raw = read_bytes(_path(registry))
    try:
        kept = json.loads(raw or b"{}").get("servers", [])
    except ValueError:
        return []
    return kept if isinstance(kept, list) else []


def _path(registry: str) -> Path:
    return data_folder() / "registries" / f"{hashlib.sha256(registry.encode()).hexdigest()[:16]}.json"


def _get(url: str) -> Mapping[str, Any]:
    try:
        answer = json.loads(_fetch(url, MOST_BYTES))
    except ValueError:
        raise RegistryUnavailable(f"{url} does not answer with JSON; is it a registry?") from None
    if not isinstance(answer, dict):
        raise RegistryUnavailable(f"{url} does not answer as a registry does.")
    return answer


def _fetch(url: str, most: int) -> bytes:
    if not url.startswith(("http://", "https://")):
        raise InvalidInput(f"{url!r} is not an http:// or https:// address.")
    request = urllib.request.Request(url, headers={"Accept": "application/json, */*", "User-Agent": "shortlist"})  # noqa: S310
    try:
        with urllib.request.urlopen(request, timeout=SECONDS) as response:  # noqa: S310 - the scheme is checked above
            data: bytes = response.read(most + 1)
    except urllib.error.HTTPError as error:
        if error.code == 404:
            raise InvalidInput(
                f"{url} is not there (HTTP 404). `shortlist registry search WORDS` finds names."
            ) from None
        raise RegistryUnavailable(f"{url} answered HTTP {error.code}; try again later.") from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "reason", None) or error
        raise RegistryUnavailable(
            f"{url} cannot be reached: {reason}. Check the address and your connection."
        ) from None
    if len(data) > most:
        raise RegistryUnavailable(f"{url} answers with more than {most // 1_000_000} MB.")
    return data
