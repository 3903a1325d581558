"""Logins to upstream servers that gateways share in one database."""

import base64
from collections.abc import Iterator
from contextlib import ExitStack, closing

import anyio
import pytest

from shortlist.cli.grants import SharedGrants
from shortlist.errors import SecretsUnreadable
from shortlist.storage.postgres.opening import open_postgres
from shortlist.storage.secrets import SharedSecrets
from shortlist.storage.shared import SealedStore
from shortlist.upstream.grants import SHARED, LoginKey
from shortlist.upstream.login import Logins
from tests.servers.protected import Protected, protected_server
from tests.storage.postgres import is_running, new_database
from tests.upstream.support import pool_of, web
from tests.upstream.test_login import sign_in, whoami

pytestmark = [
    pytest.mark.skipif(not is_running(), reason="needs PostgreSQL: python -m tests.storage.postgres pytest …"),
    pytest.mark.anyio,
]
KEY, OTHER_KEY = (base64.b64encode(byte * 32).decode() for byte in (b"k", b"o"))


@pytest.fixture
def wiki() -> Iterator[Protected]:
    with protected_server() as server:
        yield server


@pytest.fixture
def stores() -> Iterator[tuple[SealedStore, SealedStore]]:
    """Yield the logins of one database, as two gateways see them."""
    address = new_database()
    with ExitStack() as stack:
        opened = [stack.enter_context(closing(open_postgres(address))).shared for _ in range(2)]
        one, two = (each.grants for each in opened if each is not None)
        yield one, two


async def test_two_gateways_use_one_login_and_one_refresh(
    wiki: Protected, stores: tuple[SealedStore, SealedStore]
) -> None:
    one, two = (SharedGrants(SharedSecrets(store, KEY)) for store in stores)
    await sign_in(wiki, one)
    server = web("wiki", f"{wiki.url}/mcp")
    async with pool_of(server, logins=Logins(one)) as (first, _), pool_of(server, logins=Logins(two)) as (second, _):
        wiki.expire()
        answers: list[str] = []

        async def call(pool: object) -> None:
            answers.append(await whoami(pool))  # type: ignore[arg-type]

        async with anyio.create_task_group() as tasks:
            for pool in (first, second) * 10:
                tasks.start_soon(call, pool)
        assert answers == ["you are signed in"] * 20
        assert wiki.refreshes == 1


async def test_a_stored_login_is_of_no_use_without_the_key(
    wiki: Protected, stores: tuple[SealedStore, SealedStore]
) -> None:
    one, two = SharedGrants(SharedSecrets(stores[0], KEY)), SharedGrants(SharedSecrets(stores[1], OTHER_KEY))
    target = await sign_in(wiki, one)
    key = LoginKey(SHARED, "wiki", target.resource)
    grant = await one.get(key)
    assert grant is not None
    sealed = stores[1].get(f"grant:{SHARED}:wiki:{target.resource}")
    assert sealed is not None
    assert grant.access_token.encode() not in sealed
    with pytest.raises(SecretsUnreadable, match="Set the same key for all gateways"):
        await two.get(key)
    await one.remove(key)
    assert await two.get(key) is None
