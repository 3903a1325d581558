"""One gateway of several workers: processes that share a port, and everything else through PostgreSQL."""

import os
import re
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx2
import psycopg
import pytest

from tests.storage.postgres import cluster, is_running, new_database
from tests.storage.replicas import GatewayProcess, LegacyClient, replica, wait_until
from tests.storage.test_replicas import ASKING

pytestmark = pytest.mark.skipif(not is_running(), reason="needs PostgreSQL: python -m tests.storage.postgres pytest …")


@pytest.fixture(scope="module")
def workers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayProcess]:
    servers = {"asking": {"command": sys.executable, "args": [str(ASKING)]}}
    folder = tmp_path_factory.mktemp("workers") / "one"
    with replica(folder, new_database(), servers, "--workers", "2") as running:
        wait_until(lambda: len(addresses(running)) == 2)
        wait_until(lambda: all(httpx2.get(f"{url}/readyz").status_code == 200 for url in addresses(running)))
        yield running


def addresses(running: GatewayProcess) -> dict[str, str]:
    """Return the replicas by the address of each worker alone."""
    with psycopg.connect(running.storage) as connection:
        return {url: number for number, url in connection.execute("SELECT id, url FROM shortlist.replicas")}


def test_workers_share_sessions_and_the_process_of_a_server(workers: GatewayProcess) -> None:
    client = LegacyClient()
    client.open(workers.url)
    urls = [workers.url, *(f"{url}/mcp" for url in addresses(workers))]
    assert len({client.call(url, "asking__who") for url in urls}) == 1


def test_a_browser_that_signed_in_with_one_worker_is_signed_in_with_all(workers: GatewayProcess) -> None:
    one, two = addresses(workers)
    with httpx2.Client(headers={"Host": "localhost"}) as browser:
        signed = browser.post(f"{one}/sign-in", data={"token": "ada"}, headers={"Origin": "http://localhost"})
        (name,) = browser.cookies
        cookie = {"Cookie": f"{name}={browser.cookies[name]}"}
        assert signed.status_code == 200
        for url in (one, two):
            page = httpx2.get(f"{url}/?range=day", headers={"Host": "localhost", **cookie})
            assert page.status_code == 200
            assert "/sign-out" in page.text
        assert "/sign-out" not in httpx2.get(f"{two}/").text


def test_a_worker_that_is_killed_is_replaced(workers: GatewayProcess) -> None:
    before = set(addresses(workers).values())
    children = [int(child) for child in _children(workers.process.pid)]
    os.kill(children[-1], signal.SIGKILL)
    workers.wait_for("it is started again")
    wait_until(lambda: len(set(addresses(workers).values()) - before) == 1)
    assert workers.process.poll() is None
    client = LegacyClient()
    client.open(workers.url)
    wait_until(lambda: client.call(workers.url, "asking__who").isdecimal())


def test_a_worker_that_is_killed_while_the_database_is_away_is_replaced_when_it_is_back(tmp_path: Path) -> None:
    with cluster() as database:
        database.start()
        address = f"{database.address}&dbname=postgres"
        with replica(tmp_path / "one", address, {}, "--workers", "2") as running:
            wait_until(lambda: len(addresses(running)) == 2)
            before = set(addresses(running).values())
            database.stop()
            try:
                os.kill(int(_children(running.process.pid)[-1]), signal.SIGKILL)
                running.wait_for("could not start; it is tried again")
                assert httpx2.get(running.url.replace("/mcp", "/healthz")).status_code == 200
            finally:
                database.start()
            wait_until(lambda: len(set(addresses(running).values()) - before) == 1)
            assert running.process.poll() is None
        database.stop()


def _children(process: int) -> list[str]:
    with open(f"/proc/{process}/task/{process}/children") as file:
        return re.findall(r"\d+", file.read())
