"""Events and tallies as the rows of a relational store, the same for every adapter."""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from shortlist.errors import StoreError
from shortlist.storage.port import COUNTED, HOURS, Cells, EventRow, StoredEvent, WorkspaceCounts

COLUMNS = (
    *("id", "at", "kind", "caller", "workspace", "subject", "outcome", "search", "rank", "miss"),
    *("milliseconds", "tokens", "data"),
)
OF_TOOLS: Mapping[str, str] = {
    "tool_shown": "shown",
    "tool_called": "called",
    "tool_failed": "failed",
    "tool_refused": "refused",
    "tool_found": "found",
    "tool_reciprocal": "reciprocal",
    "tool_unfound": "unfound",
    "tool_milliseconds": "milliseconds",
}
"""The column of each tally that is kept by tool."""


def event_row(entry: EventRow) -> dict[str, Any]:
    data = json.dumps(entry.columns["data"], ensure_ascii=False, separators=(",", ":"))
    search = entry.search.id if entry.search else None
    return {**dict.fromkeys(COLUMNS), **entry.columns, "id": entry.place.id, "search": search, "data": data}


def stored_event(row: Sequence[Any]) -> StoredEvent:
    columns = dict(zip(COLUMNS, row, strict=True))
    return StoredEvent(**{**columns, "data": decoded(columns["data"])})


def decoded(text: str) -> dict[str, Any]:
    try:
        found: dict[str, Any] = json.loads(text)
        return dict(found)
    except (TypeError, ValueError) as error:
        raise StoreError(f"A recorded value is damaged ({error}): {str(text)[:40]!r}. Move the file away.") from None


def workspace_row(workspace: str, did: WorkspaceCounts) -> dict[str, Any]:
    return {
        **{name: did.counts.get(name, 0) + 0 for name in COUNTED},
        "workspace": workspace,
        "caller": did.caller,
        "mode": did.mode,
        "opened": did.first,
        "last": did.last,
        "initial": did.initial_tools,
        "toolsets": json.dumps(did.toolsets),
    }


@dataclass(slots=True)
class TallyRows:
    """Tallies by the table that keeps them."""

    plain: list[tuple[int, str, str, float]] = field(default_factory=list)
    """Hour, name, key and value."""
    tools: list[dict[str, Any]] = field(default_factory=list)
    """By day and tool."""
    pairs: list[tuple[str, str, float, int]] = field(default_factory=list)
    """Two tools, workspaces and hour."""
    times: dict[tuple[int, str], Counter[str]] = field(default_factory=dict)
    """Counts per bucket, by hour and step."""


def tally_rows(cells: Cells) -> TallyRows:
    """Divide tallies among the tables."""
    rows, tools = TallyRows(), dict[tuple[int, str], dict[str, Any]]()
    for (name, hour, key), value in cells.items():
        if name in OF_TOOLS:
            empty = {**dict.fromkeys(OF_TOOLS.values(), 0), "day": hour // HOURS, "tool": key}
            tools.setdefault((hour // HOURS, key), empty)[OF_TOOLS[name]] += value
        elif name == "milliseconds":
            step, _, bucket = key.rpartition(" ")
            rows.times.setdefault((hour, step), Counter())[bucket] += int(value)
        elif name == "together":
            one, _, other = key.partition("\n")
            rows.pairs.append((one, other, value, hour))
        else:
            rows.plain.append((hour, name, key, value))
    rows.tools = list(tools.values())
    return rows
