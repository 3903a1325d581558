"""Links and sessions: opened once, for a time, and only while their caller could come in."""

from dataclasses import replace

import pytest

from shortlist.access.principal import token_principal
from shortlist.config.settings import Settings
from shortlist.web.access import LINK_SECONDS, MOST_KEPT, SESSION_SECONDS, Access
from tests.web.support import TOKENS, Clock

ADA, SETTINGS = token_principal(TOKENS["ada"]), Settings(tokens=TOKENS)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def access(clock: Clock) -> Access:
    return Access(clock)


def test_a_link_opens_once(access: Access) -> None:
    key = access.link()
    secret = access.follow(key)
    assert secret is not None
    assert access.session(secret, Settings()) is not None
    assert access.follow(key) is None
    assert access.follow("guessed") is None


def test_a_link_that_nobody_followed_in_time_opens_nothing(access: Access, clock: Clock) -> None:
    key = access.link()
    clock.now += LINK_SECONDS + 1
    assert access.follow(key) is None


def test_a_session_ends_by_itself(access: Access, clock: Clock) -> None:
    secret = access.open(ADA)
    clock.now += SESSION_SECONDS - 1
    assert access.session(secret, SETTINGS) is not None
    clock.now += 2
    assert access.session(secret, SETTINGS) is None


def test_a_closed_session_stays_closed(access: Access) -> None:
    secret = access.open(ADA)
    access.close(secret)
    assert access.session(secret, SETTINGS) is None


def test_a_session_lasts_only_while_its_token_does(access: Access) -> None:
    secret = access.open(ADA)
    assert access.session(secret, Settings(tokens={"bob": TOKENS["bob"]})) is None
    assert access.session(secret, Settings(tokens={"ada": replace(TOKENS["ada"], hash="sha256:another")})) is None
    assert access.session(secret, SETTINGS) is not None


def test_a_link_is_no_way_around_the_tokens(access: Access) -> None:
    secret = access.follow(access.link())
    assert secret is not None
    assert access.session(secret, SETTINGS) is None


def test_a_form_is_good_for_its_own_session_only(access: Access) -> None:
    one, other = (access.session(access.open(ADA), SETTINGS) for _ in range(2))
    assert one is not None
    assert other is not None
    assert one.allows(one.csrf)
    assert not one.allows(other.csrf)
    assert not one.allows("")


def test_so_many_sessions_are_kept_and_no_more(access: Access) -> None:
    secrets = [access.open(ADA) for _ in range(MOST_KEPT + 1)]
    assert access.session(secrets[0], SETTINGS) is None
    assert all(access.session(secret, SETTINGS) for secret in secrets[1:])


def test_two_gateways_on_one_host_have_cookies_of_their_own() -> None:
    assert Access().cookie != Access().cookie
