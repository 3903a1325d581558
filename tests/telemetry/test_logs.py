"""What a real gateway says on stderr: how much, in which form, and never a secret."""

import json
import logging
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from shortlist.config.settings import LogSettings
from shortlist.observability.logs import (
    BURST_SECONDS,
    NOTICES,
    JsonLine,
    PlainLine,
    StderrHandler,
    configure_logs,
    lines_left_out,
    quieter,
)
from tests.telemetry.support import INITIALIZE, PROGRAM, SECONDS

SECRET = "sk-live-4f9a8b7c6d5e4f3a2b1c"
LEAKY = f"""
import sys
print("starting with api_key={SECRET}", file=sys.stderr, flush=True)
sys.exit(3)
"""


@pytest.fixture
def leaky(tmp_path: Path) -> Path:
    """Configure a server that prints its key and dies."""
    path = tmp_path / "leaky.json"
    path.write_text(json.dumps({"mcpServers": {"leaky": {"command": sys.executable, "args": ["-c", LEAKY]}}}))
    return path


def stderr_of(environment: dict[str, str], config: Path, *arguments: str) -> list[str]:
    """Serve until the server's first failure has been said, and give every line up to then."""
    command = [*PROGRAM, "serve", "--own", "--config", str(config), *arguments]
    pipes: Any = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    process: Any
    with subprocess.Popen(command, env=environment, text=True, **pipes) as process:
        process.stdin.write(json.dumps(INITIALIZE) + "\n")
        process.stdin.flush()
        answered = process.stdout.readline()
        lines = []
        for line in process.stderr:
            lines.append(line.rstrip("\n"))
            if "leaky" in line and "failed" in line:
                break
        process.stdin.close()
        rest = process.stdout.read()
        lines += process.stderr.read().splitlines()
        assert process.wait(SECONDS) == 0
    assert json.loads(answered)["id"] == 1
    assert rest == ""
    return lines


def test_lines_for_a_person_name_the_server_and_hide_its_key(environment: dict[str, str], leaky: Path) -> None:
    lines = stderr_of(environment, leaky)
    assert all(line.startswith("shortlist: ") for line in lines)
    assert any("warning: server 'leaky' is failed" in line for line in lines)
    assert "starting with" in "\n".join(lines)
    assert SECRET not in "\n".join(lines)


def test_lines_for_a_machine_are_objects(environment: dict[str, str], leaky: Path) -> None:
    lines = [json.loads(line) for line in stderr_of(environment, leaky, "--log-json", "--log-level", "debug")]
    failed = next(line for line in lines if line.get("server") == "leaky" and "is failed" in line["message"])
    served = next(line for line in lines if line["message"].startswith("initialize took"))
    assert {"time", "level", "logger", "message"} <= set(lines[0])
    assert failed["level"] == "warning"
    assert served["level"] == "debug"
    assert SECRET not in json.dumps(lines)


def test_the_configuration_sets_level_and_form(environment: dict[str, str], leaky: Path) -> None:
    document = json.loads(leaky.read_text())
    leaky.write_text(json.dumps({**document, "shortlist": {"logs": {"level": "warning", "json": True}}}))
    lines = [json.loads(line) for line in stderr_of(environment, leaky)]
    assert {line["level"] for line in lines} == {"warning"}


def test_a_level_that_is_none_is_refused(environment: dict[str, str], leaky: Path) -> None:
    command = [*PROGRAM, "serve", "--config", str(leaky), "--log-level", "loud"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=SECONDS, check=False)
    assert done.returncode == 2
    assert "debug" in done.stderr


def record(name: str = "shortlist.upstream", message: str = "key %s", *more: Any, **extra: Any) -> logging.LogRecord:
    found = logging.LogRecord(name, logging.WARNING, __file__, 1, message, more, None)
    vars(found).update(extra)
    return found


def test_what_a_caller_adds_is_part_of_the_object_and_masked_by_its_name() -> None:
    line = json.loads(JsonLine().format(record(message="down", server="s", token="abc")))
    assert line["server"] == "s"
    assert "abc" not in json.dumps(line)


def test_a_traceback_hides_secrets_too() -> None:
    try:
        raise RuntimeError(f"Authorization: Bearer {SECRET}")
    except RuntimeError:
        failed = record(message="broken")
        failed.exc_info = sys.exc_info()
    for form in (JsonLine(), PlainLine()):
        assert "RuntimeError" in form.format(failed)
        assert SECRET not in form.format(failed)


