"""Every command and every action of one, found in the parsers themselves."""

import argparse
from collections.abc import Iterator

from shortlist.cli import COMMANDS, _parser


def typed_words() -> list[list[str]]:
    """Return what is typed for each command, and for each of its actions."""
    found = [[[name], *([name, action] for action in _actions(name))] for name in COMMANDS]
    return [words for of_command in found for words in of_command]


def _actions(command: str) -> Iterator[str]:
    parser = _choices(_parser([command]))[command]
    yield from _choices(parser)


def _choices(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    kinds = [action for action in parser._actions if isinstance(action, argparse._SubParsersAction)]
    return dict(kinds[0].choices) if kinds else {}
