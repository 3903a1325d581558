"""The tools: used, failing, near-duplicates, and never found."""

import json
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache

from shortlist.catalog.catalog import Catalog
from shortlist.disclosure.budget import estimate_tokens
from shortlist.errors import ShortlistError, StoreError
from shortlist.evals.duplicates import near_duplicates
from shortlist.gateway.view import definition_tokens
from shortlist.models import Json, Tool, ToolId
from shortlist.storage.port import StoredEvent
from shortlist.telemetry.figures import ToolFigures
from shortlist.web.forms import arguments_of, fields_of
from shortlist.web.page import Download, NoSuchPage, Page, Visit, possible

PER_PAGE = 50
LATEST_CALLS = 200
"""Those that the reasons of failures are counted in."""
SHOWN_CALLS = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolRow:
    """A tool and its usage."""

    tool: Tool
    name: str
    used: ToolFigures | None
    twins: tuple[ToolId, ...]

    @property
    def tokens(self) -> int:
        return definition_tokens(self.tool)

    @property
    def shown(self) -> int:
        return self.used.shown if self.used else 0

    @property
    def calls(self) -> int:
        return self.used.calls if self.used else 0

    @property
    def errors(self) -> float:
        return (self.used.error_rate if self.used else None) or 0.0

    @property
    def mrr(self) -> float | None:
        return self.used.mrr if self.used else None


VIEWS: Mapping[str, tuple[str, Callable[[ToolRow], bool]]] = {
    "": ("all", lambda _: True),
    "called": ("called", lambda row: row.calls > 0),
    "failing": ("failing", lambda row: row.errors > 0),
    "unseen": ("never found", lambda row: row.shown == 0),
    "uncalled": ("found, never called", lambda row: row.shown > 0 and row.calls == 0),
    "twins": ("near-duplicates", lambda row: bool(row.twins)),
}

SORTS: Mapping[str, tuple[str, Callable[[ToolRow], float]]] = {
    "calls": ("Calls", lambda row: -row.calls),
    "shown": ("Found", lambda row: -row.shown),
    "mrr": ("MRR", lambda row: 2.0 if row.mrr is None else row.mrr),
    "errors": ("Errors", lambda row: -row.errors),
    "time": ("Latency", lambda row: -((row.used.milliseconds if row.used else None) or 0.0)),
    "tokens": ("Tokens", lambda row: -row.tokens),
}
"""Sortable columns: highest first, and lowest first for the MRR."""


