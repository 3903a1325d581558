"""The storage of tests that run on both stores: in files, or in PostgreSQL where an environment variable says so."""

import os
from pathlib import Path

import pytest

from shortlist.storage.local import open_local
from shortlist.storage.port import Storage
from tests.storage.postgres import new_database

VARIABLE = "SHORTLIST_TEST_STORE"
IS_SHARED = os.environ.get(VARIABLE) == "postgres"
_DATABASES: dict[Path, str] = {}

about_files = pytest.mark.skipif(IS_SHARED, reason="is about files")


def open_test_storage(folder: Path) -> Storage:
    """Return the storage of a folder; the same database for the same folder."""
    if not IS_SHARED:
        return open_local(folder)
    from shortlist.storage.postgres.opening import open_postgres

    if folder not in _DATABASES:
        _DATABASES[folder] = new_database()
    return open_postgres(_DATABASES[folder])
