import json
from typing import Any

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shortlist.errors import InvalidInput
from shortlist.gateway.calling import text_of_result
from shortlist.gateway.results import ResultPage, Results, cut, find_passages, paged_result, pages_of
from shortlist.storage.memory import MemoryResults
from shortlist.storage.owned import ResultLimits
from shortlist.workers import WorkerFailed

values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=40),
    lambda inner: st.lists(inner, max_size=6) | st.dictionaries(st.text(max_size=8), inner, max_size=6),
    max_leaves=30,
)
containers = st.lists(values, max_size=8) | st.dictionaries(st.text(max_size=8), values, max_size=8)


def results(
    characters: int = 100,
    seconds: float = 60,
    most: int = 3,
    most_bytes: int = 1_000_000_000,
    now: list[float] | None = None,
) -> Results:
    clock = now or [0.0]
    store = MemoryResults(ResultLimits(seconds, most, most_bytes, most, most_bytes), clock=lambda: clock[0])
    return Results(store, characters=characters)


def keep(kept: Results, text: str) -> str:
    return anyio.run(kept.keep, "me", cut(text, kept.characters))


def read(kept: Results, owner: str, handle: str, offset: int = 0) -> ResultPage:
    return anyio.run(kept.page, owner, handle, offset)


def read_all(kept: Results, handle: str) -> list[str]:
    pages, offset = [], 0
    while True:
        page = read(kept, "me", handle, offset)
        pages.append(page.text)
        if page.next_offset is None:
            return pages
        offset = page.next_offset


@given(st.text(min_size=1, max_size=600).filter(lambda text: text.lstrip()[:1] not in ("{", "[")))
def test_the_pages_of_a_text_are_the_text(text: str) -> None:
    kept = results(characters=50)
    pages = read_all(kept, keep(kept, text))
    assert "".join(pages) == text
    assert all(len(page) <= 50 for page in pages)


@given(containers)
def test_every_page_of_json_is_json(value: Any) -> None:
    for page in pages_of(json.dumps(value), 60):
        json.loads(page)


@given(st.lists(st.integers(), min_size=30))
def test_the_pages_of_an_array_hold_all_its_items_in_order(items: list[int]) -> None:
    pages = [json.loads(page) for page in pages_of(json.dumps(items), 80)]
    assert [item for page in pages for item in page] == items


def test_a_large_list_inside_an_object_keeps_its_place() -> None:
    text = json.dumps({"count": 200, "rows": [{"id": i} for i in range(200)]})
    pages = [json.loads(page) for page in pages_of(text, 300)]
    assert [row["id"] for page in pages for row in page.get("rows", [])] == list(range(200))
    assert all(len(json.dumps(page)) <= 300 for page in pages)


def test_a_wide_character_is_never_cut() -> None:
    text = "日本語🎌" * 100
    kept = results(characters=7)
    for page in read_all(kept, keep(kept, text)):
        page.encode("utf-8")


def test_another_caller_cannot_read_a_result() -> None:
    kept = results()
    handle = keep(kept, "secret " * 50)
    with pytest.raises(InvalidInput, match="No result is kept"):
        read(kept, "you", handle)


def test_results_expire_and_are_bounded_in_number() -> None:
    now = [0.0]
    kept = results(most=2, seconds=10, now=now)
    first, second, third = (keep(kept, f"text {i}") for i in range(3))
    with pytest.raises(InvalidInput):
        read(kept, "me", first)
    assert read(kept, "me", third).text == "text 2"
    now[0] = 11
    with pytest.raises(InvalidInput):
        read(kept, "me", second)


def test_a_handle_has_128_random_bits() -> None:
    kept = results(most=100)
    handles = {keep(kept, "x") for _ in range(50)}
    assert len(handles) == 50
    assert all(len(handle) >= 22 for handle in handles)


@pytest.mark.parametrize("offset", [-1, 10_000])
def test_an_offset_outside_the_result_says_how_long_it_is(offset: int) -> None:
    kept = results()
    with pytest.raises(InvalidInput, match="500 characters"):
        read(kept, "me", keep(kept, "x" * 500), offset)


def test_a_query_finds_the_passage_that_holds_its_words() -> None:
    text = "nothing here. " * 400 + "The invoice of Ada Lovelace is overdue. " + "still nothing. " * 400
    found = find_passages(text, "Lovelace invoice")
    assert "invoice of Ada Lovelace" in found[0].text
    assert len(found) == 1


@pytest.mark.anyio
async def test_a_large_result_is_cut_and_searched_in_a_worker_process() -> None:
    rows = [{"id": number, "text": f"row {number} of many"} for number in range(60_000)]
    kept = results(characters=20_000)
    pages = await kept.cut("me", json.dumps(rows))
    assert [row for page in pages for row in json.loads(page)] == rows
    handle = await kept.keep("me", pages)
    found = await kept.passages("me", handle, "row 31415")
    assert "31415" in found[0].text


@pytest.mark.anyio
async def test_a_result_that_takes_too_long_to_cut_as_json_is_cut_as_text_in_what_is_left_of_the_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def endless(*_: object, seconds: float, **__: object) -> None:
        await anyio.sleep(seconds)
        raise WorkerFailed("it takes too long")

    monkeypatch.setattr("shortlist.gateway.results.run_apart", endless)
    text = json.dumps(["row"] * 20_000)
    with anyio.fail_after(1.0):
        pages = await results(characters=20_000).cut("me", text)
    assert "".join(pages) == text


def test_kept_results_are_bounded_in_bytes_and_the_oldest_go_first() -> None:
    kept = results(characters=1_000, most=100, most_bytes=50_000)
    first = keep(kept, "a" * 20_000)
    last = [keep(kept, "\N{PARTY POPPER}" * 5_000) for _ in range(5)][-1]
    assert kept.store.bytes <= 50_000
    assert read(kept, "me", last).text.startswith("\N{PARTY POPPER}")
    with pytest.raises(InvalidInput, match="No result is kept"):
        read(kept, "me", first)


def test_the_end_of_a_result_over_the_byte_limit_is_not_kept_and_says_so() -> None:
    kept = results(characters=1_000, most=100, most_bytes=50_000)
    pages = read_all(kept, keep(kept, "a" * 100_000))
    assert kept.store.bytes <= 50_000
    assert pages[-1] == "[The rest, over 50,000 bytes, was not kept.]"


def test_page_one_keeps_images_and_puts_the_handle_in_place_of_structured_content() -> None:
    image = {"type": "image", "data": "aGk=", "mimeType": "image/png"}
    result = {
        "content": [{"type": "text", "text": "y" * 500}, image],
        "structuredContent": {"y": "y" * 500},
        "_meta": {"trace": 1},
    }
    kept = results()
    handle = keep(kept, text_of_result(result))
    shown = paged_result(result, read(kept, "me", handle), handle)
    assert image in shown["content"]
    assert shown["structuredContent"]["handle"] == handle
    assert shown["_meta"] == {"trace": 1}
    assert handle in shown["content"][-1]["text"]


def test_structured_content_without_text_is_what_is_paged() -> None:
    assert json.loads(text_of_result({"content": [], "structuredContent": {"a": 1}})) == {"a": 1}
