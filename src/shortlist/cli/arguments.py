"""Arguments that several commands share, checked before any work is done."""

import os
import sys
from argparse import ArgumentParser, ArgumentTypeError
from pathlib import Path
from typing import Any

from shortlist.cli import COMMANDS

WORKER_VARIABLE = "SHORTLIST_WORKER"
"""Tells a process that it is a worker of another one: its number, the port, and the descriptor of a socket to it."""


def add_command(subparsers: Any, name: str, what: str | None = None) -> ArgumentParser:
    """Add a command, or with `what` one action of a command; both lists of help show the same line."""
    what = what or COMMANDS[name][1]
    parser: ArgumentParser = subparsers.add_parser(name, help=what, description=f"{what[0].upper()}{what[1:]}.")
    return parser


def add_json(parser: ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print JSON")


def request(text: str) -> str:
    """Return what to search for; `-` reads it from stdin, where it may be longer than the system lets arguments be."""
    return sys.stdin.read() if text == "-" else text


def count(text: str) -> int:
    """Parse a whole number of 1 or more."""
    if not text.isdecimal() or int(text) < 1:
        raise ArgumentTypeError(f"{text!r} is not a whole number of 1 or more")
    return int(text)


def counts(text: str) -> tuple[int, ...]:
    """Parse whole numbers separated by commas, as in 100,1000."""
    return tuple(count(part.strip()) for part in text.split(","))


def numbers(text: str) -> tuple[float, ...]:
    """Parse numbers separated by commas, as in 0.2,0.5."""
    try:
        return tuple(float(part) for part in text.split(","))
    except ValueError:
        raise ArgumentTypeError(f"{text!r} is not a list of numbers separated by commas, as in 0.2,0.5") from None


def new_file(text: str) -> Path:
    """Parse the path of a file to write; a long run should not fail at the end because a folder is missing."""
    path = Path(text)
    if path.is_dir():
        raise ArgumentTypeError(f"{text!r} is a folder; name a file in it")
    if not path.parent.is_dir():
        raise ArgumentTypeError(f"there is no folder {str(path.parent)!r}; create it first")
    if not os.access(path if path.exists() else path.parent, os.W_OK):
        raise ArgumentTypeError(f"{text!r} cannot be written; check its permissions")
    return path
