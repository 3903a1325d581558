"""Put the scanner and the keeper of pins together with the shipped encoder and the configuration."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shortlist.config.settings import Settings, Trust
from shortlist.index.embedders import runtime_available, shipped
from shortlist.storage.port import PinStore
from shortlist.trust.keeping import Keeper
from shortlist.trust.scanner import Embed, Scanner


def open_scanner() -> Scanner:
    """Return the scanner with the shipped encoder, which is loaded with the first passage that needs it."""
    return Scanner(_encoder() if runtime_available() else None)


def open_keeper(store: PinStore, settings: Callable[[], Settings]) -> Keeper:
    """Return what admits the tools of servers, by the trust that the present configuration puts in each."""

    def trust(server: str) -> Trust:
        configured = settings().servers.get(server)
        return configured.trust if configured else "scan"

    return Keeper(store, open_scanner, trust)


def _encoder() -> Embed:
    model: list[Any] = []

    def embed(texts: Sequence[str]) -> NDArray[np.float32]:
        if not model:
            model.append(shipped("small"))
        vectors: NDArray[np.float32] = model[0].embed_documents(texts)
        return vectors

    return embed
