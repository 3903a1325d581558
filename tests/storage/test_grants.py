"""Logins to upstream servers that gateways share in one database."""

import base64
import json
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import anyio
import pytest

from shortlist.cli import main
from shortlist.cli.grants import SharedGrants, login_secrets
from shortlist.cli.storing import configured_storage
from shortlist.errors import SecretsUnreadable
from shortlist.storage.postgres.opening import open_postgres
from shortlist.storage.secrets import KEY_VARIABLE, FileSecrets, SharedSecrets
from shortlist.storage.shared import SealedStore
from shortlist.upstream.grants import SHARED, LoginKey
from shortlist.upstream.login import Logins
from tests.servers.protected import Protected, protected_server
from tests.storage.postgres import is_running, new_database
from tests.upstream.support import pool_of, web
from tests.upstream.test_login import sign_in, whoami

pytestmark = pytest.mark.skipif(not is_running(), reason="needs PostgreSQL: python -m tests.storage.postgres pytest …")
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


@pytest.mark.anyio
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


@pytest.mark.anyio
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


@pytest.fixture
def shared_wiki(wiki: Protected, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Return a configuration with a server whose login is in the database alone."""
    monkeypatch.setenv(KEY_VARIABLE, KEY)
    address, server = new_database(), {"type": "http", "url": f"{wiki.url}/mcp"}
    path = tmp_path / "servers.json"
    path.write_text(json.dumps({"mcpServers": {"wiki": server}, "shortlist": {"storage": address}}))
    with closing(open_postgres(address)) as storage:
        secrets = login_secrets(storage)
        assert isinstance(secrets, SharedSecrets)
        anyio.run(sign_in, wiki, SharedGrants(secrets))
    return str(path)


def test_doctor_uses_the_logins_that_gateways_share(shared_wiki: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "--config", shared_wiki]) == 0
    assert "1 of 1 servers work" in capsys.readouterr().out


def test_a_shared_login_is_exported_and_erased_with_its_caller(
    shared_wiki: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with closing(configured_storage(shared_wiki)) as storage:
        secrets = login_secrets(storage)
        (own,) = secrets.names()
        secrets.put(own.replace(SHARED, "token:ada"), secrets.get(own) or "")
    assert main(["data", "export", "token:ada", "--config", shared_wiki]) == 0
    assert json.loads(capsys.readouterr().out)["server"] == "wiki"
    assert main(["data", "erase", "token:ada", "--yes", "--json", "--config", shared_wiki]) == 0
    assert json.loads(capsys.readouterr().out)["logins"] == 1
    with closing(configured_storage(shared_wiki)) as storage:
        assert login_secrets(storage).names() == (own,)


def test_logins_move_into_the_database_where_gateways_share_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(KEY_VARIABLE, KEY)
    FileSecrets(tmp_path).put("grant:shared:wiki:https://wiki", "a login")
    FileSecrets(tmp_path).put("secret:database", "another")
    address = new_database()
    assert main(["storage", "migrate", str(tmp_path), address]) == 0
    assert "logins: 1" in capsys.readouterr().out
    with closing(open_postgres(address)) as storage:
        secrets = login_secrets(storage)
        assert [(name, secrets.get(name)) for name in secrets.names()] == [
            ("grant:shared:wiki:https://wiki", "a login")
        ]
