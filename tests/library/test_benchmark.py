"""The side-by-side benchmark runs from end to end on a handful of tools."""

from importlib import import_module
from pathlib import Path

import pytest

from shortlist.index.cache import StoredVectors
from shortlist.storage.sqlite_vectors import SqliteVectors
from tests.fakes import WORKPLACE, HashingEmbedder


def test_the_tables_hold_ours_and_say_why_a_peer_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    benchmark = import_module("benchmarks.filter")
    (tmp_path / "cache").mkdir(exist_ok=True)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    tools = [
        {"id": tool_id, "server": tool_id.partition("/")[0], "name": tool_id.partition("/")[2], "description": text}
        for tool_id, text in WORKPLACE.items()
    ]
    model = benchmark.SharedModel(HashingEmbedder(), StoredVectors(SqliteVectors(tmp_path / "peers.sqlite")))
    sizes = {18: benchmark._measured(tools, ["merge a pull request", "send mail"], model, ["haystack", "plain-bm25"])}
    starts, answers = benchmark._start_table(sizes), benchmark._answer_table(sizes)
    assert {row[0] for row in starts.rows} >= {"shortlist, first start", "shortlist, second start"}
    measured = {row[0] for row in answers.rows}
    assert {"shortlist, cold", "shortlist, cached", "shortlist, words", "the model alone", "plain-bm25"} <= measured
    assert "haystack" in measured or any("haystack" in note for note in answers.notes)
