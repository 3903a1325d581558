"""Put the scanner and the keeper of pins together with the shipped encoder and the configuration."""

from collections.abc import Callable
from typing import Any

from shortlist.config.settings import Settings, Trust
from shortlist.storage.port import PinStore
from shortlist.trust.keeping import Keeper
from shortlist.trust.results import inspect_result
from shortlist.trust.verdicts import DefinitionScanner


def open_scanner() -> DefinitionScanner:
    """Return the scanner with the shipped classifier, which is loaded with the first passage."""
    from shortlist.index.embedders import runtime_available  # noqa: PLC0415 - most starts scan nothing
    from shortlist.index.passages import PassageClassifier  # noqa: PLC0415
    from shortlist.trust.scanner import Scanner  # noqa: PLC0415

    return Scanner(PassageClassifier() if runtime_available() else None)


def open_keeper(store: PinStore, settings: Callable[[], Settings]) -> Keeper:
    """Return what admits the tools of servers, by the trust that the present configuration puts in each."""

    def trust(server: str) -> Trust:
        configured = settings().servers.get(server)
        return configured.trust if configured else "scan"

    return Keeper(store, open_scanner, trust)


def open_inspection() -> Callable[[str, Any], str]:
    """Return what inspects results of calls; the scanner is loaded with the first result that a policy is about."""
    scanner: list[DefinitionScanner] = []

    def inspect(server: str, result: Any) -> str:
        if not scanner:
            scanner.append(open_scanner())
        return inspect_result(scanner[0], server, result)

    return inspect
