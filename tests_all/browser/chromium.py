"""Chromium for the browser tests: the one that is here, else Debian's. `python -m tests_all.browser.chromium`"""

import os
import shutil
import subprocess
import sys

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
PACKAGES = ("chromium", "fonts-inter")
"""The font is the first that the pages ask for, so that screenshots look the same everywhere."""
ARGUMENTS = (
    "--no-sandbox",  # tests run as root in containers, where the sandbox cannot be made
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


def find() -> str | None:
    """Return the browser's path: the one that SHORTLIST_CHROMIUM names, else the first that is installed."""
    return os.environ.get("SHORTLIST_CHROMIUM") or next((path for name in NAMES if (path := shutil.which(name))), None)


def install() -> str:
    """Return the browser's path, after installing it where there is none."""
    if found := find():
        return found
    if shutil.which("apt-get") is None or os.geteuid() != 0:
        sys.exit(
            "The browser tests need Chromium, and there is none. Install it (on Debian, as root: "
            f"apt-get install {' '.join(PACKAGES)}), or name one in SHORTLIST_CHROMIUM."
        )
    quiet = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    for command in (["update"], ["install", "--yes", "--no-install-recommends", *PACKAGES]):
        subprocess.run(["apt-get", "-qq", *command], check=True, env=quiet, stdout=subprocess.DEVNULL)
    return find() or sys.exit(f"apt-get installed {PACKAGES[0]}, but none of {', '.join(NAMES)} is on the path.")


if __name__ == "__main__":
    print(install())
