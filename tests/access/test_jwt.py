import time
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from hypothesis import given
from hypothesis import strategies as st

from shortlist.access.claims import NoRule, matches, principal_of
from shortlist.access.jwt import (
    KEYS_SECONDS,
    MAX_SUBJECT_CHARACTERS,
    MAX_TOKEN_CHARACTERS,
    MOST_QUESTIONS,
    REFUSED_SECONDS,
    VERIFIED_SECONDS,
    TokenRefused,
    TokenVerifier,
)
from shortlist.config.settings import ClaimRule
from tests.access.issuer import INTROSPECTION, ISSUER, OTHER, RESOURCE, RSA, IdentityProvider, trusted

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def provider() -> IdentityProvider:
    return IdentityProvider()


async def refusal(verifier: TokenVerifier, token: str) -> str:
    with pytest.raises(TokenRefused) as refused:
        await verifier.verify(token)
    assert token not in str(refused.value) or not token
    return refused.value.reason


async def test_a_token_of_a_trusted_issuer_names_its_subject(provider: IdentityProvider) -> None:
    found = await provider.verifier().verify(provider.token(groups=["eng"], scope="tools:call tools:see"))
    assert (found.issuer.issuer, found.subject) == (ISSUER, "ada")
    assert found.scopes == {"tools:call", "tools:see"}
    assert found.claims["groups"] == ["eng"]


@pytest.mark.parametrize(
    ("kind", "algorithm"),
    [(ec.generate_private_key(ec.SECP256R1()), "ES256"), (ed25519.Ed25519PrivateKey.generate(), "EdDSA")],
)
async def test_every_kind_of_public_key_works(provider: IdentityProvider, kind: Any, algorithm: str) -> None:
    provider.keys["two"] = kind
    assert (await provider.verifier().verify(provider.token("two", algorithm))).subject == "ada"


@pytest.mark.parametrize(
    ("claims", "reason"),
    [
        ({"exp": time.time() - 120}, "expired"),
        ({"aud": "https://elsewhere.example"}, "another service"),
        ({"iss": "https://evil.example"}, "not trusted"),
        ({"nbf": time.time() + 600}, "not valid yet"),
        ({"sub": None}, "subject"),
        ({"exp": None}, "'exp'"),
        ({"aud": None}, "another service"),
        ({"iat": time.time() + 600}, "not valid yet"),
        ({"exp": "tomorrow"}, "not a time"),
        ({"exp": True}, "not a time"),
        ({"exp": 1e300}, "not a time"),
    ],
)
async def test_a_token_that_is_not_for_us_is_refused(
    provider: IdentityProvider, claims: dict[str, Any], reason: str
) -> None:
    assert reason in await refusal(provider.verifier(), provider.token(**claims))


async def test_a_clock_that_is_a_little_off_is_forgiven(provider: IdentityProvider) -> None:
    token = provider.token(exp=time.time() - 20, nbf=time.time() + 20)
    assert (await provider.verifier().verify(token)).subject == "ada"


async def test_no_token_chooses_how_it_is_checked(provider: IdentityProvider) -> None:
    claims = {"iss": ISSUER, "aud": RESOURCE, "sub": "mallory", "exp": time.time() + 300}
    public = RSA.public_key().public_numbers()
    shared = jwt.encode(claims, f"{public.n}{public.e}".ljust(64, "x"), "HS256", headers={"kid": "one"})
    unsigned = jwt.encode(claims, "", "none", headers={"kid": "one"})
    foreign = jwt.encode(claims, OTHER, "RS256", headers={"kid": "one"})
    embedded = jwt.encode(claims, OTHER, "RS256", headers={"kid": "one", "jku": "https://evil.example/keys"})
    checking = provider.verifier()
    assert "algorithm" in await refusal(checking, shared)
    assert "algorithm" in await refusal(checking, unsigned)
    assert "signature" in await refusal(checking, foreign)
    assert "signature" in await refusal(checking, embedded)


async def test_a_rotated_key_is_found_and_a_withdrawn_one_refused(provider: IdentityProvider) -> None:
    time_now = [0.0]
    checking = provider.verifier(clock=lambda: time_now[0])
    old = provider.token()
    await checking.verify(old)
    provider.keys = {"two": OTHER}
    time_now[0] = VERIFIED_SECONDS + 1
    assert (await checking.verify(provider.token("two"))).subject == "ada"
    assert "does not publish" in await refusal(checking, old)


