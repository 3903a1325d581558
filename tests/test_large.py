"""Large JSON is read and written in pieces, with the same result as in one step."""

import json
import threading
from typing import Any

import anyio
import anyio.to_thread
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic_core import from_json, to_json

from shortlist import large
from shortlist.large import TooManyValues, beside, check_values, is_large, read_json, write_json, written

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=40) | st.sampled_from(
    ['\\"' * 9, "\\" * 12, "😀" * 7, "[{,:}]", '","', "é" * 9, "\x00\x1f\x7f"]
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**60), 2**60) | st.floats(allow_nan=False, allow_infinity=False) | TEXTS,
    lambda inner: st.lists(inner, max_size=8) | st.dictionaries(TEXTS, inner, max_size=8),
    max_leaves=40,
)
MOST = 10_000


@pytest.fixture
def _tiny_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(large, "PIECE_BYTES", 40)
    monkeypatch.setattr(large, "PIECE_MARKS", 3)
    monkeypatch.setattr(large, "BLOCK_BYTES", 5)


@pytest.mark.usefixtures("_tiny_pieces")
@given(JSON, st.booleans(), st.sampled_from([None, 1]))
def test_what_is_read_in_pieces_equals_what_is_read_at_once(value: Any, ascii_only: bool, indent: int | None) -> None:
    data = json.dumps(value, ensure_ascii=ascii_only, indent=indent).encode()
    assert read_json(data, MOST) == from_json(data)


@pytest.mark.usefixtures("_tiny_pieces")
@given(JSON)
def test_what_is_written_in_pieces_equals_what_is_written_at_once(value: Any) -> None:
    assert write_json(value) == to_json(value, inf_nan_mode="null")


@pytest.mark.usefixtures("_tiny_pieces")
@given(JSON, st.integers(0, 400), st.sampled_from([*b'[]{},:"\\ 1', None]))
def test_text_that_is_not_valid_is_refused_in_pieces_too(value: Any, place: int, byte: int | None) -> None:
    data = bytearray(json.dumps(value).encode())
    place %= len(data)
    data[place : place + 1] = b"" if byte is None else bytes([byte])
    try:
        expected = from_json(bytes(data))
    except ValueError:
        with pytest.raises(ValueError, match=r"."):
            read_json(bytes(data), MOST)
    else:
        assert read_json(bytes(data), MOST) == expected


@pytest.mark.parametrize("data", [b"[" * 300 + b"]" * 300, b'{"a":' * 300 + b"1" + b"}" * 300])
def test_too_many_levels_are_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match="levels"):
        read_json(data, MOST)


def test_values_are_counted_before_any_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(large, "from_json", None)
    with pytest.raises(TooManyValues):
        read_json(b"[" + b"0," * MOST + b"0]", MOST)
    with pytest.raises(TooManyValues):
        check_values(b"[" + b"0," * MOST + b"0]", MOST)
    check_values(b'["' + b",[{" * MOST + b'"]', MOST)


@pytest.mark.anyio
async def test_large_values_are_written_in_another_thread_and_small_ones_here(monkeypatch: pytest.MonkeyPatch) -> None:
    threads: list[threading.Thread] = []
    plain = to_json

    def noted(*given: Any, **options: Any) -> bytes:
        threads.append(threading.current_thread())
        return plain(*given, **options)

    monkeypatch.setattr(large, "to_json", noted)
    value = {"rows": [{"id": number, "text": "some text"} for number in range(20_000)]}
    assert is_large(value)
    assert await written(value) == plain(value)
    assert len(threads) > 10
    assert threading.main_thread() not in threads
    threads.clear()
    assert await written({"text": "hello"}) == b'{"text":"hello"}'
    assert threads == [threading.main_thread()]


@pytest.mark.anyio
@pytest.mark.parametrize("kind", ["read", "write"])
async def test_work_that_nobody_waits_for_stops_after_the_piece_that_it_is_at(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, goes_on, ended = threading.Event(), threading.Event(), threading.Event()
    pieces: list[object] = []
    plain: Any = {"read": from_json, "write": to_json}[kind]

    def noted(piece: object, **more: Any) -> Any:
        pieces.append(piece)
        begun.set()
        assert goes_on.wait(60)
        return plain(piece, **more)

    def work() -> None:
        try:
            read_json(b"[%b]" % b",".join([b"[1]"] * 100_000), 1_000_000) if kind == "read" else write_json(
                [[1]] * 100_000
            )
        finally:
            ended.set()

    monkeypatch.setattr(large, plain.__name__, noted)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(beside, work)
        assert await anyio.to_thread.run_sync(begun.wait, 60)
        tasks.cancel_scope.cancel()
    assert not ended.is_set()
    goes_on.set()
    assert await anyio.to_thread.run_sync(ended.wait, 60)
    assert len(pieces) == 1
