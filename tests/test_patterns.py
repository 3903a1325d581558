"""Regular expressions read what servers and clients send: none of them takes time that grows with the square of it."""

import dataclasses
import importlib
import inspect
import pkgutil
import re
import signal
from collections import deque
from collections.abc import Iterator, Mapping
from functools import cache
from types import FrameType
from typing import Any

import pytest

import shortlist

CHARACTERS = 12_000
CPU_SECONDS = 0.5
"""For one text, of this process alone. A pattern that reads it once takes about a millisecond."""
ALIKE = (
    *"aA1 \n\t.,-_/\\'\"`([{<>„“«「:;?!@#*|=%&你é\u200b😀",
    *(
        "a ",
        "A ",
        "a.",
        "1.",
        "a, ",
        "a-",
        "a_",
        "a/",
        "a=",
        "a@",
        "a\n",
        "\n\n",
        "\r\n",
        " \n",
        "'a",
        '"a',
        "(a",
        "[a",
        "{a",
    ),
    *("<a", "aA", "a1", "http://", "://", "0x", "```\n", "\x1b["),
)
"""What hostile texts repeat; each pattern also meets the literal texts that it is made of."""
TAIL = "\x00"
"""What a text ends with: it fits nowhere, so that a match must be given up, and sought again from every place."""
MAY_TAKE_LONGER: Mapping[str, str] = {"shortlist.text.asks._MORE_BELOW": "it reads the last SHORT_ASK characters"}
"""Patterns that never see a long text, and why."""


def patterns() -> Iterator[tuple[str, "re.Pattern[Any]"]]:
    """Yield the compiled patterns of all modules, also those in tables, by the first name that refers to them."""
    seen: set[tuple[Any, int]] = set()
    for module in pkgutil.walk_packages(shortlist.__path__, "shortlist."):
        if module.name.endswith("__main__"):
            continue
        try:
            loaded = importlib.import_module(module.name)
        except ImportError:
            continue  # what an extra needs
        for name, value in vars(loaded).items():
            for pattern in within(value):
                if (pattern.pattern, pattern.flags) not in seen:
                    seen.add((pattern.pattern, pattern.flags))
                    yield f"{module.name}.{name}", pattern


def within(value: Any, depth: int = 0) -> Iterator["re.Pattern[Any]"]:
    if isinstance(value, re.Pattern):
        yield value
    elif depth < 4:
        yield from (pattern for item in items(value) for pattern in within(item, depth + 1))


def items(value: Any) -> Iterator[Any]:
    if isinstance(value, dict):
        yield from (each for pair in value.items() for each in pair)
    elif isinstance(value, (tuple, list, set, frozenset)):
        yield from value
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        yield from (getattr(value, field.name, None) for field in dataclasses.fields(value))


def literals(source: str) -> list[str]:
    """Return the words of a pattern, and its single characters that stand for themselves."""
    plain = re.sub(r"\\[a-zA-Z]|\(\?[a-zA-Z:=!<]+", " ", source)
    words = re.findall(r"[^\W_]{2,}", plain)[:8]
    return [*words, *(f"{word} " for word in words), *dict.fromkeys(re.findall(r"[^\w\s\\]", plain))][:40]


@cache
def found() -> dict[str, "re.Pattern[Any]"]:
    named: dict[str, re.Pattern[Any]] = {}
    for name, pattern in patterns():
        number = sum(each.partition(" ")[0] == name for each in named)
        named[f"{name} {number}" if number else name] = pattern
    return named


def is_anchored(name: str) -> bool:
    """Return whether a pattern is only asked for at one place of a text, as its module is written."""
    module, _, variable = name.partition(" ")[0].rpartition(".")
    source = inspect.getsource(importlib.import_module(module))
    used = set(re.findall(rf"\b{variable}\b(?:\.(\w+))?", source)) - {""}
    return bool(used) and used <= {"match", "fullmatch"} and len(re.findall(rf"\b{variable}\b(?!\.)", source)) == 1


class TakesTooLong(Exception):
    """A pattern read a text for longer than it may."""


def give_up(_: int, __: FrameType | None) -> None:
    raise TakesTooLong


def texts_for(pattern: "re.Pattern[Any]") -> Iterator[Any]:
    source = pattern.pattern if isinstance(pattern.pattern, str) else pattern.pattern.decode("latin-1")
    for unit in dict.fromkeys([*ALIKE, *literals(source)]):
        text = unit * (CHARACTERS // len(unit)) + TAIL
        yield text if isinstance(pattern.pattern, str) else text.encode()


def test_patterns_are_found_in_modules_and_in_tables() -> None:
    rooms = {name.split(".")[1] for name in found()}
    assert rooms >= {"text", "trust", "config", "upstream", "gateway"}
    assert len(found()) > 100
    assert set(MAY_TAKE_LONGER) <= set(found())


@pytest.mark.parametrize("name", found())
def test_no_pattern_reads_a_text_again_from_every_place(name: str) -> None:
    if name in MAY_TAKE_LONGER:
        pytest.skip(MAY_TAKE_LONGER[name])
    pattern = found()[name]
    before = signal.signal(signal.SIGVTALRM, give_up)
    try:
        for text in texts_for(pattern):
            signal.setitimer(signal.ITIMER_VIRTUAL, CPU_SECONDS)
            try:
                if is_anchored(name):
                    pattern.match(text)
                else:
                    deque(pattern.finditer(text), maxlen=0)
            except TakesTooLong:
                pytest.fail(f"{name} takes too long for {text[:12]!r}… {text[-3:]!r}: {pattern.pattern!r}")
            finally:
                signal.setitimer(signal.ITIMER_VIRTUAL, 0.0)
    finally:
        signal.signal(signal.SIGVTALRM, before)
