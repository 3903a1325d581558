"""One turn of a filter: its options, its warnings, and what each step took."""

import logging
from time import perf_counter

from shortlist.library.options import FilterOptions
from shortlist.library.results import Metrics

log = logging.getLogger("shortlist.library.filter")


class Turn:
    """Collects warnings and timings during one turn."""

    def __init__(self, options: FilterOptions) -> None:
        self.options = options
        self.warnings: list[str] = []
        self._started = self._last = perf_counter()
        self._milliseconds: dict[str, float] = {}

    def step(self, name: str, detail: str) -> None:
        now = perf_counter()
        took = (now - self._last) * 1000
        self._milliseconds[name] = took
        self._last = now
        if self.options.debug:
            log.info("%s: %s (%.2f ms)", name, detail, took)

    def metrics(self, evaluated: int, *, hit: bool) -> Metrics:
        took = self._milliseconds
        return Metrics(
            total_milliseconds=(self._last - self._started) * 1000,
            embedding_milliseconds=took["embedding"],
            search_milliseconds=took["search"],
            rerank_milliseconds=took.get("rerank"),
            tools_evaluated=evaluated,
            cache_hit=hit,
        )
