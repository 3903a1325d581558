"""Workspaces in a file of their own, so that a gateway that starts again lists what its clients had loaded."""

import json
from pathlib import Path

from shortlist.storage.port import StoredWorkspace
from shortlist.storage.sqlite import OwnFile

_SCHEMA = (
    "CREATE TABLE workspaces (key TEXT PRIMARY KEY, loaded TEXT NOT NULL, used REAL NOT NULL) STRICT",
    "CREATE INDEX workspaces_by_use ON workspaces (used)",
)
_REMEDY = "If the file is damaged, move it away: clients then have to load their tools again."


class SqliteWorkspaces:
    """One row per workspace. Every error is a StoreError."""

    def __init__(self, path: Path) -> None:
        self._file = OwnFile(path, _SCHEMA, remedy=_REMEDY)

    def load(self, key: str) -> StoredWorkspace | None:
        with self._file.opened() as connection:
            if connection is None:
                return None
            row = connection.execute("SELECT loaded, used FROM workspaces WHERE key = ?", (key,)).fetchone()
        return None if row is None else StoredWorkspace(key=key, loaded=dict(json.loads(row[0])), used=row[1])

    def save(self, workspace: StoredWorkspace, *, since: float, most: int) -> None:
        row = (workspace.key, json.dumps(list(workspace.loaded.items())), workspace.used)
        with self._file.opened(create=True) as connection:
            connection.execute("INSERT OR REPLACE INTO workspaces VALUES (?, ?, ?)", row)
            connection.execute("DELETE FROM workspaces WHERE used < ?", (since,))
            connection.execute(
                "DELETE FROM workspaces WHERE key IN (SELECT key FROM workspaces ORDER BY used DESC LIMIT -1 OFFSET ?)",
                (most,),
            )
