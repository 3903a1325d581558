"""Lines out of chunks: nothing is lost, nothing grows without bound, and a dropped answer names its request."""

import asyncio
import json
import threading
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shortlist.large import LARGE_BYTES, TooManyValues, read_json
from shortlist.upstream import framing
from shortlist.upstream.framing import (
    CLIENT_VALUES,
    ERROR_BYTES,
    ERROR_CHARACTERS,
    MOST_VALUES,
    NESTED_TOO_DEEPLY,
    NOTIFICATION_BYTES,
    EventSplitter,
    EventTooLarge,
    LineSplitter,
    Oversized,
    decode,
    read_client_line,
    read_line,
    read_line_beside,
)
from shortlist.upstream.stdio import CHUNK_BYTES, StdioChannel

LIMIT = 64


@given(st.lists(st.binary(max_size=40)), st.integers(1, 50))
def test_lines_do_not_depend_on_how_the_stream_was_cut(lines: list[bytes], size: int) -> None:
    lines = [line.replace(b"\n", b"") for line in lines]
    stream = b"".join(line + b"\n" for line in lines)
    splitter = LineSplitter(LIMIT)
    chunks = [stream[start : start + size] for start in range(0, len(stream), size)]
    assert [line for chunk in chunks for line in splitter.feed(chunk)] == [line for line in lines if line]


@given(st.integers(LIMIT + 1, 20_000), st.integers(1, 7_000))
def test_a_line_over_the_limit_is_dropped_and_the_next_is_whole(length: int, size: int) -> None:
    stream = b"x" * length + b"\nnext\n"
    splitter = LineSplitter(LIMIT)
    chunks = [stream[start : start + size] for start in range(0, len(stream), size)]
    dropped, kept = [line for chunk in chunks for line in splitter.feed(chunk)]
    assert isinstance(dropped, Oversized)
    assert dropped.size == length
    assert kept == b"next"


def dropped(message: dict[str, Any]) -> Any:
    (line,) = LineSplitter(LIMIT).feed(json.dumps(message).encode() + b"\n")
    return read_line(line)


def test_a_dropped_answer_fails_the_request_it_was_for_wherever_its_id_stands() -> None:
    result = {"content": [{"id": 9, "text": "x" * 10_000, "id2": {"id": 8}}]}
    first = dropped({"jsonrpc": "2.0", "id": 3, "result": result})
    last = dropped({"result": result, "jsonrpc": "2.0", "id": "three"})
    assert (first["id"], last["id"]) == (3, "three")
    assert "over the limit of 64" in first["error"]["message"]


def test_an_id_inside_the_answer_is_never_taken_for_its_own() -> None:
    assert dropped({"result": {"id": 9, "text": "x" * 10_000, "more": {"id": 8}}}) is None


def test_a_broken_answer_fails_its_request_and_other_lines_are_no_messages() -> None:
    broken = read_line(b'{"jsonrpc": "2.0", "id": 3, "result": {"a": \xff}}')
    assert broken is not None
    assert broken["id"] == 3
    assert "error" in broken
    assert read_line(b"Server listening on port 3000") is None
    whole = read_line(b'{"jsonrpc": "2.0", "id": 3, "result": {"a": 1}}')
    assert whole == {"jsonrpc": "2.0", "id": 3, "result": {"a": 1}}


@given(st.binary(max_size=200))
def test_no_line_raises(line: bytes) -> None:
    read_line(line)


def result_of(text: str) -> Any:
    """Return what is read of a result that is written with escapes, as `json.dumps` does."""
    message = read_line(json.dumps({"jsonrpc": "2.0", "id": 3, "result": {"text": text}}).encode())
    return message["result"]["text"] if message is not None and "result" in message else None


def test_half_an_emoji_costs_itself_and_nothing_else() -> None:
    texts = ("cut \ud83d", "\ude00\ud83d", "whole \U0001f600", "\ud83d\U0001f600", "a backslash and \\ud83d")
    expected = ["cut ?", "??", "whole \U0001f600", "?\U0001f600", "a backslash and \\ud83d"]
    assert [result_of(text) for text in texts] == expected


def test_half_an_emoji_in_a_long_text_costs_itself_and_nothing_else() -> None:
    assert result_of("\ud83d" + "x" * 2_000_000 + "\U0001f600\ude00") == "?" + "x" * 2_000_000 + "\U0001f600?"


