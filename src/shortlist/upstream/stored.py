"""Puts stored secrets into a transport when its server starts: settings hold only their names."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

from shortlist.config.masking import MASK, names_secret, redact
from shortlist.config.settings import HttpTransport, SseTransport, StdioTransport, Transport
from shortlist.config.variables import MissingSecret, has_secrets, with_secrets
from shortlist.errors import ShortlistError

SHORTEST_SECRET = 6
"""Shorter values would mask ordinary words."""


def filled(transport: Transport, find: Callable[[str], str | None] | None) -> Transport:
    """Return a transport with its secrets; raise ConnectionError for one that is not stored or cannot be read."""

    def value(text: str) -> str:
        if not has_secrets(text):
            return text
        return with_secrets(text, find or (lambda _: None))

    def values(texts: Mapping[str, str]) -> dict[str, str]:
        return {name: value(text) for name, text in texts.items()}

    try:
        if isinstance(transport, StdioTransport):
            return replace(transport, environment=values(transport.environment))
        if isinstance(transport, (HttpTransport, SseTransport)):
            secret = transport.oauth.client_secret
            oauth = replace(transport.oauth, client_secret=value(secret)) if secret else transport.oauth
            return replace(transport, url=value(transport.url), headers=values(transport.headers), oauth=oauth)
    except (MissingSecret, ShortlistError) as error:
        raise ConnectionError(str(error)) from None
    return transport


def secret_values(before: Transport, after: Transport) -> Iterator[str]:
    """Yield the secrets that a local server is given: those that were stored, and variables that look like secrets."""
    if isinstance(before, StdioTransport) and isinstance(after, StdioTransport):
        for name, value in after.environment.items():
            is_secret = value != before.environment[name] or names_secret(name) or redact(value) == MASK
            if is_secret and len(value) >= SHORTEST_SECRET:
                yield value
