"""Resolutions of a wheel's dependencies by uv: for other platforms, beside other packages, and for the SBOM."""

import os
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

MACOS = "14.0"
"""The oldest macOS that resolutions are made for."""
_PIN = re.compile(r"^(?P<name>[A-Za-z0-9._-]+)==(?P<version>[^\s;]+)", re.MULTILINE)


class NoResolution(Exception):
    """Packages that cannot be installed together; the message is the resolver's."""


def resolve(requirements: Sequence[str], wheels: Path, *options: str) -> Mapping[str, str]:
    """Resolve requirements, with our own wheels from a folder; return each package's version."""
    command = [sys.executable, "-m", "uv", "pip", "compile", "--quiet", "--no-header", "--no-annotate"]
    ran = subprocess.run(
        [*command, "--find-links", str(wheels), *options, "-"],
        input="\n".join(requirements),
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"MACOSX_DEPLOYMENT_TARGET": MACOS},
    )
    if ran.returncode:
        raise NoResolution(ran.stderr.strip())
    return {match["name"]: match["version"] for match in _PIN.finditer(ran.stdout)}
