"""The official conformance suite against the fixture server, and against the gateway in front of it."""

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests_all.support import RUN_SECONDS, Foreign, Gateway, process

FIXTURE = "tests.conformance.server"
CHECKS = {"2025-11-25": 84, "2026-07-28": 152}
versions = pytest.mark.parametrize("version", CHECKS)


@contextmanager
def fixture_server(*options: str) -> Iterator[str]:
    with process([sys.executable, "-W", "ignore", "-m", FIXTURE, *options]) as lines:
        yield f"http://127.0.0.1:{lines.after('port ')}/mcp"


def score(foreign: Foreign, url: str, version: str) -> tuple[int, int]:
    """Run every scenario of a version; gives how many checks passed and failed."""
    suite = foreign.package("conformance", "dist/index.js")
    command = [*suite, "server", "--url", url, "--suite", "all", "--spec-version", version]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=RUN_SECONDS, check=False)
    print(ran.stdout.partition("=== SUMMARY ===")[2])
    total = re.search(r"Total: (\d+) passed, (\d+) failed", ran.stdout)
    assert total is not None, ran.stdout + ran.stderr
    return int(total[1]), int(total[2])


@versions
def test_fixture_server_conforms(foreign: Foreign, version: str) -> None:
    with fixture_server() as url:
        assert score(foreign, url, version) == (CHECKS[version], 0)


@versions
def test_passthrough_conforms_as_the_server_behind_it_does(foreign: Foreign, tmp_path: Path, version: str) -> None:
    # A server of both eras is spoken to in the modern one; here each version meets a server of its own era.
    options = ["--legacy"] if version == "2025-11-25" else []
    with fixture_server(*options) as url, passthrough(tmp_path, url) as front:
        assert score(foreign, front, version) == (CHECKS[version], 0)


def test_a_legacy_client_gets_everything_of_a_modern_server_but_the_polling_it_does_not_have(
    foreign: Foreign, tmp_path: Path
) -> None:
    with fixture_server() as url, passthrough(tmp_path, url) as front:
        passed, failed = score(foreign, front, "2025-11-25")
    # The modern era has no streams that are taken up again: a call is answered as JSON, and three checks do not apply.
    assert (passed, failed) == (CHECKS["2025-11-25"] - 3, 0)


@contextmanager
def passthrough(folder: Path, url: str) -> Iterator[str]:
    config = folder / "shortlist.json"
    config.write_text(json.dumps({"mcpServers": {"fixture": {"type": "http", "url": url}}}))
    with Gateway.serving(config, "--mode", "passthrough") as gateway:
        yield gateway.url
