"""The client-auth scenarios of the official conformance suite, each through a gateway that the suite starts."""

import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

from tests_all.support import RUN_SECONDS, Foreign

SCENARIOS = 27
AT_ONCE = 2
SECONDS = 120
DRIVER = f"{sys.executable} -W ignore -m tests_all.identity.driver"


def scenarios(foreign: Foreign) -> dict[str, str]:
    """Return the scenarios with the newest version that each belongs to, without extensions of the protocol."""
    command = [*foreign.package("conformance", "dist/index.js"), "list"]
    listed = subprocess.run(command, capture_output=True, text=True, timeout=RUN_SECONDS, check=True).stdout
    found = re.findall(r"- (auth/\S+) \[(.*)\]", listed)
    return {name: versions.split(",")[-1] for name, versions in found if versions != "extension"}


def failure(foreign: Foreign, name: str, version: str) -> str | None:
    """Run one scenario; return what it printed where it did not pass."""
    suite = foreign.package("conformance", "dist/index.js")
    options = ["--scenario", name, "--spec-version", version, "--timeout", str(SECONDS * 1000)]
    command = [*suite, "client", *options, "--command", DRIVER]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=RUN_SECONDS, check=False)
    passed = ran.returncode == 0 and re.search(r"Passed: (\d+)/\1, 0 failed", ran.stdout + ran.stderr) is not None
    return None if passed else f"{name}: {ran.stdout[-3000:]}{ran.stderr[-2000:]}"


def test_every_client_auth_scenario_passes_through_a_gateway(foreign: Foreign) -> None:
    found = scenarios(foreign)
    with ThreadPoolExecutor(AT_ONCE) as workers:
        outcomes = list(workers.map(lambda item: failure(foreign, *item), found.items()))
    assert [text for text in outcomes if text is not None] == []
    assert len(found) == SCENARIOS
