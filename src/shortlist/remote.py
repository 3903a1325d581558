"""JSON over HTTP to model providers: timeouts, retries that respect Retry-After, two kinds of failure."""

import json
import os
import random
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any

from shortlist.errors import InvalidInput, ModelError
from shortlist.text.tokens import one_line

BACK_OFF_SECONDS = 0.5
TRY_AGAIN = frozenset({408, 409, 425, 429, 500, 502, 503, 504, 529})
SHOWN_CHARS = 200
"""The maximum length of a provider's error message that is shown."""


class ProviderRefused(ModelError):
    """A provider that will not serve this caller as configured: a wrong key, a model it does not have."""

    def __init__(self, provider: str, status: int, message: str, remedy: str) -> None:
        self.provider, self.status = provider, status
        super().__init__(f"{provider} refused ({status}): {message}. {remedy}")


class ProviderUnavailable(ModelError):
    """A provider that may serve again later: down, slow, out of quota, or returning invalid data."""

    def __init__(self, provider: str, reason: str) -> None:
        self.provider, self.reason = provider, reason
        super().__init__(f"{provider} does not answer: {reason}.")


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """How long one request may take, how often it is tried, and how long a server may ask us to wait."""

    seconds: float = 30.0
    attempts: int = 4
    wait_seconds: float = 20.0


PATIENT = Patience()
"""For documents, which are embedded in advance."""
PROMPT = Patience(seconds=8.0, attempts=2, wait_seconds=1.0)
"""For requests that a user waits for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProviderEndpoint:
    """The URL and credentials of a provider."""

    provider: str
    url: str
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    query: Mapping[str, str] = field(default_factory=dict)
    key_variable: str = ""
    """The environment variable that should hold the key, for the remedy in an error."""


def find_key(provider: str, variables: Sequence[str], given: str | None, base_url: str | None) -> str | None:
    """Return the given key, or else the environment's; a self-hosted server may need none, a provider always does."""
    key = given or next((found for name in variables if (found := os.environ.get(name))), None)
    if key is None and base_url is None and variables:
        raise InvalidInput(f"{provider} needs a key: set {variables[0]}, or pass api_key.")
    return key


class Remote:
    """A connection to one provider, shared by threads; at most `concurrency` requests are under way."""

    def __init__(
        self, endpoint: ProviderEndpoint, *, concurrency: int = 4, sleep: Callable[[float], object] = time.sleep
    ) -> None:
        self.endpoint = endpoint
        self.concurrency = concurrency
        self._sleep = sleep
        self._slots = threading.BoundedSemaphore(concurrency)
        self._lock = threading.Lock()
        self._client: Any = None

    def post(self, path: str, body: Mapping[str, Any], patience: Patience) -> Any:
        """Send a request and return its JSON; raise ProviderRefused or ProviderUnavailable."""
        reason = ""
        for attempt in range(1, patience.attempts + 1):
            try:
                return self._once(path, body, patience.seconds)
            except _Passing as passing:
                reason = passing.reason
                wait = passing.wait if passing.wait is not None else _back_off(attempt)
                if attempt == patience.attempts or wait > patience.wait_seconds:
                    break
                self._sleep(wait)
        raise ProviderUnavailable(self.endpoint.provider, reason)

    def close(self) -> None:
        with self._lock:
            if self._client is not None:
                self._client.close()
                self._client = None

    def _once(self, path: str, body: Mapping[str, Any], seconds: float) -> Any:
        import httpx2  # noqa: PLC0415

        with self._slots:
            try:
                response = self._connected(httpx2).post(
                    f"{self.endpoint.url.rstrip('/')}{path}", json=dict(body), timeout=seconds
                )
            except httpx2.TimeoutException:
                raise _Passing(f"no answer within {seconds:g} seconds") from None
            except (httpx2.HTTPError, httpx2.InvalidURL, OSError) as error:
                raise _Passing(one_line(str(error) or type(error).__name__, SHOWN_CHARS)) from None
        if response.status_code in TRY_AGAIN:
            raise _Passing(f"{response.status_code} {_message(response)}", _retry_after(response.headers))
        if response.status_code >= 400:
            raise self._refusal(response)
        try:
            return response.json()
        except (json.JSONDecodeError, UnicodeDecodeError):
            raise _Passing("its answer is not JSON, perhaps cut off") from None

    def _connected(self, library: Any) -> Any:
        with self._lock:
            if self._client is None:
                self._client = library.Client(headers=dict(self.endpoint.headers), params=dict(self.endpoint.query))
            return self._client

    def _refusal(self, response: Any) -> ProviderRefused:
        variable = self.endpoint.key_variable
        by_status = {
            401: f"Check the key{f' in {variable}' if variable else ''}.",
            403: "Check what the key may do.",
            404: "Check the base URL and the model's name.",
        }
        remedy = by_status.get(response.status_code, "Check model, dimensions and base URL.")
        return ProviderRefused(self.endpoint.provider, response.status_code, _message(response), remedy)


class _Passing(Exception):
    """A failure that may be over at the next attempt."""

    def __init__(self, reason: str, wait: float | None = None) -> None:
        self.reason, self.wait = reason, wait


def _back_off(attempt: int) -> float:
    return float(BACK_OFF_SECONDS * 2 ** (attempt - 1) * random.uniform(0.8, 1.2))  # noqa: S311


def _retry_after(headers: Mapping[str, str]) -> float | None:
    """Read how long a server asks to wait: seconds, or a date."""
    milliseconds, given = headers.get("retry-after-ms"), headers.get("retry-after")
    try:
        if milliseconds is not None:
            return max(float(milliseconds) / 1000, 0.0)
        return max(float(given), 0.0) if given is not None else None
    except ValueError:
        pass
    try:
        until = parsedate_to_datetime(given or "")
    except ValueError:
        return None
    aware = until if until.tzinfo is not None else until.replace(tzinfo=UTC)
    return max((aware - datetime.now(UTC)).total_seconds(), 0.0)


def _message(response: Any) -> str:
    """Find the error message in a provider's response, in any of the known formats."""
    try:
        body = response.json()
    except (json.JSONDecodeError, UnicodeDecodeError):
        return one_line(str(response.text), SHOWN_CHARS) or "no reason given"
    found: Any = body
    for key in ("error", "message", "detail"):
        if isinstance(found, Mapping) and key in found:
            found = found[key]
    return one_line(found if isinstance(found, str) else json.dumps(found), SHOWN_CHARS)
