"""Saved indexes in object storage: uploaded by the process that built one, fetched by machines that lack it.

An index is opened from a folder of this machine, since large ones are mapped. In the bucket each of its files is an
object, `PREFIX/INDEX/UPLOAD/FILE`: processes that build the same index at once do not mix their files. The header is
uploaded last, so an upload with a header is complete.
"""

import hashlib
import logging
import secrets
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import urlsplit

from shortlist.catalog.catalog import Catalog
from shortlist.errors import InvalidInput
from shortlist.index.index import Index
from shortlist.index.saved import SAVED_FROM, SavedIndexes, indexes_folder
from shortlist.index.store import HEADER
from shortlist.paths import cache_folder, private_folder

logger = logging.getLogger(__name__)

CONNECT_SECONDS, TRANSFER_SECONDS, RETRY_SECONDS = 5, 900, 20
"""How long a connection, the transfer of one file, and all attempts at a request may take."""
RETRIES = 3


def open_saved(choice: bool | str, model_id: str | None) -> SavedIndexes:
    """Return where indexes are saved: in the user's cache, in a folder, or in the bucket of an address."""
    if isinstance(choice, str) and "://" in choice:
        return BucketIndexes(choice, model_id)
    return SavedIndexes(indexes_folder(choice), model_id)


class BucketIndexes(SavedIndexes):
    """Indexes that machines share through a bucket, each with copies of its own in the user's cache."""

    def __init__(self, url: str, model_id: str | None) -> None:
        place = hashlib.blake2b(url.encode(), digest_size=6).hexdigest()
        super().__init__(cache_folder() / "buckets" / place, model_id)
        self._shown, self._bucket = _without_secrets(url), _opened(url)

    def open(self, catalog: Catalog) -> Index:
        """Fetch the index of a catalog, or the newest there is, where this machine lacks it; then open it."""
        own = self._place(catalog)
        if len(catalog) >= SAVED_FROM and not own.exists():
            with self._excused("fetched from"):
                self._fetch(own.name)
        return super().open(catalog)

    def keep(self, index: Index) -> None:
        """Save an index that differs enough from the saved one, and upload it."""
        before = self.newest
        super().keep(index)
        if self.newest is not None and self.newest is not before:
            with self._excused("uploaded to"):
                self._upload(self.newest[0])

    def _fetch(self, wanted: str) -> None:
        """Copy an upload of the wanted index, or the newest of another catalog, into the folder of this machine."""
        import obstore  # noqa: PLC0415

        uploads = self._uploads(f"{self._prefix()}-")
        if not uploads:
            return
        newest = max(uploads, key=lambda upload: (upload.parent.name == wanted, uploads[upload]))
        place = self._folder / newest.parent.name
        if place.exists():
            return
        private_folder(self._folder)
        scratch = Path(tempfile.mkdtemp(prefix=f".{place.name}-", dir=self._folder))
        try:
            for path, _ in self._objects(f"{newest}/"):
                with (scratch / path.name).open("wb") as file:
                    for chunk in obstore.get(self._bucket, str(path)).stream():
                        file.write(chunk)
            if not place.exists():  # another process may have been faster
                scratch.rename(place)
                logger.info("fetched the index %s from %s", place.name, self._shown)
                self._forget()
        finally:
            shutil.rmtree(scratch, ignore_errors=True)

    def _upload(self, place: Path) -> None:
        import obstore  # noqa: PLC0415

        if self._uploads(place.name):
            return
        upload = PurePosixPath(place.name, secrets.token_hex(8))
        for file in sorted(place.iterdir(), key=lambda each: each.name == HEADER):
            obstore.put(self._bucket, str(upload / file.name), file)
        logger.info("uploaded the index %s to %s", place.name, self._shown)

    def _uploads(self, prefix: str) -> dict[PurePosixPath, datetime]:
        """Return the complete uploads of indexes whose names begin like this, and when each was completed."""
        return {
            path.parent: at for path, at in self._objects("") if path.name == HEADER and str(path).startswith(prefix)
        }

    def _objects(self, below: str) -> list[tuple[PurePosixPath, datetime]]:
        import obstore  # noqa: PLC0415

        parts = obstore.list(self._bucket, below or None)
        return [(PurePosixPath(found["path"]), found["last_modified"]) for part in parts for found in part]

    @contextmanager
    def _excused(self, done: str) -> Iterator[None]:
        """Go on without the bucket, and log why."""
        from obstore.exceptions import BaseError  # noqa: PLC0415

        try:
            yield
        except (BaseError, OSError, ValueError) as error:
            reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
            logger.warning(
                "The index cannot be %s %s (%s). This machine uses its own.", done, self._shown, reason[:300]
            )


def _without_secrets(url: str) -> str:
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"


def _opened(url: str) -> Any:
    shown = _without_secrets(url)
    try:
        from obstore.exceptions import BaseError  # noqa: PLC0415
        from obstore.store import from_url  # noqa: PLC0415
    except ImportError:
        raise InvalidInput(
            f"search.saved_index {shown!r} needs the extra 'bucket': run pip install 'shortlist-mcp[bucket]', "
            "or name a folder."
        ) from None
    try:
        if url.startswith("file:"):
            return from_url(url, mkdir=True)
        return from_url(
            url,
            client_options={
                "allow_http": True,  # where the address of the service in AWS_ENDPOINT_URL says so
                "connect_timeout": timedelta(seconds=CONNECT_SECONDS),
                "timeout": timedelta(seconds=TRANSFER_SECONDS),
            },
            retry_config={"max_retries": RETRIES, "retry_timeout": timedelta(seconds=RETRY_SECONDS)},
        )
    except (BaseError, ValueError):  # its message repeats the whole address
        raise InvalidInput(
            f"search.saved_index {shown!r} is not the address of a bucket. Use s3://BUCKET/PREFIX, or name a folder."
        ) from None
