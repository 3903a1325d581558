"""Stops requests to a server that has ceased to answer, and notices when it is back."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

Circuit: TypeAlias = Literal["closed", "open", "half_open"]
"""`closed`: requests pass. `open`: they fail at once. `half_open`: one passes, to find out."""

PROBE_SECONDS = 1.0
"""How often an open circuit is tried again."""


@dataclass(slots=True)
class Breaker:
    """Counts connection errors and timeouts in a row; any answer of the server, an error too, starts anew."""

    failures: int
    """How many in a row open the circuit."""
    clock: Callable[[], float] = time.monotonic
    circuit: Circuit = "closed"
    reason: str = ""
    _in_a_row: int = 0
    _probing: bool = False
    _next_try: float = field(default=0.0)

    def admit(self) -> bool:
        """Return whether a request may be sent now; in a half-open circuit the first one is the probe."""
        if self.circuit == "half_open" and not self._probing:
            self._probing = True
            return True
        return self.circuit == "closed"

    def answered(self) -> None:
        """Close the circuit: the server answered."""
        self.circuit, self._in_a_row, self._probing = "closed", 0, False

    def failed(self, reason: str) -> None:
        """Count a connection error or a timeout."""
        self._in_a_row += 1
        self.reason = reason
        if self.circuit == "half_open" or self._in_a_row >= self.failures:
            self._open()

    def gave_up(self) -> None:
        """Let the next request be the probe: this one ended without a verdict."""
        self._probing = False

    def responded(self) -> None:
        """Half-open the circuit: the server answers pings again."""
        if self.circuit == "open":
            self.circuit, self._probing = "half_open", False

    def unresponsive(self) -> None:
        """Stay open until the next ping."""
        self._next_try = self.clock() + PROBE_SECONDS

    @property
    def seconds_left(self) -> float:
        """Return the seconds until the next try."""
        return max(0.0, self._next_try - self.clock())

    def _open(self) -> None:
        self.circuit, self._probing = "open", False
        self._next_try = self.clock() + PROBE_SECONDS
