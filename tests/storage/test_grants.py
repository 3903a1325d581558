"""Logins to upstream servers that gateways share in one database."""

import base64
import json
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import anyio
import pytest

from shortlist.cli import main
from shortlist.cli.grants import SharedGrants, login_places, login_secrets
from shortlist.cli.storing import configured_storage
from shortlist.errors import SecretsUnreadable
from shortlist.paths import data_folder
from shortlist.storage.postgres.opening import open_postgres
from shortlist.storage.private import write_private
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


def test_a_login_is_found_and_erased_in_both_places_without_the_key(
    shared_wiki: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    with closing(configured_storage(shared_wiki)) as storage:
        secrets = login_secrets(storage)
        (own,) = secrets.names()
        grant, name = secrets.get(own) or "", own.replace(SHARED, "token:ada")
        secrets.put(name, grant)
    monkeypatch.delenv(KEY_VARIABLE)
    FileSecrets(data_folder()).put(name, grant)
    assert main(["data", "export", "token:ada", "--config", shared_wiki]) == 1
    printed = capsys.readouterr()
    assert [json.loads(line)["server"] for line in printed.out.splitlines()] == ["wiki", "wiki"]
    assert f"Set {KEY_VARIABLE} to that of the gateways" in printed.err
    assert main(["data", "erase", "token:ada", "--yes", "--json", "--config", shared_wiki]) == 0
    assert json.loads(capsys.readouterr().out)["logins"] == 1
    with closing(configured_storage(shared_wiki)) as storage:
        assert [place.names() for place in login_places(storage)] == [(), (own,)]


LOGIN = "grant:shared:wiki:https://wiki"


def logins_in(address: str) -> dict[str, str | None]:
    with closing(open_postgres(address)) as storage:
        secrets = login_secrets(storage)
        return {name: secrets.get(name) for name in secrets.names()}


@pytest.mark.parametrize("has_own_key", [True, False], ids=["sealed with secrets.key", "sealed with the shared key"])
def test_logins_move_into_the_database_where_gateways_share_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], has_own_key: bool
) -> None:
    if has_own_key:
        write_private(tmp_path / "secrets.key", OTHER_KEY.encode())
    else:
        monkeypatch.setenv(KEY_VARIABLE, KEY)
    FileSecrets(tmp_path).put(LOGIN, "a login")
    FileSecrets(tmp_path).put("secret:database", "another")
    monkeypatch.setenv(KEY_VARIABLE, KEY)
    address = new_database()
    assert main(["storage", "migrate", str(tmp_path), address]) == 0
    assert "logins: 1" in capsys.readouterr().out
    assert logins_in(address) == {LOGIN: "a login"}


def test_logins_that_cannot_be_read_are_reported_before_anything_is_copied(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write_private(tmp_path / "secrets.key", OTHER_KEY.encode())
    FileSecrets(tmp_path).put(LOGIN, "a login")
    (tmp_path / "secrets.key").rename(tmp_path / "elsewhere")
    monkeypatch.setenv(KEY_VARIABLE, KEY)
    address = new_database()
    assert main(["storage", "migrate", str(tmp_path), address]) != 0
    assert "Nothing was copied" in capsys.readouterr().err
    (tmp_path / "elsewhere").rename(tmp_path / "secrets.key")
    assert main(["storage", "migrate", str(tmp_path), address]) == 0
    assert logins_in(address) == {LOGIN: "a login"}


def test_logins_that_were_left_behind_are_copied_later_and_those_in_the_database_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv(KEY_VARIABLE, raising=False)
    write_private(tmp_path / "secrets.key", OTHER_KEY.encode())
    FileSecrets(tmp_path).put(LOGIN, "a login")
    address = new_database()
    assert main(["storage", "migrate", str(tmp_path), address]) == 0
    assert "run this command again with --logins" in capsys.readouterr().out
    assert main(["storage", "migrate", str(tmp_path), address, "--logins"]) != 0
    assert "openssl rand -base64 32" in capsys.readouterr().err
    monkeypatch.setenv(KEY_VARIABLE, KEY)
    for kept in ("a login", "a login of today"):
        assert main(["storage", "migrate", str(tmp_path), address, "--logins"]) == 0
        assert logins_in(address) == {LOGIN: kept}
        with closing(open_postgres(address)) as storage:
            login_secrets(storage).put(LOGIN, "a login of today")