def test_a_notice_to_whoever_started_it_is_shown_as_it_is() -> None:
    link = f"http://127.0.0.1:1/open?key={SECRET}"
    assert PlainLine().format(record(NOTICES, link)) == f"shortlist: {link}"


def test_libraries_speak_of_warnings_only(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logs(LogSettings(level="debug"))
    try:
        logging.getLogger("httpx2").info("GET https://example.org/?key=1")
        logging.getLogger("httpx2").warning("slow")
        logging.getLogger("shortlist.search").debug("looked")
    finally:
        configure_logs(LogSettings())
    assert capsys.readouterr().err == "shortlist: warning: httpx2: slow\nshortlist: debug: looked\n"


def test_loggers_are_quieter_for_a_while_only() -> None:
    loud, quiet = logging.getLogger("shortlist.upstream"), logging.getLogger("shortlist.gateway.gateway")
    before = (loud.level, quiet.level)
    with quieter(logging.ERROR, loud.name, quiet.name):
        assert (loud.level, quiet.level) == (logging.ERROR, logging.ERROR)
    assert (loud.level, quiet.level) == before


def test_a_storm_of_lines_from_one_place_is_cut_and_counted(capsys: pytest.CaptureFixture[str]) -> None:
    handler = StderrHandler()
    for _ in range(10_000):
        handler.handle(record("uvicorn.error", "Invalid HTTP request received."))
    other = record(message="another place")
    other.lineno = 2
    handler.handle(other)
    for _ in range(10_000):
        handler.handle(record(NOTICES, "a notice"))
    lines = capsys.readouterr().err.splitlines()
    storm = [line for line in lines if "notice" not in line and "another" not in line]
    assert BURST_SECONDS <= len(storm) <= 2 * BURST_SECONDS
    assert handler.left_out >= 10_000 - len(storm)
    assert sum("another place" in line for line in lines) == 1
    assert sum("a notice" in line for line in lines) == 10_000


def test_the_next_line_says_how_many_were_left_out(
    capsys: pytest.CaptureFixture[str],
) -> None:
    handler = StderrHandler()
    for _ in range(int(BURST_SECONDS) + 50):
        handler.handle(record(message="bad"))
    capsys.readouterr()
    (allowance,) = handler._allowances.values()
    dropped, allowance._left = allowance.dropped, 1.0
    handler.handle(record(message="bad"))
    assert capsys.readouterr().err.splitlines()[-1].endswith(f"{dropped} more lines like this one were left out")


@pytest.mark.skipif(sys.platform == "win32", reason="pipes cannot be polled there")
def test_a_full_stderr_that_nobody_reads_stops_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    reading, writing = os.pipe()
    with os.fdopen(writing, "w") as full, os.fdopen(reading, "rb"):
        monkeypatch.setattr(sys, "stderr", full)
        configure_logs(LogSettings())
        log = threading.Thread(target=_log_much, daemon=True)
        log.start()
        log.join(30)
        monkeypatch.undo()
        assert not log.is_alive()
        assert lines_left_out() >= 30


def _log_much() -> None:
    for _ in range(50):
        logging.getLogger("shortlist").warning("x" * 5_000)


@pytest.mark.parametrize("form", [JsonLine(), PlainLine()])
@pytest.mark.parametrize("name", ["shortlist.upstream", NOTICES, "mcp.server"])
def test_what_a_message_quotes_reaches_no_terminal_as_a_command(form: logging.Formatter, name: str) -> None:
    hostile = "no \x1b[31mred\x1b]0;title\x07 \x9b2J \x08\x7f\r\u202eevil\u200b\U000e0041"
    try:
        raise RuntimeError(hostile)
    except RuntimeError:
        failed = record(name, "it says: %s", hostile)
        failed.exc_info = sys.exc_info()
    line = form.format(failed)
    assert "red" in line
    assert all(character.isprintable() or character == "\n" for character in line), ascii(line)


def test_a_message_cannot_forge_an_entry() -> None:
    line = PlainLine().format(record("shortlist", "it says: %s", "x\nshortlist: error: forged\r\nshortlist: forged"))
    assert [each.startswith("shortlist:") for each in line.splitlines()] == [True, False, False]
