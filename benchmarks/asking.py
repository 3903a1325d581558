"""A client without a connection, for benchmarks that call a gateway in their own process."""

from collections.abc import Mapping

from shortlist.gateway.callers import Caller
from shortlist.models import Json


class Asking:
    """A client that can be asked nothing; its messages cost nothing, so the lag is the gateway's own."""

    def __init__(self, process: str) -> None:
        self.caller = Caller(era="modern", process=process)

    answers_in_place = False

    def can(self, method: str) -> bool:  # noqa: ARG002 - whatever the method
        return False

    async def ask(self, method: str, params: Mapping[str, Json]) -> dict[str, Json]:
        raise NotImplementedError(f"{method} {params}")

    async def progress(self, progress: float, total: float | None, message: str | None) -> None: ...

    async def pause(self) -> None: ...

    async def log(self, params: Mapping[str, Json]) -> None: ...
