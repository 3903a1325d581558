"""From the claims of an access token to a principal, by the rules of the configuration."""

from collections.abc import Collection, Mapping
from typing import Any

from shortlist.access.jwt import Identity, TokenRefused
from shortlist.access.principal import Principal, credential_of
from shortlist.config.settings import ClaimRule
from shortlist.models import Json


class NoRule(TokenRefused):
    """A valid token that no rule of the configuration matches: another token of the same kind would not help."""


def principal_of(identity: Identity) -> Principal:
    """Return the principal of a verified token; raise NoRule where the configuration lets its bearer do nothing."""
    issuer = identity.issuer
    for place, rule in enumerate(issuer.rules):
        if matches(rule, identity.claims):
            return Principal(
                kind="oauth",
                name=f"{issuer.name}:{identity.subject}",
                credential=credential_of(issuer),
                rule=place,
                granted=identity.scopes.intersection(name for name, _ in issuer.scopes)
                if issuer.scopes
                else frozenset(),
                expires=identity.expires,
            )
    raise NoRule("no rule in the configuration of this gateway matches the token")


def matches(rule: ClaimRule, claims: Mapping[str, Json]) -> bool:
    """Return whether every condition of a rule holds."""
    if rule.claim is not None:
        held = _held(_claim(claims, rule.claim))
        if not any(value in held for value in rule.values):
            return False
    return not rule.email_domains or _email_domain(claims) in {domain.lower() for domain in rule.email_domains}


def _claim(claims: Mapping[str, Json], name: str) -> Json:
    """Return a claim by its name, else by a path into nested objects."""
    if name in claims:
        return claims[name]
    found: Any = claims
    for part in name.split("."):
        if not isinstance(found, Mapping):
            return None
        found = found.get(part)
    return found


def _held(value: Json) -> Collection[Any]:
    """Return the values of a claim: a list, one text, or texts separated by spaces as in `scope`."""
    if isinstance(value, str):
        return {value, *value.split()}
    return value if isinstance(value, list) else ()


def _email_domain(claims: Mapping[str, Json]) -> str | None:
    """Return the domain of an e-mail address that the issuer has verified."""
    address = claims.get("email")
    if claims.get("email_verified") is not True or not isinstance(address, str):
        return None
    return address.rpartition("@")[2].lower()
