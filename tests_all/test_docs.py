"""The examples of the documentation, run as they are written."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests_all.examples import Home, prepared

DOCS = Path(__file__).parent.parent / "docs"
_BLOCK = re.compile(r"^```sh\n(.*?)^```", re.MULTILINE | re.DOTALL)


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Home]:
    with prepared(tmp_path_factory.mktemp("home")) as made:
        yield made


@pytest.mark.parametrize("name", ["quickstart.md", "servers.md", "commands.md"])
def test_the_examples_of_a_page_run_in_order(name: str, home: Home) -> None:
    for block in _BLOCK.findall((DOCS / name).read_text("utf-8")):
        for line in block.splitlines():
            if "shortlist " in line:
                home.run(line)
