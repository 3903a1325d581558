"""The storage of this machine: SQLite and JSON files in the user's data folder."""

from pathlib import Path

from shortlist.paths import cache_folder, data_folder
from shortlist.storage.audit_files import AuditFiles
from shortlist.storage.files import CatalogFiles
from shortlist.storage.memory import MemoryResults
from shortlist.storage.port import Storage
from shortlist.storage.programs import SqlitePrograms
from shortlist.storage.sqlite import Database
from shortlist.storage.sqlite_events import SqliteEvents
from shortlist.storage.sqlite_learning import SqliteExemplars, SqliteExperiments
from shortlist.storage.sqlite_pins import SqlitePins
from shortlist.storage.sqlite_vectors import SqliteVectors
from shortlist.storage.sqlite_workspaces import SqliteWorkspaces
from shortlist.storage.tokens import TokenFile


def local_vectors() -> SqliteVectors:
    """Return the embeddings that all programs of this user share; nothing is created before they are used."""
    return SqliteVectors(cache_folder() / "vectors.sqlite")


def open_local(folder: Path | None = None) -> Storage:
    """Return the storage in a folder (by default, this user's data folder); nothing is created before a write."""
    place = folder or data_folder()
    database = Database(place / "events.sqlite")
    events = SqliteEvents(database)
    return Storage(
        events=events,
        tallies=events,
        experiments=SqliteExperiments(database),
        exemplars=SqliteExemplars(database),
        catalogs=CatalogFiles(place / "catalog"),
        vectors=local_vectors(),
        pins=SqlitePins(place / "trust.sqlite"),
        tokens=TokenFile(place / "tokens.json"),
        workspaces=SqliteWorkspaces(place / "workspaces.sqlite"),
        results=MemoryResults(),
        programs=SqlitePrograms(place / "programs.sqlite"),
        audit=AuditFiles(place / "audit"),
        close=database.close,
    )
