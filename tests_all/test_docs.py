"""The examples of the documentation, run as they are written."""

import os
import re
import shlex
import subprocess
from pathlib import Path

import pytest

from tests_all.support import SHORTLIST

DOCS = Path(__file__).parent.parent / "docs"
_BLOCK = re.compile(r"^```sh\n(.*?)^```", re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("name", ["quickstart.md", "servers.md", "commands.md"])
def test_the_examples_of_a_page_run_in_order(name: str, tmp_path: Path) -> None:
    places = {f"XDG_{kind}_HOME": str(tmp_path / kind) for kind in ("CONFIG", "DATA", "CACHE")}
    environment = os.environ | {"HOME": str(tmp_path), **places}
    for block in _BLOCK.findall((DOCS / name).read_text("utf-8")):
        for line in block.splitlines():
            if not line.startswith("shortlist "):
                continue
            command = [*SHORTLIST, *shlex.split(line, comments=True)[1:]]
            ran = subprocess.run(
                command,
                cwd=tmp_path,
                env=environment,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                check=False,
                timeout=120,
            )
            assert ran.returncode == 0, f"{line}\n{ran.stdout}{ran.stderr}"
