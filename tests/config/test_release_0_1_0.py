"""A configuration of 0.1.0 that uses every one of its keys means the same today.

`data/release_0_1_0_settings.json` is what 0.1.0 itself made of `data/release_0_1_0.json`. Today's settings may have
more fields, and every field of then must have the value of then.
"""

import json
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

import pytest

from shortlist.catalog.catalog import Catalog
from shortlist.config.load import load_settings
from shortlist.gateway.view import NO_OPTIONS, make_view

DATA = Path(__file__).parent / "data"
ENVIRONMENT = {"LANG": "C", "TZ": "UTC", "PATH": "/bin", "SECRET": "no"}


def plain(value: Any) -> Any:
    if is_dataclass(value):
        return {field.name: plain(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, Mapping):
        return {key: plain(inner) for key, inner in value.items()}
    if isinstance(value, (tuple, list)):
        return [plain(inner) for inner in value]
    return value


def differences(then: Any, now: Any, place: str = "") -> list[str]:
    if isinstance(then, dict) and isinstance(now, dict):
        return [each for key in then for each in differences(then[key], now.get(key), f"{place}.{key}")]
    return [] if then == now else [f"{place}: {then!r} has become {now!r}"]


@pytest.fixture
def configuration(tmp_path: Path) -> Path:
    (tmp_path / ".env").write_text("F=file\n", "utf-8")
    path = tmp_path / "config.json"
    path.write_text((DATA / "release_0_1_0.json").read_text("utf-8"), "utf-8")
    return path


def test_a_configuration_of_0_1_0_opens_unchanged(configuration: Path) -> None:
    then = json.loads((DATA / "release_0_1_0_settings.json").read_text("utf-8"))
    now = plain(load_settings(configuration, environment=ENVIRONMENT))
    assert differences(then, now) == []


def test_a_configuration_of_0_1_0_is_served_with_its_token(configuration: Path) -> None:
    view = make_view(load_settings(configuration, environment=ENVIRONMENT), NO_OPTIONS, Catalog.of(()))
    assert view.scopes["token:ann"].covers_server("web")
    assert view.scopes["token:ann"].covers("files/list_folders")
    assert not view.scopes["token:ann"].covers("files/read_file")


def test_a_value_that_has_changed_is_found() -> None:
    assert differences({"a": {"b": 1}}, {"a": {"b": 2}, "c": 3}) == [".a.b: 1 has become 2"]
