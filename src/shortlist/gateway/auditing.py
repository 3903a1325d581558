"""The audit trail: who was allowed or refused what, and how it ended."""

import hashlib
import json
import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from shortlist.access.principal import Principal
from shortlist.config.settings import AuditSettings
from shortlist.errors import ShortlistError, StoreError
from shortlist.models import Json
from shortlist.storage.audit import AuditDecision, AuditLog, AuditRecord

logger = logging.getLogger(__name__)


class NotRecorded(ShortlistError):
    """A request that was refused because its audit record could not be written."""

    def __init__(self) -> None:
        super().__init__(
            "The request was NOT sent: the audit log cannot be written, and `audit.required` is set. "
            "Tell the operator of this gateway."
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditedRequest:
    """A request to a server, as the audit log names it."""

    principal: Principal
    action: str
    """The method of the protocol, such as `tools/call`."""
    name: str
    """The tool, the prompt or the URI."""
    server: str = ""
    definition: str = ""
    program: str = ""
    """The program that makes the request; empty for one from outside."""
    arguments: Mapping[str, Json] = field(default_factory=dict, repr=False)


class AuditTrail:
    """Records every decision about a request to a server, where the configuration asks for it."""

    def __init__(self, log: AuditLog | None, settings: AuditSettings, now: Callable[[], float] = time.time) -> None:
        self._log = log
        self._now = now
        self.settings = settings
        self.lost = 0
        """Records that could not be written."""

    def allowed(self, request: AuditedRequest) -> None:
        """Record a request before it is sent; raise NotRecorded where that fails and is required."""
        if not self._record(request, "allowed") and self.settings.required:
            raise NotRecorded

    def refused(self, request: AuditedRequest, why: str) -> None:
        self._record(request, "refused", why=why)

    def ended(self, request: AuditedRequest, outcome: str) -> None:
        """Record how an allowed request ended."""
        self._record(request, "allowed", outcome=outcome)

    def _record(self, request: AuditedRequest, decision: AuditDecision, *, why: str = "", outcome: str = "") -> bool:
        if self._log is None or not self.settings.enabled:
            return True
        kept = _arguments_text(request.arguments) if self.settings.arguments and not outcome else None
        record = AuditRecord(
            at=self._now(),
            principal=request.principal.key,
            action=request.action,
            decision=decision,
            server=request.server,
            tool=request.name,
            why=why,
            outcome=outcome,
            definition=request.definition,
            program=request.program,
            arguments_hash=hash_arguments(request.arguments),
            arguments=kept,
        )
        try:
            self._log.record(record)
        except StoreError as error:
            if not self.lost:
                logger.warning("%s", error)
            self.lost += 1
            return False
        return True


def hash_arguments(arguments: Mapping[str, Json]) -> str:
    """Return a hash that is the same for the same arguments, whatever their order."""
    return hashlib.sha256(_arguments_text(arguments).encode("utf-8", "surrogatepass")).hexdigest()


def _arguments_text(arguments: Mapping[str, Json]) -> str:
    return json.dumps(arguments, sort_keys=True, separators=(",", ":"), ensure_ascii=False, default=str)
