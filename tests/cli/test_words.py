"""The team's own words, in a gateway that serves while their files change."""

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path

import anyio
import pytest

from shortlist.cli.restarts import request_restart
from shortlist.cli.stack import Stack, open_stack
from shortlist.config.load import load_settings
from shortlist.errors import InvalidInput
from shortlist.gateway.view import ServeOptions
from shortlist.models import Query

pytestmark = pytest.mark.anyio
SECONDS = 180
AIR = "sky/get_air_quality"


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Set up a home of its own, so that nobody's configuration is read."""
    monkeypatch.setenv("HOME", str(tmp_path))
    for kind in ("CONFIG", "DATA", "CACHE", "STATE"):
        monkeypatch.setenv(f"XDG_{kind}_HOME", str(tmp_path / kind.lower()))
    return tmp_path


def write(path: Path, text: str) -> None:
    """Write as editors do: the file is never seen half written."""
    new = path.with_suffix(".new")
    new.write_text(text, "utf-8")
    new.replace(path)


def configure(folder: Path, *files: str) -> Path:
    demo = {"command": sys.executable, "args": ["-m", "shortlist.demo.server", "weather"]}
    sky = {**demo, "env": {"PYTHONPATH": os.pathsep.join(sys.path)}}
    path = folder / "servers.json"
    write(path, json.dumps({"mcpServers": {"sky": sky}, "shortlist": {"expansions": files}}))
    return path


async def until(holds: Callable[[], bool]) -> None:
    with anyio.fail_after(SECONDS):
        while not holds():
            await anyio.sleep(0.05)


def means_air(stack: Stack, word: str) -> bool:
    hits = stack.search.searcher.search(Query(text=word, mode="lexical", limit=1)).hits
    return [hit.tool.id for hit in hits] == [AIR]


async def test_words_are_taken_up_while_serving_and_a_mistake_in_them_loses_none(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    write(folder / "words.txt", "zorp => air quality\n")
    settings = load_settings(configure(folder, "words.txt"))
    async with open_stack(settings, ServeOptions()) as stack:
        await until(lambda: means_air(stack, "zorp"))
        assert not means_air(stack, "quib")

        write(folder / "words.txt", "quib => air quality\n")
        await until(lambda: means_air(stack, "quib"))
        assert not means_air(stack, "zorp")

        write(folder / "words.txt", "quib means nothing\n")
        await until(lambda: "words.txt line 1: expected" in caplog.text)
        assert "the previous expansions stay in use" in caplog.text
        assert means_air(stack, "quib")

        write(folder / "others.txt", "flane => air quality\n")
        configure(folder, "others.txt")
        await until(lambda: means_air(stack, "flane"))
        assert not means_air(stack, "quib")

        configure(folder)
        await until(lambda: not means_air(stack, "flane"))


async def test_a_start_with_a_file_of_words_that_is_not_there_is_refused(folder: Path) -> None:
    settings = load_settings(configure(folder, "absent.txt"))
    with pytest.raises(InvalidInput, match=r"absent\.txt cannot be read"):
        async with open_stack(settings, ServeOptions()):
            pass


async def test_a_server_is_restarted_on_request_while_serving(folder: Path) -> None:
    settings = load_settings(configure(folder))
    async with open_stack(settings, ServeOptions()) as stack:
        await until(lambda: stack.pool.status()["sky"].state == "ready")
        since = stack.pool.status()["sky"].since
        request_restart("sky")
        await until(lambda: stack.pool.status()["sky"].since > since)
        await until(lambda: stack.pool.status()["sky"].state == "ready")
