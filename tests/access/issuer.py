"""An issuer inside the test process: keys that can rotate, vanish and go down, and answers about opaque tokens."""

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import anyio
import jwt
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa

from shortlist.access.jwt import TokenVerifier
from shortlist.config.settings import ClaimRule, Introspection, IssuerSettings, OAuthSettings

ISSUER = "https://id.example"
RESOURCE = "https://gateway.example/mcp"
RSA = rsa.generate_private_key(65537, 2048)
OTHER = rsa.generate_private_key(65537, 2048)
_KINDS = {
    rsa.RSAPrivateKey: jwt.algorithms.RSAAlgorithm,
    ec.EllipticCurvePrivateKey: jwt.algorithms.ECAlgorithm,
    ed25519.Ed25519PrivateKey: jwt.algorithms.OKPAlgorithm,
}


def trusted(*rules: ClaimRule, **more: Any) -> OAuthSettings:
    """Return the settings of a gateway that trusts the issuer."""
    given = {"issuer": ISSUER, "audiences": (RESOURCE,), "rules": rules or (ClaimRule(),), **more}
    return OAuthSettings(resource=RESOURCE, issuers={"company": IssuerSettings(name="company", **given)})


INTROSPECTION = Introspection(url=f"{ISSUER}/introspect", client_id="gateway", client_secret="x")


@dataclass
class IdentityProvider:
    """An IssuerLink that answers from memory."""

    keys: dict[str, Any] = field(default_factory=lambda: {"one": RSA})
    says: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    """What introspection answers, by the opaque token."""
    metadata: Mapping[str, Any] = field(default_factory=lambda: {"issuer": ISSUER, "jwks_uri": f"{ISSUER}/keys"})
    stated: dict[str, str | None] = field(default_factory=dict)
    """The algorithm that a published key is for, by the key's id."""
    down: bool = False
    answering: anyio.Event | None = None
    """Introspection answers after this event, where there is one."""
    asked: int = 0

    async def fetch(self, _: IssuerSettings, url: str) -> Mapping[str, Any]:
        self.asked += 1
        if self.down:
            raise OSError("connection refused")
        if url.endswith("openid-configuration"):
            return self.metadata
        if not url.endswith("/keys"):
            raise ValueError("not found")
        published: list[dict[str, Any]] = [{"kty": "new-kind", "kid": "x"}]
        for key_id, key in self.keys.items():
            algorithm: Any = next(a for kind, a in _KINDS.items() if isinstance(key, kind))
            stated = {"alg": name} if (name := self.stated.get(key_id)) else {}
            published.append({**json.loads(algorithm.to_jwk(key.public_key())), "kid": key_id, "use": "sig", **stated})
        return {"keys": published}

    async def introspect(self, _: IssuerSettings, token: str) -> Mapping[str, Any]:
        self.asked += 1
        if self.down:
            raise OSError("connection refused")
        if self.answering is not None:
            await self.answering.wait()
        return self.says.get(token, {"active": False})

    def token(self, key_id: str = "one", algorithm: str = "RS256", **claims: Any) -> str:
        """Return a signed token; a claim that is None is left out."""
        stated = {"iss": ISSUER, "aud": RESOURCE, "sub": "ada", "exp": time.time() + 300, **claims}
        stated = {name: value for name, value in stated.items() if value is not None}
        return jwt.encode(stated, self.keys[key_id], algorithm, headers={"kid": key_id})

    def verifier(self, oauth: OAuthSettings | None = None, **clocks: Any) -> TokenVerifier:
        settings = oauth or trusted()
        return TokenVerifier(lambda: settings, self, **clocks)
