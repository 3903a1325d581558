"""`shortlist explain` with a chat: from a file, from stdin, and what is wrong with either."""

import json
from collections.abc import Callable
from io import StringIO
from pathlib import Path
from typing import TypeAlias

import pytest

from shortlist import ToolFilter
from shortlist.cli import main
from shortlist.demo import CATALOG
from shortlist.evals.datasets import demo_catalog

CHAT = json.dumps(
    [
        {"role": "user", "content": "show me the pull request 91"},
        {"role": "assistant", "content": "It is approved."},
        {"role": "user", "content": "now merge it"},
    ]
)

Explain: TypeAlias = Callable[..., int]


@pytest.fixture
def explain(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Explain:
    """Run the command over the tools of one server, in a home of its own."""
    for kind in ("CONFIG", "DATA", "CACHE", "STATE"):
        monkeypatch.setenv(f"XDG_{kind}_HOME", str(tmp_path / kind.lower()))

    def run(*arguments: str, stdin: str = "") -> int:
        monkeypatch.setattr("sys.stdin", StringIO(stdin))
        return main(["explain", *arguments, "--catalog", str(CATALOG / "github.json"), "--embedder", "none"])

    return run


def test_a_chat_is_explained_from_a_file(explain: Explain, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "chat.json").write_text(CHAT)
    assert explain("--chat", str(tmp_path / "chat.json")) == 0
    printed = capsys.readouterr().out
    assert printed.startswith("github/merge_pull_request: rank 1")
    assert "the request continues the chat" in printed
    assert "taken from the chat: 'the pull request 91'" in printed


def test_a_chat_is_explained_as_a_filter_ranks_it(
    explain: Explain, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    call = {"id": "1", "type": "function", "function": {"name": "gitlab__gitlab_list_issues", "arguments": "{}"}}
    chat = [
        {"role": "user", "content": "show my issues"},
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "1", "content": "ok"},
        {"role": "assistant", "content": "One: #4, the app crashes at the start."},
        {"role": "user", "content": "close issue 4"},
    ]
    (tmp_path / "chat.json").write_text(json.dumps(chat))
    found = ToolFilter(demo_catalog(), embedding="small").filter(chat)
    assert main(["explain", "--chat", str(tmp_path / "chat.json"), "--embedder", "small"]) == 0
    printed = capsys.readouterr().out
    assert printed.startswith(f"{found.tools[0].id}: rank 1")
    assert f"confidence: {found.confidence.level}" in printed


def test_a_tool_is_explained_for_a_chat_from_stdin(explain: Explain, capsys: pytest.CaptureFixture[str]) -> None:
    body = json.dumps({"model": "any", "messages": json.loads(CHAT)})
    assert explain("github__create_issue", "--chat", "-", "--json", stdin=body) == 0
    printed = json.loads(capsys.readouterr().out)
    assert (printed["tool"], printed["taken"]) == ("github/create_issue", "the pull request 91")
    assert printed["confidence"]["level"] in ("none", "low", "medium", "high")


@pytest.mark.parametrize(
    ("arguments", "stdin", "problem"),
    [
        ((), "", "Say what the tool should do, in quotes, or pass a chat: --chat FILE."),
        (("merge it", "a_tool", "--chat", "-"), "[]", "With --chat, pass the tool alone, not also 'merge it'."),
        (("--chat", "nowhere.json"), "", "The chat in nowhere.json cannot be read: No such file or directory."),
        (("--chat", "-"), "hello", "The chat on stdin is not valid JSON"),
        (("--chat", "-"), "{}", "The chat on stdin must be a list of messages"),
        (("--chat", "-"), "[]", "None of the messages holds text"),
    ],
)
def test_what_cannot_be_explained_is_an_error_that_says_what_to_do(
    explain: Explain, arguments: tuple[str, ...], stdin: str, problem: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert explain(*arguments, stdin=stdin) == 2
    assert problem in capsys.readouterr().err
