"""Access tokens of configured issuers: JWTs are checked with the issuer's keys, opaque tokens by introspection.

The algorithms, the keys, the issuer and the audience come from the configuration. What a token says about how to check
it is not used.
"""

import asyncio
import hashlib
import json
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

import jwt
from jwt.utils import base64url_decode

from shortlist.config.settings import IssuerSettings, OAuthSettings
from shortlist.models import Json

ALGORITHMS: Final[Mapping[str, tuple[str, ...]]] = {
    "RSA": ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"),
    "EC": ("ES256", "ES384", "ES512"),
    "OKP": ("EdDSA",),
}
"""The signatures that each type of key may make. No `none` and no HS*: a public key is never a shared secret."""
MAX_TOKEN_CHARACTERS = 16_384
MAX_SUBJECT_CHARACTERS = 256
LATEST = 1e12
"""Times beyond this, in seconds since the epoch, are mistakes."""
MOST_KEYS = 100
LEAST_RSA_BITS = 2_048
KEYS_SECONDS = 600.0
"""How long keys are used before they are fetched again."""
RETRY_SECONDS = 30.0
"""How long after a fetch an unknown key may cause the next one."""
LEEWAY_SECONDS = 60.0
"""How far the clocks of the issuer and of this machine may differ."""
MOST_VERIFIED = 10_000
VERIFIED_SECONDS = 60.0
"""How long an answer about a token is reused; the revocation of an opaque token is noticed after this time."""
REFUSED_SECONDS = 10.0
"""How long the same opaque token is refused without asking its issuer again."""
MOST_QUESTIONS = 16
"""Introspections that run at the same time; further tokens are refused until one ends."""


_SIGNATURES = jwt.PyJWS()


class TokenRefused(Exception):
    """A token that is not accepted; `reason` may be shown to its bearer and holds nothing of the token."""

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(reason)


class IssuerLink(Protocol):
    """Reaches an issuer over the network; both methods raise OSError, TimeoutError or ValueError on failure."""

    async def fetch(self, issuer: IssuerSettings, url: str) -> Mapping[str, Json]:
        """Return a JSON document, such as the issuer's metadata or keys."""
        ...

    async def introspect(self, issuer: IssuerSettings, token: str) -> Mapping[str, Json]:
        """Return what the issuer says about an opaque token (RFC 7662)."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """Who a token was issued to, and what its issuer says about them."""

    issuer: IssuerSettings
    subject: str
    expires: float | None
    """In seconds since the epoch, with the leeway; None where the issuer did not say."""
    claims: Mapping[str, Json] = field(repr=False)

    @property
    def scopes(self) -> frozenset[str]:
        raw = self.claims.get("scope", self.claims.get("scp", ()))
        return frozenset(raw.split() if isinstance(raw, str) else map(str, raw if isinstance(raw, list) else ()))


class IssuerKeys:
    """An issuer's public keys: cached, fetched again when one is missing, and kept while the issuer is down."""

    def __init__(self, issuer: IssuerSettings, link: IssuerLink, clock: Callable[[], float]) -> None:
        self._issuer = issuer
        self._link = link
        self._clock = clock
        self._keys: tuple[jwt.PyJWK, ...] = ()
        self._fetched = float("-inf")
        self._flight: asyncio.Task[None] | None = None

    async def find(self, key_id: str | None, algorithm: str) -> jwt.PyJWK:
        """Return the key that a token names; raise TokenRefused where the issuer does not publish it."""
        if self._clock() - self._fetched > KEYS_SECONDS:
            await self._refresh()
        key = self._matching(key_id, algorithm)
        if key is None and self._clock() - self._fetched > RETRY_SECONDS:
            await self._refresh()
            key = self._matching(key_id, algorithm)
        if key is None:
            raise TokenRefused("the token is signed with a key that its issuer does not publish")
        return key

    def _matching(self, key_id: str | None, algorithm: str) -> jwt.PyJWK | None:
        fitting = [key for key in self._keys if algorithm in ALGORITHMS.get(key.key_type or "", ())]
        if key_id is None:
            return fitting[0] if len(fitting) == 1 else None
        return next((key for key in fitting if key.key_id == key_id), None)

    async def _refresh(self) -> None:
        if self._flight is None:
            self._flight = asyncio.create_task(self._load())
            self._flight.add_done_callback(self._landed)
        await asyncio.shield(self._flight)  # a caller that leaves must not end the fetch for the others

    def _landed(self, flight: asyncio.Task[None]) -> None:
        self._flight = None
        if not flight.cancelled():
            flight.exception()

    async def _load(self) -> None:
        self._fetched = self._clock()  # before the request: an issuer that is down is not asked for every token
        try:
            address = self._issuer.jwks_uri or await self._discovered()
            document = await self._link.fetch(self._issuer, address)
        except (OSError, TimeoutError, ValueError):
            if self._keys:
                return
            self._fetched = self._clock() - KEYS_SECONDS + RETRY_SECONDS
            raise TokenRefused("the keys of the token's issuer cannot be fetched; try again shortly") from None
        self._keys = _readable(document.get("keys"))

    async def _discovered(self) -> str:
        base = self._issuer.issuer.rstrip("/")
        for path in ("/.well-known/openid-configuration", "/.well-known/oauth-authorization-server"):
            try:
                document = await self._link.fetch(self._issuer, base + path)
            except ValueError:
                continue
            if document.get("issuer") == self._issuer.issuer and isinstance(document.get("jwks_uri"), str):
                return str(document["jwks_uri"])
        raise ValueError("the issuer publishes no keys")


