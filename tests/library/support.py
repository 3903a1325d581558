"""A filter over the workplace, and what is asked of it."""

from typing import Any

from shortlist.library.filter import ToolFilter
from tests.fakes import WORKPLACE, HashingEmbedder, catalog

MERGE = "merge a pull request"


def workplace(**more: Any) -> ToolFilter:
    return ToolFilter(catalog(WORKPLACE), **{"embedding": HashingEmbedder(), "vector_cache": None, **more})
