"""The storage of several gateways in one PostgreSQL database."""

from shortlist.storage.port import Storage
from shortlist.storage.postgres.audit import PostgresAudit
from shortlist.storage.postgres.database import Postgres
from shortlist.storage.postgres.events import PostgresEvents
from shortlist.storage.postgres.learning import PostgresExemplars, PostgresExperiments
from shortlist.storage.postgres.records import (
    PostgresCatalogs,
    PostgresPins,
    PostgresPrograms,
    PostgresResults,
    PostgresTokens,
    PostgresVectors,
    PostgresWorkspaces,
)
from shortlist.storage.postgres.sharing import shared_stores


def open_postgres(url: str) -> Storage:
    """Return the storage of a database; the first use connects and brings its schema up to date."""
    database = Postgres(url)
    events = PostgresEvents(database)
    return Storage(
        events=events,
        tallies=events,
        experiments=PostgresExperiments(database),
        exemplars=PostgresExemplars(database),
        catalogs=PostgresCatalogs(database),
        vectors=PostgresVectors(database),
        pins=PostgresPins(database),
        tokens=PostgresTokens(database),
        workspaces=PostgresWorkspaces(database),
        results=PostgresResults(database),
        programs=PostgresPrograms(database),
        audit=PostgresAudit(database),
        shared=shared_stores(database),
        trails=events.trails,
        close=database.close,
    )
