"""Opens the storage that the configuration names."""

from shortlist.errors import InvalidConfig
from shortlist.storage.local import open_local
from shortlist.storage.port import Storage


def open_storage(address: str = "") -> Storage:
    """Return the storage at a database's address, else the one in this user's data folder."""
    if not address:
        return open_local()
    if not address.startswith(("postgresql://", "postgres://")):  # a stored secret: nothing of it is shown
        raise InvalidConfig("`storage` is not the address of a database; store one that begins with postgresql://")
    try:
        from shortlist.storage.postgres.opening import open_postgres  # noqa: PLC0415 (an optional dependency)
    except ImportError as missing:
        raise InvalidConfig(
            f"`storage` names a PostgreSQL database, which needs the package {missing.name!r}. "
            "Install it with: pip install 'shortlist-mcp[postgres]'"
        ) from None
    return open_postgres(address)
