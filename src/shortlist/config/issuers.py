"""Whose access tokens a gateway accepts, from the shapes of a file to settings."""

import re
from collections.abc import Iterable
from urllib.parse import urlsplit

from shortlist.config.identities import IssuerShape, ResourceServerShape
from shortlist.config.settings import NO_ISSUERS, ClaimRule, Introspection, IssuerSettings, OAuthSettings
from shortlist.config.variables import MissingVariable, Variables
from shortlist.errors import InvalidConfig


def resource_server(
    shape: ResourceServerShape | None, tokens: Iterable[str], variables: Variables, source: str
) -> OAuthSettings:
    """Read whose access tokens are accepted; addresses must be HTTPS, except on this machine."""
    if shape is None:
        return NO_ISSUERS
    place = f"{source}: shortlist.oauth"
    _check_address(f"{place}.resource", shape.resource)
    issuers = {}
    for name, issuer in shape.issuers.items():
        where = f"{place}.issuers.{name if name.isprintable() else ascii(name)}"
        if not re.fullmatch(r"[A-Za-z0-9_.-]{1,64}", name):
            raise InvalidConfig(f"{where}: use letters, digits, '.', '_' and '-' in the name of an issuer; rename it")
        if any(token.startswith(f"{name}:") for token in tokens):
            raise InvalidConfig(f"{where}: a token is named {name}:…, like the callers of this issuer; rename it")
        issuers[name] = _issuer(name, issuer, shape.resource, variables, where)
    return OAuthSettings(resource=shape.resource, issuers=issuers)


def _issuer(name: str, shape: IssuerShape, resource: str, variables: Variables, place: str) -> IssuerSettings:
    asked = shape.introspection
    addresses = {"issuer": shape.issuer, "jwks_uri": shape.jwks_uri, "introspection.url": asked.url if asked else None}
    for key, address in addresses.items():
        if address is not None:
            _check_address(f"{place}.{key}", address)
    for number, rule in enumerate(shape.rules):
        if (rule.claim is None) != (not rule.values):
            raise InvalidConfig(f"{place}.rules[{number}]: 'claim' and 'values' go together; add the missing one")
    try:
        given = {key: variables.expand(text) for key, text in dict(asked).items()} if asked is not None else None
    except MissingVariable as missing:
        raise InvalidConfig(f"{place}.introspection: {missing}") from None
    return IssuerSettings(
        name=name,
        issuer=shape.issuer,
        audiences=shape.audiences or (resource,),
        rules=tuple(ClaimRule(**dict(rule)) for rule in shape.rules),
        jwks_uri=shape.jwks_uri,
        introspection=Introspection(**given) if given is not None else None,
        scopes=tuple(shape.scopes.items()),
        allow_private_addresses=shape.allow_private_addresses,
    )


def _check_address(place: str, address: str) -> None:
    """Refuse an address over which tokens or keys would travel in the clear."""
    try:
        parts = urlsplit(address)
        local = parts.hostname in ("127.0.0.1", "localhost", "::1")
    except ValueError:
        parts, local = urlsplit(""), False
    if parts.hostname is None or not (parts.scheme == "https" or (parts.scheme == "http" and local)):
        raise InvalidConfig(f"{place}: {address!r} is not an https:// address (http:// only on this machine)")
