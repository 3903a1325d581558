"""Workspaces in a file of their own, so that a gateway that starts again lists what its clients had loaded."""

import json
from pathlib import Path

from shortlist.storage.owned import CLOCK_SKEW_SECONDS, StoredWorkspace, WorkspaceLimits, owner_of
from shortlist.storage.sqlite import OwnFile

_SCHEMA = (
    "CREATE TABLE workspaces (key TEXT PRIMARY KEY, loaded TEXT NOT NULL, used REAL NOT NULL) STRICT",
    "CREATE INDEX workspaces_by_use ON workspaces (used)",
)
_OF_OWNER = """(key = 'principal:' || :owner OR (
  substr(key, instr(key, ':') + 1, length(:owner) + 1) = :owner || ':'
  AND instr(substr(key, instr(key, ':') + length(:owner) + 2), ':') = 0 AND key NOT LIKE 'principal:%'))"""
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

    def save(self, workspace: StoredWorkspace, limits: WorkspaceLimits) -> None:
        owner = owner_of(workspace.key)
        row = (workspace.key, json.dumps(list(workspace.loaded.items())), workspace.used)
        with self._file.opened(create=True) as connection:
            connection.execute("INSERT OR REPLACE INTO workspaces VALUES (?, ?, ?)", row)
            connection.execute("DELETE FROM workspaces WHERE used < ?", (workspace.used - limits.seconds,))
            # What was used by a clock that was ahead would outlive everything that is used now.
            connection.execute(
                "UPDATE workspaces SET used = ? WHERE used > ?", (workspace.used, workspace.used + CLOCK_SKEW_SECONDS)
            )
            for condition, values, most in (
                (_OF_OWNER, {"owner": owner}, limits.most_of_owner),
                ("1", {}, limits.most),
            ):
                oldest = f"SELECT key FROM workspaces WHERE {condition} ORDER BY used DESC LIMIT -1 OFFSET :most"  # noqa: S608
                connection.execute(f"DELETE FROM workspaces WHERE key IN ({oldest})", {**values, "most": most})  # noqa: S608

    def of_owner(self, owner: str) -> list[StoredWorkspace]:
        with self._file.opened() as connection:
            if connection is None:
                return []
            sql = f"SELECT key, loaded, used FROM workspaces WHERE {_OF_OWNER} ORDER BY used DESC"  # noqa: S608
            rows = connection.execute(sql, {"owner": owner}).fetchall()
        return [StoredWorkspace(key=key, loaded=dict(json.loads(loaded)), used=used) for key, loaded, used in rows]

    def erase(self, owner: str) -> int:
        with self._file.opened() as connection:
            if connection is None:
                return 0
            return connection.execute(f"DELETE FROM workspaces WHERE {_OF_OWNER}", {"owner": owner}).rowcount  # noqa: S608