def listing(visit: Visit) -> Page:
    """Show the tools of a view that match a text, sorted, one page at a time."""
    view, sort = _one_of(visit, "view", VIEWS, ""), _one_of(visit, "sort", SORTS, "calls")
    letters, rows = visit.query.get("q", "").strip(), _rows(visit)
    fitting = [row for row in rows if _has(row, letters.lower())]
    chosen = sorted(filter(VIEWS[view][1], fitting), key=lambda row: (SORTS[sort][1](row), row.tool.id))
    pages = max(1, -(-len(chosen) // PER_PAGE))
    number = min(_number(visit.query.get("page", "")), pages)
    return Page(
        "tools.html",
        "Tools",
        {
            "rows": chosen[(number - 1) * PER_PAGE : number * PER_PAGE],
            "count": len(chosen),
            "total": len(rows),
            "views": {key: (words, sum(map(fits, fitting))) for key, (words, fits) in VIEWS.items()},
            "sorts": {key: words for key, (words, _) in SORTS.items()},
            "asked": {"view": view, "sort": sort, "q": letters},
            "page": number,
            "pages": pages,
        },
    )


def page(visit: Visit) -> Page:
    """Show one tool."""
    return _page(visit, _known(visit))


def _page(visit: Visit, tool_id: ToolId, answer: "CalledResult | None" = None) -> Page:
    row = next(row for row in _rows(visit) if row.tool.id == tool_id)
    calls = [] if visit.limited else _latest_calls(visit, tool_id)
    reasons = Counter(str(call.data["reason"]) for call in calls if call.data.get("reason"))
    values = {
        "row": row,
        "definition": json.dumps(row.tool.mcp(), indent=2, ensure_ascii=False),
        "calls": calls[:SHOWN_CALLS],
        "reasons": reasons.most_common(5),
        "can": visit.controls,
        "fields": fields_of(_schema(row.tool)) if visit.controls.call is not None else (),
        "filled": visit.form,
        "answer": answer,
    }
    return Page("tool.html", row.name, values)


def disable(visit: Visit) -> str:
    """Hide a tool from everybody."""
    possible(visit.controls.switch).turn(_known(visit), on=False)
    return "/servers?did=disable"


def call(visit: Visit) -> Page:
    """Call a tool with what the form says, as the visitor, and show what a client gets."""
    tool_id, run = _known(visit), possible(visit.controls.call)
    given = arguments_of(fields_of(_schema(visit.reach[tool_id])), visit.form)
    try:
        result = run(visit.session.principal, tool_id, given)
    except ShortlistError as error:
        result = {"content": [{"type": "text", "text": str(error)}], "isError": True}
    return _page(visit, tool_id, CalledResult(given, result))


@dataclass(frozen=True, slots=True)
class CalledResult:
    """What a call from the page returned."""

    arguments: Mapping[str, Json]
    result: Mapping[str, Json]

    @property
    def failed(self) -> bool:
        return bool(self.result.get("isError"))

    @property
    def text(self) -> str:
        """The result as a client gets it."""
        blocks = self.result.get("content") or ()
        texts = [str(block.get("text")) for block in blocks if isinstance(block, Mapping) and "text" in block]
        return "\n".join(texts) if len(texts) == len(blocks) else json.dumps(self.result, indent=2, ensure_ascii=False)

    @property
    def tokens(self) -> int:
        return estimate_tokens(self.text)


def _known(visit: Visit) -> ToolId:
    tool_id = visit.path["tool"]
    if not visit.may_see(tool_id):
        raise NoSuchPage(f"No tool {tool_id!r}.")
    return tool_id


def _schema(tool: Tool) -> Mapping[str, Json]:
    schema = tool.mcp().get("inputSchema")
    return schema if isinstance(schema, Mapping) else {}


def download(visit: Visit) -> Download:
    """Return the tools in reach as a table."""
    columns = ("tool", "calls", "found", "mrr", "error_rate", "milliseconds", "tokens")
    rows = sorted(_rows(visit), key=lambda row: (-row.calls, row.tool.id))
    return Download("tools", columns, [_cells(row) for row in rows])


def _cells(row: ToolRow) -> tuple[object, ...]:
    used = row.used
    figures = (used.error_rate, used.milliseconds) if used else (None, None)
    return (row.name, row.calls, row.shown, row.mrr, *figures, row.tokens)


def _rows(visit: Visit) -> list[ToolRow]:
    tools, used = visit.tools(), visit.use().tools
    families = _families(visit.state.everything.catalog)
    return [
        ToolRow(
            tool=tool,
            name=visit.reach.name(tool_id),
            used=used.get(tool_id),
            twins=tuple(twin for twin in families.get(tool_id, ()) if twin != tool_id and twin in tools),
        )
        for tool_id, tool in tools.items()
    ]


def _latest_calls(visit: Visit, tool_id: ToolId) -> list[StoredEvent]:
    try:
        calls = visit.filter.events(kinds=("called",), subject=tool_id, limit=LATEST_CALLS)
        return list(visit.record().events.events(calls))
    except StoreError:
        return []


def _one_of(visit: Visit, key: str, known: Mapping[str, object], otherwise: str) -> str:
    given = visit.query.get(key, otherwise)
    return given if given in known else otherwise


def _number(text: str) -> int:
    return max(1, int(text)) if text.isdecimal() and len(text) < 7 else 1


def _has(row: ToolRow, letters: str) -> bool:
    return letters in row.name.lower() or letters in row.tool.description.lower()


@lru_cache(maxsize=1)  # finding near-duplicates in a large catalog takes a second
def _families(catalog: Catalog) -> Mapping[ToolId, tuple[ToolId, ...]]:
    return {tool_id: family for family in near_duplicates(catalog.tools) for tool_id in family}