async def test_unknown_keys_do_not_make_us_flood_the_issuer(provider: IdentityProvider) -> None:
    checking = provider.verifier()
    await checking.verify(provider.token())
    before = provider.asked
    provider.keys["ghost"] = OTHER
    tokens = [provider.token("ghost", jti=str(i)) for i in range(20)]
    for token in tokens:
        await refusal(checking, token)
    assert provider.asked == before


async def test_keys_outlive_an_issuer_that_is_down(provider: IdentityProvider) -> None:
    time_now = [0.0]
    checking = provider.verifier(clock=lambda: time_now[0])
    await checking.verify(provider.token())
    provider.down, time_now[0] = True, KEYS_SECONDS + 1
    assert (await checking.verify(provider.token(jti="new"))).subject == "ada"


async def test_an_issuer_that_was_never_up_is_named_as_the_reason(provider: IdentityProvider) -> None:
    provider.down = True
    assert "cannot be fetched" in await refusal(provider.verifier(), provider.token())


async def test_an_issuer_that_names_another_issuer_is_not_believed(provider: IdentityProvider) -> None:
    provider.metadata = {"issuer": "https://evil.example", "jwks_uri": f"{ISSUER}/keys"}
    assert "cannot be fetched" in await refusal(provider.verifier(), provider.token())


async def test_a_short_rsa_key_of_an_issuer_is_not_used(provider: IdentityProvider) -> None:
    provider.keys["short"] = rsa.generate_private_key(65537, 1024)
    with pytest.warns(jwt.InsecureKeyLengthWarning):
        token = provider.token("short")
    assert "does not publish" in await refusal(provider.verifier(), token)


async def test_a_key_signs_only_with_algorithms_of_its_type(provider: IdentityProvider) -> None:
    provider.keys["curve"] = ec.generate_private_key(ec.SECP256R1())
    token = jwt.encode({"iss": ISSUER}, RSA, "RS256", headers={"kid": "curve"})
    assert "does not publish" in await refusal(provider.verifier(), token)


async def test_a_token_with_critical_extensions_is_refused(provider: IdentityProvider) -> None:
    claims = {"iss": ISSUER, "aud": RESOURCE, "sub": "ada", "exp": time.time() + 300}
    token = jwt.encode(claims, RSA, "RS256", headers={"kid": "one", "crit": ["exp"]})
    assert await refusal(provider.verifier(), token)


async def test_a_token_for_one_workspace_of_this_gateway_is_accepted(provider: IdentityProvider) -> None:
    token = provider.token(aud=[f"{RESOURCE}/w/abc"])
    assert (await provider.verifier().verify(token)).subject == "ada"
    assert "another service" in await refusal(provider.verifier(), provider.token(aud=f"{RESOURCE}x/w/abc"))


async def test_a_verified_token_is_not_used_beyond_its_end(provider: IdentityProvider) -> None:
    seconds = [0.0]
    checking = provider.verifier(clock=lambda: seconds[0], now=lambda: time.time() + seconds[0])
    token = provider.token(exp=time.time() + 5)
    await checking.verify(token)
    assert len(checking._verified) == 1
    seconds[0] = VERIFIED_SECONDS - 1
    assert (await checking.verify(token)).subject == "ada"  # within the leeway
    (until, _) = next(iter(checking._verified.values()))
    assert until <= VERIFIED_SECONDS


@pytest.mark.parametrize("subject", ["a" * (MAX_SUBJECT_CHARACTERS + 1), "ada\nadmin", ""])
async def test_a_subject_that_cannot_be_a_name_is_refused(provider: IdentityProvider, subject: str) -> None:
    assert "subject" in await refusal(provider.verifier(), provider.token(sub=subject))


@given(st.text(max_size=200) | st.from_regex(r"[A-Za-z0-9_-]{0,40}\.[A-Za-z0-9_-]{0,40}\.[A-Za-z0-9_-]{0,40}"))
async def test_anything_that_is_not_a_token_is_refused(text: str) -> None:
    assert await refusal(IdentityProvider().verifier(), text)


async def test_a_huge_token_is_refused_before_it_is_read(provider: IdentityProvider) -> None:
    assert "too long" in await refusal(provider.verifier(), "a" * (MAX_TOKEN_CHARACTERS + 1))
    assert provider.asked == 0


# Opaque tokens


