"""The front's own streams, in a process of their own: a program that sends back every message it gets."""

import json
import socket
import struct
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from shortlist.upstream.framing import CLIENT_VALUES

PROGRAM = """
import subprocess
import anyio
from shortlist.config.settings import Limits
from shortlist.front.stdio import open_front

async def main():
    async with open_front(Limits(message_bytes=2_000_000)) as (incoming, outgoing), incoming, outgoing:
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
BLOCKED_SECONDS = 3
LIMIT = 2_000_000


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "config.json"
    path.write_text('{"mcpServers": {}}', "utf-8")
    return path


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
    half = json.dumps(ping(2, text="cut \ud83d")).encode() + b"\n"
    marked = b"\xef\xbb\xbf" + lines_of([ping(3)])
    lines = b"hello\n\n" + broken + half + marked
    done = subprocess.run(COMMAND, input=lines, capture_output=True, check=True, timeout=SECONDS)
    assert sent_back(done.stdout) == [ping(1, text="�"), ping(2, text="cut ?"), ping(3)]


def test_a_request_that_is_not_valid_is_answered_so_that_nobody_waits_for_it() -> None:
    wrong = [{**ping(1), "jsonrpc": "1.0"}, {**ping(2), "params": [1]}, {"jsonrpc": "2.0", "id": "3", "method": 7}]
    numbers: tuple[Any, ...] = (1.5, None, True, [])
    wrong += [{**ping(0), "id": number} for number in numbers]
    done = subprocess.run(COMMAND, input=lines_of([*wrong, ping(4)]), capture_output=True, check=True, timeout=SECONDS)
    *refused, last = sent_back(done.stdout)
    assert [each["id"] for each in refused] == [1, 2, "3", None, None, None, None]
    assert {each["error"]["code"] for each in refused} == {-32600}
    assert last == ping(4)


def test_a_request_that_cannot_be_parsed_is_answered_too() -> None:
    deep = [
        b'{"jsonrpc":"2.0","id":%d,"method":"ping","params":%s1%s}' % (n, b'{"a":' * n, b"}" * n) for n in (300, 60_000)
    ]
    answer = b'{"jsonrpc":"2.0","id":7,"result":{"method":'
    done = subprocess.run(
        COMMAND, input=b"\n".join([*deep, answer, b"hello"]), capture_output=True, check=True, timeout=SECONDS
    )
    assert [(each["id"], each["error"]["code"]) for each in sent_back(done.stdout)] == [(300, -32600), (60_000, -32600)]


def test_a_client_that_closes_its_end_of_stdout_ends_the_gateway_without_a_traceback(config: Path) -> None:
    pipe = subprocess.PIPE
    command = [*GATEWAY, "serve", "--own", "--config", str(config)]
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe) as process:
        assert process.stdin
        assert process.stdout
        process.stdin.write(lines_of([ping(1)]))
        process.stdin.flush()
        process.stdout.readline()
        process.stdout.close()
        process.stdin.write(lines_of([ping(number) for number in range(2, 2_000)]) + b'{"id":1,"method":"\n' * 9)
        process.stdin.close()
        assert process.wait(SECONDS) == 0
        assert process.stderr
        assert b"Traceback" not in process.stderr.read()


def test_a_request_over_the_limit_is_answered_with_an_error_and_the_next_one_as_ever() -> None:
    huge, unnamed = ping(7, text="x" * LIMIT), b"x" * (LIMIT + 1) + b"\n"
    many = json.dumps(ping(8, values=[0] * (CLIENT_VALUES + 1)), separators=(",", ":")).encode() + b"\n"
    sent = lines_of([ping(1), huge]) + unnamed + many + lines_of([ping(2)])
    done = subprocess.run(COMMAND, input=sent, capture_output=True, check=True, timeout=SECONDS)
    first, refused, nameless, countless, last = sent_back(done.stdout)
    assert (first, last) == (ping(1), ping(2))
    assert (refused["id"], refused["error"]["code"]) == (7, -32600)
    assert "is over the limit of 2,000,000 (limits.message_bytes)" in refused["error"]["message"]
    assert nameless["id"] is None
    assert (countless["id"], countless["error"]["code"]) == (8, -32600)


def test_who_waits_for_an_answer_over_the_limit_gets_an_error() -> None:
    answer = {"jsonrpc": "2.0", "id": 7, "result": {"text": "x" * LIMIT}}
    done = subprocess.run(COMMAND, input=lines_of([answer]), capture_output=True, check=True, timeout=SECONDS)
    (passed_on,) = sent_back(done.stdout)
    assert passed_on["id"] == 7
    assert passed_on["error"]["message"].startswith("the answer of 2,000,0")


def test_a_last_line_without_an_end_is_a_message_too() -> None:
    done = subprocess.run(COMMAND, input=lines_of([ping(1)]).rstrip(), capture_output=True, check=True, timeout=SECONDS)
    assert sent_back(done.stdout) == [ping(1)]


@pytest.mark.parametrize(("closed", "how"), [("stdin", "<&-"), ("stdout", ">&-")])
def test_a_gateway_without_a_client_says_so(closed: str, how: str) -> None:
    line = f'exec "$0" "$@" {how}'
    done = subprocess.run(
        ["sh", "-c", line, *GATEWAY, "serve"], capture_output=True, text=True, check=False, timeout=SECONDS
    )
    assert done.returncode == 2
    assert done.stderr.startswith(f"shortlist: {closed} is closed")
    assert len(done.stderr.splitlines()) == 1


def test_a_connection_that_breaks_ends_the_gateway_with_a_word(config: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        here = socket.create_connection(listener.getsockname())
        there, _ = listener.accept()
    with (
        there,
        subprocess.Popen(
            [*GATEWAY, "serve", "--own", "--config", str(config)],
            stdin=there.fileno(),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as process,
    ):
        here.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # breaks when it closes
        here.close()
        _, said = process.communicate(timeout=SECONDS)
    assert process.returncode == 0
    assert "the client is gone: its messages cannot be read (Connection reset by peer)" in said
    assert "Traceback" not in said


def test_a_client_that_sends_without_reading_is_read_no_further_until_it_does(config: Path) -> None:
    asked = [{"jsonrpc": "2.0", "id": f"{number}{'x' * 10_000}", "method": "nothing"} for number in range(3_000)]
    command = [*GATEWAY, "serve", "--own", "--config", str(config)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    assert process.stdin is not None
    assert process.stdout is not None
    with process:
        sender = threading.Thread(target=process.stdin.write, args=[lines_of(asked)])
        sender.start()
        assert process.stdout.read(1) == b"{"
        sender.join(BLOCKED_SECONDS)
        assert sender.is_alive()
        answered = {json.loads(b"{" + process.stdout.readline())["id"]}
        answered |= {json.loads(process.stdout.readline())["id"] for _ in asked[1:]}
        sender.join(SECONDS)
        process.stdin.close()
        assert process.wait(SECONDS) == 0
    assert answered == {each["id"] for each in asked}


def test_a_client_that_leaves_too_many_bytes_unread_is_disconnected() -> None:
    program = PROGRAM.replace("message_bytes=2_000_000", "unread_bytes=3_000_000").replace(
        "await outgoing.send(item)", "[tasks.start_soon(outgoing.send, item) for _ in range(10)]"
    )
    program = program.replace("async for", "async with anyio.create_task_group() as tasks:\n          async for")
    process = subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdin is not None
    with process:
        process.stdin.write(lines_of([ping(1, text="x" * 1_000_000)]))
        process.stdin.flush()
        assert process.wait(SECONDS) == 1  # the streams are broken, which this program does not handle


@pytest.mark.parametrize("is_gone", [False, True], ids=["never reads", "is gone"])
def test_a_client_that_leaves_an_answer_unread_does_not_keep_the_gateway(config: Path, is_gone: bool) -> None:
    command = [*GATEWAY, "serve", "--own", "--config", str(config)]
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
