"""A short run of every fuzzer, and every input that was ever interesting."""

import json
from pathlib import Path

import pytest

from tests.fuzz.__main__ import run_target
from tests.fuzz.targets import TARGETS

CORPUS = Path(__file__).parent / "corpus"


@pytest.mark.parametrize("name", TARGETS)
def test_no_input_breaks_a_parser(name: str) -> None:
    assert run_target(name, 1_000, first_seed=7).inputs == 1_000


@pytest.mark.parametrize("path", sorted(CORPUS.glob("*.jsonl")), ids=lambda path: path.stem)
def test_the_corpus_breaks_no_parser(path: Path) -> None:
    target = TARGETS[path.stem.replace("_", " ")]
    for line in path.read_text("utf-8").splitlines():
        target.check(_decoded(json.loads(line)))


def _decoded(value: object) -> object:
    """Turn the corpus's form of bytes back into bytes, and its pairs into tuples."""
    if isinstance(value, dict) and set(value) == {"bytes"}:
        return bytes.fromhex(str(value["bytes"]))
    if isinstance(value, dict) and set(value) == {"pair"}:
        return tuple(map(_decoded, value["pair"]))
    return value


def test_the_corpus_is_small() -> None:
    assert sum(path.stat().st_size for path in CORPUS.glob("*")) < 5_000_000