def test_a_long_error_is_cut_and_keeps_its_code() -> None:
    error = {"code": -32042, "message": "m" * ERROR_BYTES, "data": ["d"]}
    cut = read_line(json.dumps({"jsonrpc": "2.0", "id": 3, "error": error}).encode())
    assert cut is not None
    assert cut["error"]["code"] == -32042
    assert cut["error"]["message"].startswith("m" * ERROR_CHARACTERS + " … (an error of 65,")
    short = {"jsonrpc": "2.0", "id": 3, "error": {**error, "message": "m"}}
    assert read_line(json.dumps(short).encode()) == short


def test_a_notification_over_its_limit_is_dropped_and_a_request_is_not() -> None:
    message = {"jsonrpc": "2.0", "method": "notifications/message", "params": {"data": "x" * NOTIFICATION_BYTES}}
    assert read_line(json.dumps(message).encode()) is None
    assert read_line(json.dumps({**message, "id": 1}).encode()) is not None


@pytest.mark.parametrize("values", [b"[]," * MOST_VALUES, b"0," * MOST_VALUES, b'{"a":[[1]]},' * (MOST_VALUES // 3)])
def test_an_answer_with_too_many_values_fails_its_request_and_is_not_parsed(values: bytes) -> None:
    (line,) = LineSplitter(len(values) + 100).feed(b'{"jsonrpc":"2.0","id":3,"result":{"a":[' + values + b"0]}}\n")
    failed = read_line(line)
    assert isinstance(line, bytes)
    assert isinstance(read_client_line(line), Oversized)
    assert failed is not None
    assert (failed["id"], failed["error"]["message"]) == (3, "the answer has more than 1,000,000 JSON values")
    with pytest.raises(TooManyValues):
        decode(b"[" + values + b"0]")


def test_a_client_may_send_fewer_values_than_a_server() -> None:
    line = b'{"id":3,"method":"ping","params":{"a":[' + b"0," * CLIENT_VALUES + b"0]}}"
    refused = read_client_line(line)
    assert isinstance(refused, Oversized)
    assert refused.reason == "has more than 200,000 JSON values"
    assert len(decode(line)["params"]["a"]) == CLIENT_VALUES + 1


@pytest.mark.anyio
async def test_a_long_line_is_read_in_pieces_in_another_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    threads: list[threading.Thread] = []

    def noted(*given: Any) -> Any:
        threads.append(threading.current_thread())
        return read_json(*given)

    monkeypatch.setattr(framing, "read_json", noted)
    rows = [{"id": number, "cut": "\\ud83d"} for number in range(3_000)]
    line = json.dumps({"id": 3, "result": {"rows": rows}}).replace("\\\\", "\\").encode()
    message = await read_line_beside(line)
    assert message is not None
    assert message["result"]["rows"][2_999] == {"id": 2_999, "cut": "?"}
    assert len(threads) == 1
    assert threading.main_thread() not in threads


@pytest.mark.parametrize("text", ["a,[{" * MOST_VALUES, '"a","b",' * MOST_VALUES, "\\," * MOST_VALUES])
def test_what_a_text_contains_is_not_counted_as_values(text: str) -> None:
    assert decode(json.dumps({"id": 3, "result": {"text": text}}).encode())["result"]["text"] == text


def test_lines_of_an_event_take_no_more_memory_than_their_bytes() -> None:
    splitter = EventSplitter(10_000_000)
    assert list(splitter.feed(b"data:ab\n" * 100_000)) == []
    assert splitter._data.__sizeof__() < 1_000_000
    (event,) = splitter.feed(b"\n")
    assert event.data == b"\n".join([b"ab"] * 100_000)


def test_an_event_of_millions_of_short_lines_is_too_large() -> None:
    splitter = EventSplitter(10_000_000)
    with pytest.raises(EventTooLarge):
        list(splitter.feed(b"id: 1\n" * 200_000))


@pytest.mark.parametrize("end", [b"\n", b"\r", b"\r\n"])
@pytest.mark.parametrize("size", [1, 2, 3, 1000])
def test_an_event_is_complete_with_its_last_line_end_whatever_comes_after_it(end: bytes, size: int) -> None:
    stream = b"".join([b"id: 1", end, b"data: a", end, b"data: b", end, end, b"data: c", end, end])
    splitter = EventSplitter(1000)
    found = [event for at in range(0, len(stream), size) for event in splitter.feed(stream[at : at + size])]
    assert [(event.id, event.data) for event in found] == [("1", b"a\nb"), (None, b"c")]


def test_a_byte_order_mark_before_a_message_or_a_stream_is_ignored() -> None:
    answer = b'\xef\xbb\xbf{"jsonrpc":"2.0","id":1,"result":{}}'
    assert read_line(answer) == {"jsonrpc": "2.0", "id": 1, "result": {}}
    assert [event.data for event in EventSplitter(1000).feed(b"\xef\xbb\xbfdata: 1\n\ndata: 2\n\n")] == [b"1", b"2"]


@pytest.mark.anyio
async def test_a_channel_keeps_no_message_while_it_waits_for_the_next_one() -> None:
    stdout, unused, delivered = asyncio.StreamReader(), None, asyncio.Event()
    channel = StdioChannel(unused, stdout, unused, 10 * CHUNK_BYTES)  # type: ignore[arg-type]
    task = asyncio.create_task(channel.run(lambda _: delivered.set()))
    stdout.feed_data(b'{"jsonrpc": "2.0", "id": 1, "result": {"text": "%b"}}\n' % (b"x" * 3 * CHUNK_BYTES))
    await delivered.wait()
    frame: Any = task.get_coro().cr_frame  # type: ignore[union-attr]
    sizes = [len(each) for each in frame.f_locals.values() if isinstance(each, bytes)]
    stdout.feed_eof()
    await task
    assert all(size <= CHUNK_BYTES for size in sizes)


def nested(levels: int) -> Any:
    value: Any = '[{" in a string'
    for _ in range(levels):
        value = {"a]}": [value, 1]}
    return value


def levels_of(value: Any) -> int:
    inside = value.values() if isinstance(value, dict) else value if isinstance(value, list) else None
    return 0 if inside is None else 1 + max(map(levels_of, inside), default=0)


@pytest.mark.anyio
@pytest.mark.parametrize("length", [1, 2 * LARGE_BYTES], ids=["short", "long"])
@given(depths=st.lists(st.integers(0, 300), max_size=5))
async def test_of_a_list_only_items_that_are_nested_too_deeply_are_left_out(length: int, depths: list[int]) -> None:
    items = [{"name": f"{number}", "b": nested(depth // 2)} for number, depth in enumerate(depths)]
    for key in ("tools", "prompts"):
        whole = {"jsonrpc": "2.0", "id": 3, "result": {key: items, "more": "x" * length}}
        message = await read_line_beside(json.dumps(whole).encode())
        assert message is not None
        kept = [item for item in message["result"][key] if NESTED_TOO_DEEPLY not in item]
        assert kept == [item for item in items if levels_of(item) <= 200 - 3]
        left = [item["name"] for item in message["result"][key] if NESTED_TOO_DEEPLY in item]
        assert left == [item["name"] for item in items if levels_of(item) > 200 - 3 and key == "tools"]


HOSTILE_AS_A_WHOLE: dict[str, tuple[str, str]] = {
    "brackets that never close": ('{"tools": [' + "[" * 100_000, "not valid JSON-RPC"),
    "a result that is no list": ('{"a": ' + "[" * 100_000 + "]" * 100_000 + "}", "nested more than 200 levels"),
    "a list that is not of items": (
        '{"tools": ' + "[" * 300 + "]" * 300 + ', "_meta": ' + "[" * 300 + "]" * 300 + "}",
        "",
    ),
    "more values than are read": ('{"tools": [' + "[" * 1_000_001 + "]" * 1_000_001 + "]}", "more than 1,000,000"),
}


@pytest.mark.anyio
@pytest.mark.parametrize("name", HOSTILE_AS_A_WHOLE)
async def test_a_message_that_is_hostile_as_a_whole_fails_its_request(name: str) -> None:
    result, reason = HOSTILE_AS_A_WHOLE[name]
    message = await read_line_beside(f'{{"jsonrpc": "2.0", "id": 3, "result": {result}}}'.encode())
    assert message is not None
    assert message["id"] == 3
    assert reason in message["error"]["message"]
