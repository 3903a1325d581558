import json
import time
from typing import Any

import anyio
import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from hypothesis import given
from hypothesis import strategies as st
from jwt.utils import base64url_encode

from shortlist.access.claims import NoRule, matches, principal_of
from shortlist.access.jwt import (
    KEYS_SECONDS,
    LEEWAY_SECONDS,
    MAX_SUBJECT_CHARACTERS,
    MAX_TOKEN_CHARACTERS,
    MOST_QUESTIONS,
    REFUSED_SECONDS,
    VERIFIED_SECONDS,
    CannotCheck,
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


DAY = 86_400.0
"""Longer than all tests take: the claims below are made when the first of them begins."""


@pytest.mark.parametrize(
    ("claims", "reason"),
    [
        ({"exp": time.time() - 120}, "expired"),
        ({"aud": "https://elsewhere.example"}, "another service"),
        ({"iss": "https://evil.example"}, "not trusted"),
        ({"nbf": time.time() + DAY}, "not valid yet"),
        ({"sub": None}, "subject"),
        ({"exp": None}, "'exp'"),
        ({"aud": None}, "another service"),
        ({"iat": time.time() + DAY}, "not valid yet"),
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


@pytest.mark.parametrize(
    ("curve", "algorithm", "stated"),
    [(ec.SECP384R1(), "ES256", None), (ec.SECP256R1(), "ES256", "ES384"), (None, "RS256", "PS256")],
)
async def test_a_key_signs_only_with_the_algorithm_of_its_curve_and_of_its_own_statement(
    provider: IdentityProvider, curve: Any, algorithm: str, stated: str | None
) -> None:
    provider.keys["two"] = ec.generate_private_key(curve) if curve else RSA
    provider.stated["two"] = stated
    claims = {"iss": ISSUER, "aud": RESOURCE, "sub": "ada", "exp": time.time() + 300}
    signing = jwt.PyJWS().get_algorithm_by_name(algorithm)
    signed = f"{_part({'alg': algorithm, 'kid': 'two'})}.{_part(claims)}"
    token = f"{signed}.{base64url_encode(signing.sign(signed.encode(), provider.keys['two'])).decode()}"
    assert "does not publish" in await refusal(provider.verifier(), token)


def _part(content: dict[str, Any]) -> str:
    return base64url_encode(json.dumps(content).encode()).decode()


@pytest.mark.parametrize("kind", ["logout+jwt", "dpop+jwt", "application/secevent+jwt", 5])
async def test_a_signed_message_of_the_issuer_that_is_not_an_access_token_is_refused(
    provider: IdentityProvider, kind: Any
) -> None:
    claims = {"iss": ISSUER, "aud": RESOURCE, "sub": "ada", "exp": time.time() + 300}
    signed = f"{_part({'alg': 'RS256', 'kid': 'one', 'typ': kind})}.{_part(claims)}"
    signature = jwt.PyJWS().get_algorithm_by_name("RS256").sign(signed.encode(), RSA)
    token = f"{signed}.{base64url_encode(signature).decode()}"
    assert "not an access token" in await refusal(provider.verifier(), token)


async def test_a_token_that_is_bound_to_a_key_of_its_client_is_not_a_bearer_token(provider: IdentityProvider) -> None:
    assert "bound to a key" in await refusal(provider.verifier(), provider.token(cnf={"jkt": "x"}))


async def test_a_token_has_one_spelling(provider: IdentityProvider) -> None:
    checking, token = provider.verifier(), provider.token()
    assert (await checking.verify(token)).subject == "ada"
    for other in (f"{token}=", f"{token}==", f"{token[:-4]} {token[-4:]}", f"{token}!", token.replace("_", "/", 1)):
        if other != token:
            assert "malformed" in await refusal(checking, other)


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
    checking, provider.answering = introspecting(provider), anyio.Event()
    async with anyio.create_task_group() as tasks:
        for number in range(MOST_QUESTIONS):
            tasks.start_soon(refusal, checking, f"opaque-{number}")
        await anyio.wait_all_tasks_blocked()
        with pytest.raises(CannotCheck, match="too many"):
            await checking.verify("opaque")
        provider.answering.set()
    assert provider.asked == MOST_QUESTIONS


async def test_a_new_opaque_token_in_many_requests_at_once_is_asked_about_once(provider: IdentityProvider) -> None:
    checking, provider.answering = introspecting(provider), anyio.Event()
    provider.says["opaque"] = {"active": True, "sub": "ada", "aud": RESOURCE}
    subjects: list[str] = []

    async def present() -> None:
        subjects.append((await checking.verify("opaque")).subject)

    async with anyio.create_task_group() as tasks:
        for _ in range(2 * MOST_QUESTIONS):
            tasks.start_soon(present)
        await anyio.wait_all_tasks_blocked()
        provider.answering.set()
    assert subjects == ["ada"] * 2 * MOST_QUESTIONS
    assert provider.asked == 1


async def test_an_issuer_that_is_down_does_not_make_an_opaque_token_invalid(provider: IdentityProvider) -> None:
    checking, provider.down = introspecting(provider), True
    provider.says["opaque"] = {"active": True, "sub": "ada", "aud": RESOURCE}
    with pytest.raises(CannotCheck, match="does not answer"):
        await checking.verify("opaque")
    provider.down = False
    assert (await checking.verify("opaque")).subject == "ada"


async def test_an_opaque_token_is_not_used_beyond_its_end(provider: IdentityProvider) -> None:
    seconds = [0.0]
    checking = introspecting(provider, clock=lambda: seconds[0], now=lambda: 1_000.0 + seconds[0])
    provider.says["opaque"] = {"active": True, "sub": "ada", "aud": RESOURCE, "exp": 1_000 - LEEWAY_SECONDS + 5}
    assert (await checking.verify("opaque")).subject == "ada"
    seconds[0] = 6.0
    assert "expired" in await refusal(checking, "opaque")


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
