"""Access tokens of configured issuers: JWTs are checked with the issuer's keys, opaque tokens by introspection.

The algorithms, the keys, the issuer and the audience come from the configuration. What a token says about how to check
it is not used.
"""

import asyncio
import binascii
import hashlib
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, Protocol

from pydantic_core import from_json

from shortlist.config.settings import IssuerSettings, OAuthSettings
from shortlist.models import Json

ALGORITHMS: Final[Mapping[str, tuple[str, ...]]] = {
    "RSA": ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"),
    "P-256": ("ES256",),
    "P-384": ("ES384",),
    "P-521": ("ES512",),
    "Ed25519": ("EdDSA",),
    "Ed448": ("EdDSA",),
}
"""The signatures that RSA keys and the keys of each curve may make. No `none` and no HS*: a public key is never a
shared secret."""
ACCEPTED: Final = frozenset(name for names in ALGORITHMS.values() for name in names)
TYPES: Final = ("jwt", "at+jwt")
"""What a JWT may say that it is: a logout token or a proof of the same issuer is not an access token (RFC 8725)."""
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

_BASE64URL = bytes.maketrans(b"-_+/=", b"+/!!!")
"""From base64url to base64; characters that only base64 has become invalid."""


class TokenRefused(Exception):
    """A token that is not accepted; `reason` may be shown to its bearer and holds nothing of the token."""

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(reason)


class CannotCheck(TokenRefused):
    """A token that may be valid: its issuer cannot be asked at the moment, so the client should try it again."""


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


class _PublicKey(NamedTuple):
    id: str | None
    algorithms: frozenset[str]
    key: Any


class IssuerKeys:
    """An issuer's public keys: cached, fetched again when one is missing, and kept while the issuer is down."""

    def __init__(self, issuer: IssuerSettings, link: IssuerLink, clock: Callable[[], float]) -> None:
        self._issuer = issuer
        self._link = link
        self._clock = clock
        self._keys: tuple[_PublicKey, ...] = ()
        self._fetched = float("-inf")
        self._flight: asyncio.Task[None] | None = None

    async def find(self, key_id: str | None, algorithm: str) -> Any:
        """Return the key that a token names; raise TokenRefused where the issuer does not publish it."""
        if self._clock() - self._fetched > KEYS_SECONDS:
            await self._refresh()
        key = self._matching(key_id, algorithm)
        if key is None and self._clock() - self._fetched > RETRY_SECONDS:
            await self._refresh()
            key = self._matching(key_id, algorithm)
        if key is None:
            raise TokenRefused("the token is signed with a key that its issuer does not publish")
        return key.key

    def _matching(self, key_id: str | None, algorithm: str) -> _PublicKey | None:
        fitting = [key for key in self._keys if algorithm in key.algorithms]
        if key_id is None:
            return fitting[0] if len(fitting) == 1 else None
        return next((key for key in fitting if key.id == key_id), None)

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
            raise CannotCheck("the keys of the token's issuer cannot be fetched") from None
        self._keys = await asyncio.to_thread(_readable, document.get("keys"))

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
        self._issuers: dict[str, tuple[IssuerSettings, IssuerKeys]] = {}
        self._verified: OrderedDict[str, tuple[float, Identity | TokenRefused]] = OrderedDict()
        self._asked: dict[str, asyncio.Task[tuple[Identity | TokenRefused, float]]] = {}

    async def verify(self, token: str) -> Identity:
        """Return who a token belongs to; raise TokenRefused with a reason that may be shown."""
        self._follow()
        if not token or len(token) > MAX_TOKEN_CHARACTERS:
            raise TokenRefused("the token is empty or too long")
        digest = hashlib.sha256(token.encode("utf-8", "surrogatepass")).hexdigest()
        until, known = self._verified.get(digest, (0.0, None))
        if known is None or until <= self._clock():
            known, seconds = await (self._jwt(token) if token.count(".") == 2 else self._ask(digest, token))
            self._keep(digest, known, seconds)
        if isinstance(known, TokenRefused):
            raise type(known)(known.reason)
        return known

    def _follow(self) -> None:
        """Use the present configuration; keys of an issuer that has not changed are kept."""
        settings = self._read()
        if settings is self._settings:
            return
        self._settings, before = settings, dict(self._issuers.values())
        self._issuers = {
            issuer.issuer: (issuer, before.get(issuer) or IssuerKeys(issuer, self._link, self._clock))
            for issuer in settings.issuers.values()
        }
        self._verified.clear()

    def _keep(self, digest: str, known: Identity | TokenRefused, seconds: float) -> None:
        self._verified[digest] = (self._clock() + seconds, known)
        while len(self._verified) > MOST_VERIFIED:
            self._verified.popitem(last=False)

    async def _jwt(self, token: str) -> tuple[Identity, float]:
        read = _read_token(token)
        issuer, keys = self._issuers.get(read.claims["iss"], (None, None))
        if issuer is None or keys is None:
            raise TokenRefused("the token was issued by somebody who is not trusted here")
        algorithm = read.header.get("alg")
        if not isinstance(algorithm, str) or algorithm not in ACCEPTED:
            raise TokenRefused("the token is not signed with an accepted algorithm")
        key = await keys.find(read.header.get("kid"), algorithm)
        if not _is_signed(read, algorithm, key):
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

    async def _ask(self, digest: str, token: str) -> tuple[Identity | TokenRefused, float]:
        """Ask about an opaque token once, however many requests present it at the same time."""
        flight = self._asked.get(digest)
        if flight is None:
            if len(self._asked) >= MOST_QUESTIONS:
                raise CannotCheck("too many tokens are being checked")
            flight = self._asked[digest] = asyncio.create_task(self._opaque(token))
            flight.add_done_callback(lambda _: self._asked.pop(digest, None))
        return await asyncio.shield(flight)  # a caller that leaves must not end the question for the others

    async def _opaque(self, token: str) -> tuple[Identity | TokenRefused, float]:
        asked = [issuer for issuer, _ in self._issuers.values() if issuer.introspection is not None]
        try:
            for issuer in asked:
                claims = await self._link.introspect(issuer, token)
                if claims.get("active") is True:
                    return self._introspected(issuer, claims)
        except TokenRefused as refused:
            return refused, REFUSED_SECONDS
        except (OSError, TimeoutError, ValueError):
            return CannotCheck("the issuer does not answer questions about tokens"), 0.0
        return TokenRefused("the token is not known here"), REFUSED_SECONDS

    def _introspected(self, issuer: IssuerSettings, claims: Mapping[str, Json]) -> tuple[Identity, float]:
        self._check_audience(issuer, claims)
        if claims.get("iss", issuer.issuer) != issuer.issuer:
            raise TokenRefused("the token was issued by somebody else")
        left = self._seconds_left(claims) if "exp" in claims else VERIFIED_SECONDS
        return _identity(issuer, claims), min(left, VERIFIED_SECONDS)

    def _check_audience(self, issuer: IssuerSettings, claims: Mapping[str, Json]) -> None:
        """Accept a configured audience, or the URI of one of our endpoints (RFC 8707)."""
        stated = claims.get("aud")
        below = f"{self._settings.resource}/w/"
        for audience in [stated] if isinstance(stated, str) else stated if isinstance(stated, list) else ():
            if isinstance(audience, str) and (audience in issuer.audiences or audience.startswith(below)):
                return
        raise TokenRefused("the token is for another service")


