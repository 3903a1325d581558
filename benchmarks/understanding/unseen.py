"""Chats over 171 servers that no chat was fitted on, by 12 writers whose chats are fitted on nowhere.

Four writers were asked for everyday last turns ("close 315"), eight for indirect ones, where siblings of the right tool
compete; both wrote changes of the topic to another server (`switch`). Of these chats only the figures are read. Others
by the same writers showed which messages must be read with the chat although they are sure of a tool; the changes of
the topic were among what that was chosen by. The servers come from the benchmark catalogs.
"""

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from benchmarks.understanding.cases import Outcome, outcome, percent, read, wishes_of
from benchmarks.understanding.chats import hit_rows
from benchmarks.understanding.row import DATA, Row, Setup
from training.bench import chat_messages, data_folder, read_lines

from shortlist import ToolFilter

STYLES = {
    "everyday": "everyday last turn that needs the turns before",
    "indirect": "indirect last turn that needs the turns before",
    "switch": "change of the topic",
}


def rows(setup: Setup) -> list[Row]:
    source, cases = ToolFilter(_servers(), embedding=setup.embedding), read("unseen")
    return [
        row for style in STYLES for row in _style(source, style, [case for case in cases if case["style"] == style])
    ]


def _style(source: ToolFilter, style: str, cases: Sequence[Mapping[str, Any]]) -> Iterator[Row]:
    found = [_answer(source, case, chat_messages(case["turns"])) for case in cases]
    plain = [_answer(source, case, case["plain"]) for case in cases]
    name = f"{STYLES[style]}, unseen servers"
    for first, row in zip((1, 5), hit_rows(name, found, 75, 92), strict=True):
        clean = percent([each.hit(first) for each in plain])
        yield Row(request=row.request, metric=row.metric, values=row.values, asked=row.asked, english=clean)
    sure = [float(each.is_wrong_with_high_confidence) for each in found if each.level == "high"]
    yield Row(request=f"high confidence, {style}, unseen servers", metric="wrong", values=sure, asked=5, at_most=True)


def _answer(source: ToolFilter, case: Mapping[str, Any], asked: Any) -> Outcome:
    return outcome(source.filter(asked, limit=10), wishes_of(dict(case)))


def _servers() -> list[dict[str, Any]]:
    named = json.loads((DATA / "unseen_servers.json").read_text("utf-8"))
    by_source = {(each["catalog"], each["server"]): name for name, each in named.items()}
    tools: defaultdict[str, list[dict[str, Any]]] = defaultdict(list)
    for catalog in sorted({each["catalog"] for each in named.values()}):
        for tool in read_lines(data_folder(None) / "catalogs" / catalog / "tools.jsonl.gz"):
            if name := by_source.get((catalog, tool["server"])):
                schema, about = tool.get("input_schema") or {"type": "object"}, tool.get("description", "")
                tools[name].append({"name": tool["name"], "description": about, "inputSchema": schema})
    return [{"name": name, "tools": listed} for name, listed in sorted(tools.items())]
