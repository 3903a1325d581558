"""Streams that are taken up again: every session its own events, and all of them together bounded."""

import json
from typing import Any

from mcp_types import JSONRPCResponse

from shortlist.front.event_log import EVENT_BYTES, EventLog, SessionEvents


def message(**parts: Any) -> bytes:
    return json.dumps({"jsonrpc": "2.0", **parts}).encode()


def answer(text: str) -> bytes:
    return message(id=1, result={"content": [{"type": "text", "text": text}]})


def texts(log: EventLog, owner: SessionEvents, last: str) -> list[str]:
    _, events = log.after(owner, last)
    return [
        event.message.result["content"][0]["text"] for event in events if isinstance(event.message, JSONRPCResponse)
    ]


def test_what_came_after_an_event_of_a_stream_is_given_again() -> None:
    log = EventLog()
    me = log.session()
    first = log.add(me, "1", None)
    log.add(me, "2", answer("another stream"))
    log.add(me, "1", answer("this one"))
    assert log.after(me, first)[0] == "1"
    assert texts(log, me, first) == ["this one"]


def test_a_session_gets_no_events_of_another_though_their_streams_have_one_name() -> None:
    log = EventLog()
    ada, bob = log.session(), log.session()
    of_ada, of_bob = log.add(ada, "1", None), log.add(bob, "1", None)
    log.add(ada, "1", answer("for Ada"))
    log.add(bob, "1", answer("for Bob"))
    assert texts(log, bob, of_bob) == ["for Bob"]
    assert log.after(bob, of_ada) == (None, [])


def test_the_oldest_events_go_when_there_are_too_many() -> None:
    log = EventLog(3 * (EVENT_BYTES + 150))
    me = log.session()
    ids = [log.add(me, "1", answer("x" * 60)) for _ in range(6)]
    assert log.after(me, ids[0]) == (None, [])
    assert len(log.after(me, ids[-2])[1]) == 1


def test_an_id_that_was_never_given_is_nobodys() -> None:
    log = EventLog()
    me = log.session()
    log.add(me, "1", message(method="notifications/message", params={"level": "info"}))
    assert [log.after(me, last) for last in ("", "x", "-1", "99", "²")] == [(None, [])] * 5


def test_events_weigh_the_bytes_that_they_take_numbers_included() -> None:
    log = EventLog(100_000)
    me = log.session()
    for number in range(1_000):
        log.add(me, "1", message(id=1, result={"rows": list(range(number, number + 500))}))
    assert log.bytes <= 100_000
    kept = len(log._events)
    assert kept < 100_000 / 1_500


def test_what_an_ended_session_was_sent_is_forgotten() -> None:
    log = EventLog()
    ada, bob = log.session(), log.session()
    of_ada, of_bob = log.add(ada, "1", None), log.add(bob, "1", None)
    for _ in range(10):
        log.add(ada, "1", answer("for Ada"))
        log.add(bob, "1", answer("for Bob"))
    before = log.bytes
    log.forget(ada)
    assert log.after(ada, of_ada) == (None, [])
    assert len(log.after(bob, of_bob)[1]) == 10
    assert log.bytes == before / 2


def test_the_caller_that_keeps_the_most_loses_its_oldest_events_and_nobody_else_does() -> None:
    log = EventLog(10 * (EVENT_BYTES + 1_000))
    ada, bob = log.session("ada"), [log.session("bob"), log.session("bob")]
    of_ada = log.add(ada, "1", None)
    log.add(ada, "1", answer("for Ada"))
    of_bob = [log.add(bob[number % 2], "1", answer("x" * 900)) for number in range(100)]
    assert texts(log, ada, of_ada) == ["for Ada"]
    assert log.after(bob[0], of_bob[0]) == (None, [])
    assert len(texts(log, bob[1], of_bob[97])) == 1
