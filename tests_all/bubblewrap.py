"""Bubblewrap for the isolation tests: the one that is here, else Debian's. `python -m tests_all.bubblewrap`"""

import os
import shutil
import subprocess
import sys

from shortlist.upstream.isolation import sandbox_problem

PACKAGE = "bubblewrap"


def install() -> None:
    """Install bubblewrap where there is none, and exit with an error where no sandbox works."""
    if shutil.which("bwrap") is None:
        if shutil.which("apt-get") is None or os.geteuid() != 0:
            sys.exit(f"The isolation tests need {PACKAGE}. Install it (on Debian, as root: apt-get install {PACKAGE}).")
        quiet = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
        for command in (["update"], ["install", "--yes", "--no-install-recommends", PACKAGE]):
            subprocess.run(["apt-get", "-qq", *command], check=True, env=quiet, stdout=subprocess.DEVNULL)
    if problem := sandbox_problem():
        sys.exit(f"No isolation works on this machine: {problem}.")


if __name__ == "__main__":
    install()
    print("sandbox: bubblewrap works on this machine")
