"""The version of this program, found without the slow import of `importlib.metadata`: every command needs it."""

import os
import sys
from functools import cache

DISTRIBUTIONS = ("shortlist_mcp-", "shortlist_core-")
SUFFIX = ".dist-info"


@cache
def own_version() -> str:
    """Return the version of the installed distribution; "0" for a checkout that is not installed."""
    installed = [name.removesuffix(SUFFIX) for name in _listed() if name.endswith(SUFFIX)]
    found = (name.removeprefix(each) for each in DISTRIBUTIONS for name in installed if name.startswith(each))
    return next(found, "0")


def _listed() -> list[str]:
    names: list[str] = []
    for folder in sys.path:
        try:
            names += os.listdir(folder or ".")
        except OSError:  # a zip file, or a folder that is gone
            continue
    return names
