"""The front's own streams, in a process of their own: a program that sends back every message it gets."""

import json
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

PROGRAM = """
import subprocess
import anyio
from shortlist.gateway.stdio import open_front

async def main():
    async with open_front() as (incoming, outgoing), incoming, outgoing:
        print("printed by mistake", flush=True)
        subprocess.run(["echo", "printed by a child"])
        async for item in incoming:
            if not isinstance(item, Exception):
                await outgoing.send(item)

anyio.run(main)
"""
GATEWAY = [sys.executable, "-c", "import sys; from shortlist.cli import main; sys.exit(main())"]
COMMAND = [sys.executable, "-c", PROGRAM]
SECONDS = 60


def ping(number: int, **more: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": number, "method": "ping", "params": more}


def lines_of(messages: list[dict[str, Any]]) -> bytes:
    return b"".join(json.dumps(message, ensure_ascii=False).encode() + b"\n" for message in messages)


def sent_back(output: bytes) -> list[dict[str, Any]]:
    return [json.loads(line) for line in output.splitlines()]


def test_every_message_comes_whole_and_in_order_also_those_larger_than_a_pipe() -> None:
    messages = [ping(number, text="€" * size) for number, size in enumerate((1, 500_000, 0, 70_000, 3))]
    done = subprocess.run(COMMAND, input=lines_of(messages), capture_output=True, check=True, timeout=SECONDS)
    assert sent_back(done.stdout) == messages


def test_what_is_printed_is_no_message() -> None:
    done = subprocess.run(COMMAND, input=lines_of([ping(1)]), capture_output=True, check=True, timeout=SECONDS)
    assert sent_back(done.stdout) == [ping(1)]
    assert b"printed by mistake" in done.stderr
    assert b"printed by a child" in done.stderr


def test_a_line_that_is_no_message_is_passed_over_and_a_broken_character_replaced() -> None:
    broken = lines_of([ping(1, text="?")]).replace(b"?", b"\xff")
    done = subprocess.run(COMMAND, input=b"hello\n\n" + broken, capture_output=True, check=True, timeout=SECONDS)
    assert sent_back(done.stdout) == [ping(1, text="�")]


@pytest.mark.parametrize("is_gone", [False, True], ids=["never reads", "is gone"])
def test_a_client_that_leaves_an_answer_unread_does_not_keep_the_gateway(tmp_path: Path, is_gone: bool) -> None:
    config = tmp_path / "config.json"
    config.write_text('{"mcpServers": {}}', "utf-8")
    command = [*GATEWAY, "serve", "--config", str(config)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    assert process.stdin is not None
    assert process.stdout is not None
    with process:
        process.stdin.write(lines_of([{"jsonrpc": "2.0", "id": "x" * 500_000, "method": "nothing"}]))
        process.stdin.flush()
        assert process.stdout.read(1) == b"{"  # it answers, and more than fits into the pipe
        if is_gone:
            process.stdout.close()
        process.stdin.close()
        assert process.wait(SECONDS) == 0


def test_a_file_is_served_too(tmp_path: Path) -> None:
    asked = tmp_path / "asked.jsonl"
    asked.write_bytes(lines_of([ping(1), ping(2)]))
    with asked.open("rb") as stdin:
        done = subprocess.run(COMMAND, stdin=stdin, capture_output=True, check=True, timeout=SECONDS)
    assert sent_back(done.stdout) == [ping(1), ping(2)]


def test_one_socket_serves_both_ways() -> None:
    here, there = socket.socketpair()
    with here, subprocess.Popen(COMMAND, stdin=there.fileno(), stdout=there.fileno()) as process:
        there.close()
        here.settimeout(SECONDS)
        here.sendall(lines_of([ping(1)]))
        assert json.loads(here.recv(4_096)) == ping(1)
        here.sendall(lines_of([ping(2)]))
        assert json.loads(here.recv(4_096)) == ping(2)
        here.shutdown(socket.SHUT_WR)
        assert process.wait(SECONDS) == 0
