"""Put the scanner and the keeper of pins together with the shipped encoder and the configuration."""

import threading
from collections.abc import Callable
from typing import Any

from shortlist.config.settings import Settings, Trust
from shortlist.errors import ModelError
from shortlist.storage.port import PinStore
from shortlist.trust.keeping import Keeper
from shortlist.trust.results import inspect_result
from shortlist.trust.verdicts import DefinitionScanner

MAX_READS_OF_A_RESULT = 16
"""How many passages the classifier reads in each part of a result: a call waits for it."""


def open_scanner(max_reads: int | None = None) -> DefinitionScanner:
    """Return the scanner with the shipped classifier, which is loaded with the first passage."""
    from shortlist.index.embedders import runtime_available  # noqa: PLC0415 - most starts scan nothing
    from shortlist.index.passages import PassageClassifier  # noqa: PLC0415
    from shortlist.trust.head import shipped_head  # noqa: PLC0415
    from shortlist.trust.scanner import MAX_READS, Scanner  # noqa: PLC0415

    if not runtime_available():
        return Scanner()
    classifier = PassageClassifier()
    head = shipped_head()
    if head.classifier != classifier.card.digest:
        raise ModelError("The scanner's thresholds were not fitted with its classifier; reinstall the package.")
    return Scanner(classifier, head, max_reads or MAX_READS)


def open_keeper(store: PinStore, settings: Callable[[], Settings]) -> Keeper:
    """Return what admits the tools of servers, by the trust that the present configuration puts in each."""

    def trust(server: str) -> Trust:
        configured = settings().servers.get(server)
        return configured.trust if configured else "scan"

    return Keeper(store, open_scanner, trust, lambda: settings().limits.gone_definitions_bytes)


def open_inspection() -> Callable[[str, Any], str]:
    """Return what inspects results of calls; the scanner is loaded with the first result that a policy is about."""
    lock = threading.Lock()
    scanner: list[DefinitionScanner] = []

    def inspect(server: str, result: Any) -> str:
        with lock:  # many calls may end at the same time
            if not scanner:
                scanner.append(open_scanner(MAX_READS_OF_A_RESULT))
        return inspect_result(scanner[0], server, result)

    return inspect
