"""What servers say is quoted by commands, and must not become a command to the terminal."""

import json
from pathlib import Path

import pytest

import shortlist.cli
from shortlist.cli.shown import shown_json

HOSTILE = "a\x1b[31m\x7f\x9b2J\r\u00ad\u061c\u180e\u200b\u2028\u202e\u2066\ufe0f\ufeff\ud800\U000e0041z"


@pytest.mark.parametrize("indent", [None, 2])
def test_json_shows_every_character_and_says_the_same(indent: int | None) -> None:
    data = {f"key{HOSTILE}": [HOSTILE, "Übergröße 日本語 🙂", "plain\x7f"]}
    text = shown_json(data, indent=indent)
    assert json.loads(text) == data
    assert "Übergröße 日本語 🙂" in text
    assert all(character.isprintable() or character == "\n" for character in text), ascii(text)


def test_no_command_prints_json_in_another_way() -> None:
    folder = Path(shortlist.cli.__file__).parent
    others = [path.name for path in folder.glob("*.py") if "ensure_ascii=False" in path.read_text("utf-8")]
    assert others == ["shown.py"]