class _Read(NamedTuple):
    """A token taken apart; nothing of it is trusted before the signature is checked."""

    header: dict[str, Any]
    claims: dict[str, Any]
    signed: bytes
    signature: bytes


def _read_token(token: str) -> _Read:
    try:
        raw = token.encode("ascii")
        head, payload, signature = map(_decoded, raw.translate(_BASE64URL).split(b"."))
        header, claims = from_json(head), from_json(payload)
    except ValueError:
        raise TokenRefused("the token is malformed") from None
    if not isinstance(header, dict) or not isinstance(claims, dict) or not isinstance(claims.get("iss"), str):
        raise TokenRefused("the token is malformed")
    if not isinstance(header.get("kid"), (str, type(None))) or "crit" in header or "b64" in header:
        raise TokenRefused("the token is malformed")
    if str(header.get("typ", "JWT")).lower().removeprefix("application/") not in TYPES:
        raise TokenRefused("the token is not an access token")
    return _Read(header, claims, raw.rpartition(b".")[0], signature)


def _is_signed(token: _Read, algorithm: str, key: Any) -> bool:
    import jwt  # noqa: PLC0415 - as in `_public_key`, which has made the key

    return bool(jwt.get_algorithm_by_name(algorithm).verify(token.signed, key, token.signature))


def _decoded(part: bytes) -> bytes:
    return binascii.a2b_base64(part + b"=" * (-len(part) % 4), strict_mode=True)


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
    if "cnf" in claims:
        raise TokenRefused("the token is bound to a key of its client; this gateway accepts bearer tokens only")
    until = _seconds(claims, "exp") + LEEWAY_SECONDS if "exp" in claims else None
    return Identity(issuer=issuer, subject=subject, expires=until, claims=claims)


def _readable(raw: Json) -> tuple[_PublicKey, ...]:
    """Return the keys of a key set that can check signatures; a key of an unknown kind must not hide the others."""
    entries = raw[:MOST_KEYS] if isinstance(raw, list) else ()
    return tuple(key for entry in entries if isinstance(entry, dict) and (key := _public_key(entry)) is not None)


def _public_key(entry: Mapping[str, Json]) -> _PublicKey | None:
    import jwt  # noqa: PLC0415 - takes 40 ms, and few gateways have an issuer

    key_id, kind = entry.get("kid"), entry.get("kty")
    algorithms = frozenset(ALGORITHMS.get(str(kind if kind == "RSA" else entry.get("crv")), ()))
    if "alg" in entry:
        algorithms &= {str(entry["alg"])}
    if not algorithms or entry.get("use", "sig") != "sig" or not isinstance(key_id, (str, type(None))):
        return None
    try:
        key = jwt.PyJWK(dict(entry)).key
    except (jwt.PyJWTError, ValueError, TypeError):
        return None
    if kind == "RSA" and key.key_size < LEAST_RSA_BITS:
        return None
    return _PublicKey(key_id, algorithms, key)
