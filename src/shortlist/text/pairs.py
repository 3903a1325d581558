"""Which English words follow each other in requests and tool texts, read when the first typing error is met."""

from collections.abc import Mapping
from functools import cache
from importlib import resources

START = "^"
"""Stands before the first word of a text."""
STRONGEST = 9


def seen_together(first: str, second: str) -> int:
    """Return how often one word follows another, as a power of two from 1 to 9; 0 where it was hardly seen."""
    line = _behind().get(first)
    if line is None:
        return 0
    at = line.find(f" {second}")
    while at >= 0:
        end = at + len(second) + 1
        if line[end].isdigit():
            return int(line[end])
        at = line.find(f" {second}", end)
    return 0


@cache
def _behind() -> Mapping[str, str]:
    """Return the words behind each word, a line for each: texts take a fifth of the memory of sets."""
    text = resources.files("shortlist.text").joinpath("data", "pairs.txt").read_text("utf-8")
    return {line[: line.index(" ")]: line for line in text.splitlines()}