class TokenVerifier:
    """Decides who an access token belongs to; follows the configuration."""

    def __init__(
        self,
        settings: Callable[[], OAuthSettings],
        link: IssuerLink,
        *,
        clock: Callable[[], float] = time.monotonic,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._read = settings
        self._link = link
        self._clock = clock
        self._now = now
        self._settings = OAuthSettings()
        self._by_url: dict[str, IssuerSettings] = {}
        self._keys: dict[IssuerSettings, IssuerKeys] = {}
        self._verified: OrderedDict[str, tuple[float, Identity | TokenRefused]] = OrderedDict()
        self._questions = 0

    async def verify(self, token: str) -> Identity:
        """Return who a token belongs to; raise TokenRefused with a reason that may be shown."""
        self._follow()
        if not token or len(token) > MAX_TOKEN_CHARACTERS:
            raise TokenRefused("the token is empty or too long")
        digest = hashlib.sha256(token.encode("utf-8", "surrogatepass")).hexdigest()
        until, known = self._verified.get(digest, (0.0, None))
        if known is None or until <= self._clock():
            known, seconds = await (self._jwt(token) if token.count(".") == 2 else self._opaque(token))
            self._keep(digest, known, seconds)
        if isinstance(known, TokenRefused):
            raise TokenRefused(known.reason)
        return known

    def _follow(self) -> None:
        """Use the present configuration; keys of an issuer that has not changed are kept."""
        settings = self._read()
        if settings is self._settings:
            return
        self._settings, issuers = settings, settings.issuers.values()
        self._by_url = {issuer.issuer: issuer for issuer in issuers}
        self._keys = {i: self._keys.get(i) or IssuerKeys(i, self._link, self._clock) for i in issuers}
        self._verified.clear()

    def _keep(self, digest: str, known: Identity | TokenRefused, seconds: float) -> None:
        self._verified[digest] = (self._clock() + seconds, known)
        while len(self._verified) > MOST_VERIFIED:
            self._verified.popitem(last=False)

    async def _jwt(self, token: str) -> tuple[Identity, float]:
        read = _read_token(token)
        issuer = self._by_url.get(str(read.claims.get("iss")))
        if issuer is None:
            raise TokenRefused("the token was issued by somebody who is not trusted here")
        algorithm = str(read.header.get("alg"))
        if not any(algorithm in accepted for accepted in ALGORITHMS.values()):
            raise TokenRefused("the token is not signed with an accepted algorithm")
        key = await self._keys[issuer].find(read.header.get("kid"), algorithm)
        if not _SIGNATURES.get_algorithm_by_name(algorithm).verify(read.signed, key.key, read.signature):
            raise TokenRefused("the token's signature is not valid")
        self._check_audience(issuer, read.claims)
        return _identity(issuer, read.claims), min(self._seconds_left(read.claims), VERIFIED_SECONDS)

    def _seconds_left(self, claims: Mapping[str, Json]) -> float:
        """Return how long a token may still be used; raise TokenRefused outside of the time it is valid in."""
        now = self._now()
        for name in ("nbf", "iat"):
            if name in claims and _seconds(claims, name) > now + LEEWAY_SECONDS:
                raise TokenRefused("the token is not valid yet")
        left = _seconds(claims, "exp") + LEEWAY_SECONDS - now
        if left <= 0:
            raise TokenRefused("the token has expired")
        return left

    async def _opaque(self, token: str) -> tuple[Identity | TokenRefused, float]:
        asked = [issuer for issuer in self._by_url.values() if issuer.introspection is not None]
        if self._questions >= MOST_QUESTIONS:
            raise TokenRefused("too many tokens are being checked; try again shortly")
        self._questions += 1
        try:
            for issuer in asked:
                claims = await self._link.introspect(issuer, token)
                if claims.get("active") is True:
                    self._check_introspected(issuer, claims)
                    return _identity(issuer, claims), VERIFIED_SECONDS
        except (OSError, TimeoutError, ValueError):
            raise TokenRefused("the issuer does not answer questions about tokens; try again shortly") from None
        finally:
            self._questions -= 1
        return TokenRefused("the token is not known here"), REFUSED_SECONDS

    def _check_introspected(self, issuer: IssuerSettings, claims: Mapping[str, Json]) -> None:
        self._check_audience(issuer, claims)
        if claims.get("iss", issuer.issuer) != issuer.issuer:
            raise TokenRefused("the token was issued by somebody else")
        if "exp" in claims and _seconds(claims, "exp") + LEEWAY_SECONDS < self._now():
            raise TokenRefused("the token has expired")

    def _check_audience(self, issuer: IssuerSettings, claims: Mapping[str, Json]) -> None:
        """Accept a configured audience, or the URI of one of our endpoints (RFC 8707)."""
        stated = claims.get("aud")
        below = f"{self._settings.resource}/w/"
        for audience in [stated] if isinstance(stated, str) else stated if isinstance(stated, list) else ():
            if isinstance(audience, str) and (audience in issuer.audiences or audience.startswith(below)):
                return
        raise TokenRefused("the token is for another service")


@dataclass(frozen=True, slots=True)
class _Read:
    """A token taken apart; nothing of it is trusted before the signature is checked."""

    header: dict[str, Any]
    claims: dict[str, Any]
    signed: bytes
    signature: bytes


def _read_token(token: str) -> _Read:
    try:
        head, payload, signature = (base64url_decode(part) for part in token.split("."))
        header, claims = json.loads(head), json.loads(payload)
    except (ValueError, RecursionError):
        raise TokenRefused("the token is malformed") from None
    if not isinstance(header, dict) or not isinstance(claims, dict) or not isinstance(claims.get("iss"), str):
        raise TokenRefused("the token is malformed")
    if not isinstance(header.get("kid"), (str, type(None))) or "crit" in header or "b64" in header:
        raise TokenRefused("the token is malformed")
    return _Read(header, claims, token.rpartition(".")[0].encode(), signature)


def _seconds(claims: Mapping[str, Json], name: str) -> float:
    value = claims.get(name)
    if value is None:
        raise TokenRefused(f"the token lacks the claim {name!r}")
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not abs(value) < LATEST:
        raise TokenRefused(f"the claim {name!r} of the token is not a time")
    return float(value)


def _identity(issuer: IssuerSettings, claims: Mapping[str, Json]) -> Identity:
    subject = claims.get("sub") or claims.get("client_id")
    if not isinstance(subject, str) or not subject:
        raise TokenRefused("the token does not name its subject")
    if len(subject) > MAX_SUBJECT_CHARACTERS or not subject.isprintable():
        raise TokenRefused("the subject of the token is too long or not printable")
    until = _seconds(claims, "exp") + LEEWAY_SECONDS if "exp" in claims else None
    return Identity(issuer=issuer, subject=subject, expires=until, claims=dict(claims))


def _readable(raw: Json) -> tuple[jwt.PyJWK, ...]:
    keys = []
    for entry in raw[:MOST_KEYS] if isinstance(raw, list) else ():
        try:
            if isinstance(entry, dict) and entry.get("kty") in ALGORITHMS and entry.get("use", "sig") == "sig":
                key = jwt.PyJWK(entry)
                if key.key_type != "RSA" or key.key.key_size >= LEAST_RSA_BITS:
                    keys.append(key)
        except (jwt.PyJWTError, ValueError, TypeError):
            continue  # a key of an unknown kind must not hide the others
    return tuple(keys)
