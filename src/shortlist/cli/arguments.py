"""What commands take: how they describe themselves, and types that refuse what does not fit before any work is done."""

import os
from argparse import ArgumentParser, ArgumentTypeError
from pathlib import Path
from typing import Any


def add_command(subparsers: Any, name: str, what: str) -> ArgumentParser:
    """Add a command that says the same of itself in the list of all and in its own help."""
    parser: ArgumentParser = subparsers.add_parser(name, help=what, description=f"{what[0].upper()}{what[1:]}.")
    return parser


def add_json(parser: ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print JSON")


def count(text: str) -> int:
    """Read how many; there is no use for none."""
    if not text.isdecimal() or int(text) < 1:
        raise ArgumentTypeError(f"{text!r} is no whole number from 1 up")
    return int(text)


def counts(text: str) -> tuple[int, ...]:
    """Read several, as in 100,1000."""
    return tuple(count(part.strip()) for part in text.split(","))


def numbers(text: str) -> tuple[float, ...]:
    """Read several, as in 0.2,0.5."""
    try:
        return tuple(float(part) for part in text.split(","))
    except ValueError:
        raise ArgumentTypeError(f"{text!r} are no numbers with commas between them, as in 0.2,0.5") from None


def new_file(text: str) -> Path:
    """Read where to write; hours of work should not end in a folder that is not there."""
    path = Path(text)
    if path.is_dir():
        raise ArgumentTypeError(f"{text!r} is a folder; name a file in it")
    if not path.parent.is_dir():
        raise ArgumentTypeError(f"there is no folder {str(path.parent)!r}; make it first")
    if not os.access(path if path.exists() else path.parent, os.W_OK):
        raise ArgumentTypeError(f"{text!r} cannot be written; check its permissions")
    return path
