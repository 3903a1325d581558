"""What authentication adds to a request over HTTP: python -m benchmarks.identity.

Every kind of credential passes the same middleware in front of an app that answers at once, and the time without the
middleware is subtracted. The keys of the issuer are cached, as they are after the first request. `new JWT` is a token
that was not seen before, so that its signature is checked; `known JWT` is one that was checked within the last minute.
"""

import argparse
import asyncio
import json
import time
from collections.abc import Mapping, Sequence
from statistics import median, quantiles
from typing import Any

import jwt
from benchmarks.measuring import publish
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp

from shortlist.access.jwt import TokenVerifier
from shortlist.catalog.catalog import Catalog
from shortlist.config.settings import (
    ClaimRule,
    IssuerSettings,
    OAuthSettings,
    Settings,
    TokenSettings,
    hash_token,
)
from shortlist.evals.tables import Table
from shortlist.front.border import Bearer, Border
from shortlist.gateway.state import GatewayState
from shortlist.models import Json
from shortlist.search.engine import Engine
from shortlist.search.searcher import Searcher
from shortlist.upstream.pool import UpstreamPool

ISSUER, RESOURCE = "https://login.example.com", "https://tools.example.com/mcp"
TARGET_MILLISECONDS = 0.3
TOKENS = 20
"""Tokens of our own in the configuration."""


class Keys:
    """An issuer's keys, answered from memory."""

    def __init__(self) -> None:
        self.private: dict[str, Any] = {
            "RS256": rsa.generate_private_key(65537, 2048),
            "ES256": ec.generate_private_key(ec.SECP256R1()),
        }

    async def fetch(self, _: IssuerSettings, __: str) -> Mapping[str, Json]:
        kinds: dict[str, Any] = {"RS256": jwt.algorithms.RSAAlgorithm, "ES256": jwt.algorithms.ECAlgorithm}
        public = {name: json.loads(kinds[name].to_jwk(key.public_key())) for name, key in self.private.items()}
        return {"keys": [{**entry, "kid": name} for name, entry in public.items()]}

    async def introspect(self, _: IssuerSettings, __: str) -> Mapping[str, Json]:
        return {"active": False}

    def token(self, algorithm: str, number: int) -> str:
        claims = {
            "iss": ISSUER,
            "aud": RESOURCE,
            "sub": f"user-{number}",
            "exp": int(time.time()) + 3600,
            "groups": [f"group-{i}" for i in range(20)],
        }
        return jwt.encode(claims, self.private[algorithm], algorithm, headers={"kid": algorithm})


def settings() -> Settings:
    """Return a gateway's settings with tokens of its own and one trusted issuer."""
    rules = (ClaimRule(claim="groups", values=("admins",)), ClaimRule(claim="groups", values=("group-19",)))
    issuer = IssuerSettings(
        name="company", issuer=ISSUER, audiences=(RESOURCE,), rules=rules, jwks_uri=f"{ISSUER}/keys"
    )
    tokens = {f"t{i}": TokenSettings(name=f"t{i}", hash=hash_token(f"slt_{i}")) for i in range(TOKENS)}
    return Settings(tokens=tokens, oauth=OAuthSettings(resource=RESOURCE, issuers={"company": issuer}))


async def measured(app: ASGIApp, credentials: Sequence[str]) -> list[float]:
    """Return the milliseconds of one request with each credential."""
    times = []
    for credential in credentials:
        status: list[int] = []

        async def send(message: Any, status: list[int] = status) -> None:
            if message["type"] == "http.response.start":
                status.append(message["status"])

        headers = [(b"host", b"127.0.0.1"), (b"authorization", f"Bearer {credential}".encode())]
        scope = {"type": "http", "method": "POST", "path": "/mcp", "headers": headers}
        started = time.perf_counter()
        await app(scope, _nothing, send)
        times.append((time.perf_counter() - started) * 1000)
        if status != [200]:
            raise SystemExit(f"a credential was refused with {status}")
    return times


async def _nothing() -> dict[str, Any]:
    return {"type": "http.request", "body": b"", "more_body": False}


async def run(requests: int) -> dict[str, list[float]]:
    whole, keys = settings(), Keys()
    state = GatewayState(whole, Engine.over(Searcher(Catalog.of(()))), UpstreamPool({}, on_event=lambda _: None))
    border = Border(state, token_required=True, verifier=TokenVerifier(lambda: whole.oauth, keys))
    plain = PlainTextResponse("ok")
    guarded = Bearer(plain, border)
    credentials = {
        "token of our own": [f"slt_{i % TOKENS}" for i in range(requests)],
        "known JWT": [keys.token("RS256", -1)] * requests,
        "new JWT, RS256": [keys.token("RS256", i) for i in range(requests)],
        "new JWT, ES256": [keys.token("ES256", i) for i in range(requests)],
    }
    warm = [each[-1] for each in credentials.values()] + [keys.token("RS256", -2), keys.token("ES256", -2)]
    await measured(guarded, warm)
    bare = median(await measured(plain, credentials["known JWT"]))
    return {kind: [ms - bare for ms in await measured(guarded, each)] for kind, each in credentials.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=2_000)
    found = asyncio.run(run(parser.parse_args().requests))
    figures = {kind: (median(times), quantiles(times, n=100)[94]) for kind, times in found.items()}
    worst = max(p50 for p50, _ in figures.values())
    verdict = "holds" if worst <= TARGET_MILLISECONDS else "DOES NOT HOLD"
    table = Table(
        "Latency that authentication adds to a request, with cached keys: milliseconds",
        ("credential", "p50", "p95"),
        tuple((kind, f"{p50:.3f}", f"{p95:.3f}") for kind, (p50, p95) in figures.items()),
        (f"Target: p50 at most {TARGET_MILLISECONDS} ms: {verdict}.",),
    )
    publish("identity", [table], {"milliseconds": {k: {"p50": a, "p95": b} for k, (a, b) in figures.items()}})


if __name__ == "__main__":
    main()