def introspecting(provider: IdentityProvider, **clocks: Any) -> TokenVerifier:
    return provider.verifier(trusted(introspection=INTROSPECTION), **clocks)


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        ({"active": False}, "not known"),
        ({"active": "true", "sub": "ada", "aud": RESOURCE}, "not known"),
        ({"active": True, "sub": "ada", "aud": "https://elsewhere.example"}, "another service"),
        ({"active": True, "sub": "ada"}, "another service"),
        ({"active": True, "aud": RESOURCE}, "subject"),
        ({"active": True, "sub": "ada", "aud": RESOURCE, "iss": "https://evil.example"}, "somebody else"),
        ({"active": True, "sub": "ada", "aud": RESOURCE, "exp": 1}, "expired"),
    ],
)
async def test_an_opaque_token_must_be_active_and_ours(
    provider: IdentityProvider, answer: dict[str, Any], reason: str
) -> None:
    provider.says["opaque"] = answer
    assert reason in await refusal(introspecting(provider), "opaque")


async def test_an_active_opaque_token_names_its_subject_until_it_is_revoked(provider: IdentityProvider) -> None:
    seconds = [0.0]
    checking = introspecting(provider, clock=lambda: seconds[0])
    provider.says["opaque"] = {"active": True, "sub": "ada", "aud": [RESOURCE]}
    assert (await checking.verify("opaque")).subject == "ada"
    del provider.says["opaque"]
    assert (await checking.verify("opaque")).subject == "ada"
    seconds[0] = VERIFIED_SECONDS
    assert "not known" in await refusal(checking, "opaque")


async def test_an_unknown_opaque_token_is_asked_about_once_in_a_while(provider: IdentityProvider) -> None:
    seconds = [0.0]
    checking = introspecting(provider, clock=lambda: seconds[0])
    for _ in range(3):
        assert "not known" in await refusal(checking, "opaque")
    assert provider.asked == 1
    seconds[0] = REFUSED_SECONDS
    await refusal(checking, "opaque")
    assert provider.asked == 2


async def test_questions_about_opaque_tokens_are_bounded(provider: IdentityProvider) -> None:
    checking = introspecting(provider)
    checking._questions = MOST_QUESTIONS
    assert "too many" in await refusal(checking, "opaque")
    assert provider.asked == 0


async def test_an_opaque_token_without_an_introspection_endpoint_is_refused(provider: IdentityProvider) -> None:
    assert "not known" in await refusal(provider.verifier(), "opaque")


# Rules


@pytest.mark.parametrize(
    ("rule", "claims", "holds"),
    [
        (ClaimRule(), {}, True),
        (ClaimRule(claim="groups", values=("eng", "ops")), {"groups": ["ops"]}, True),
        (ClaimRule(claim="groups", values=("eng",)), {"groups": ["engineers"]}, False),
        (ClaimRule(claim="groups", values=("eng",)), {}, False),
        (ClaimRule(claim="groups", values=("eng",)), {"groups": {"eng": True}}, False),
        (ClaimRule(claim="realm_access.roles", values=("dev",)), {"realm_access": {"roles": ["dev"]}}, True),
        (ClaimRule(claim="https://example.com/roles", values=("dev",)), {"https://example.com/roles": ["dev"]}, True),
        (ClaimRule(claim="scope", values=("admin",)), {"scope": "openid admin"}, True),
        (ClaimRule(email_domains=("Example.com",)), {"email": "a@EXAMPLE.com", "email_verified": True}, True),
        (ClaimRule(email_domains=("example.com",)), {"email": "a@example.com"}, False),
        (ClaimRule(email_domains=("example.com",)), {"email": "a@example.com", "email_verified": "true"}, False),
        (ClaimRule(email_domains=("example.com",)), {"email": "a@example.com.evil", "email_verified": True}, False),
    ],
)
def test_a_rule_matches_by_claims(rule: ClaimRule, claims: dict[str, Any], holds: bool) -> None:
    assert matches(rule, claims) is holds


async def test_the_first_rule_that_matches_decides(provider: IdentityProvider) -> None:
    rules = (ClaimRule(claim="groups", values=("eng",)), ClaimRule(claim="groups", values=("eng", "ops")))
    checking = provider.verifier(trusted(*rules, scopes=(("tools:call", ("call",)),)))
    found = [
        principal_of(await checking.verify(provider.token(groups=[group], scope="openid tools:call")))
        for group in ("eng", "ops")
    ]
    assert [(p.kind, p.name, p.rule, p.granted) for p in found] == [
        ("oauth", "company:ada", 0, frozenset({"tools:call"})),
        ("oauth", "company:ada", 1, frozenset({"tools:call"})),
    ]
    with pytest.raises(NoRule):
        principal_of(await checking.verify(provider.token(groups=["guests"])))
