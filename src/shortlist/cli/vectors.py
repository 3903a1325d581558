"""The vectors that programs on this machine share, where there is a place for them."""

import logging
from collections.abc import Mapping
from functools import cache

from shortlist.index.embedders import Vectors
from shortlist.index.index import VectorCache
from shortlist.index.shipped import ShippedVectors, open_vectors

logger = logging.getLogger(__name__)


def find_vectors() -> VectorCache:
    """Open them; where nothing can be written, search goes on with those of the package and says what that costs."""
    try:
        return open_vectors()
    except OSError as error:
        _warn(f"{error.filename} cannot be used ({error.strerror})")
        return ShippedVectors(_Unkept())


@cache
def _warn(reason: str) -> None:
    """Say it once, however many look for them."""
    logger.warning("vectors are not kept, so every start makes them anew: %s", reason)


class _Unkept:
    def get(self, model_id: str, texts: list[str]) -> dict[str, Vectors]:  # noqa: ARG002 - it has none
        return {}

    def put(self, model_id: str, vectors: Mapping[str, Vectors]) -> None:
        """Let them go."""
