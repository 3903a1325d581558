"""PostgreSQL fails under a running gateway: calls still work, and nothing that was recorded is lost."""

import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from shortlist.errors import StoreError
from shortlist.storage.postgres.opening import open_postgres
from tests.cli.test_walls import SECONDS, UNLIMITED, Running, home, running
from tests.storage.postgres import Cluster, cluster, is_running

pytestmark = pytest.mark.skipif(not is_running(), reason="needs PostgreSQL: python -m tests.storage.postgres pytest …")
__all__ = ["home"]


@pytest.fixture
def database() -> Iterator[Cluster]:
    with cluster() as made:
        made.start()
        try:
            yield made
        finally:
            made.stop()


def calls_recorded(address: str) -> float:
    with closing(open_postgres(address)) as storage:
        try:
            return sum(storage.tallies.sums(names=("calls",)).values())
        except StoreError:
            return 0


def wait_until(condition: Callable[[], bool]) -> None:
    for _ in range(SECONDS * 4):
        if condition():
            return
        time.sleep(0.25)
    raise AssertionError("the condition never held")


def called(gateway: Running) -> bool:
    return "the bullion" in gateway.call("call_tool", name="box__echo", arguments={})


def test_calls_work_while_postgresql_is_away_and_their_events_are_recorded_when_it_is_back(
    home: Path, database: Cluster
) -> None:
    address = f"{database.address}&dbname=postgres"
    with running(home, ready="box", tokens=UNLIMITED, storage=address) as gateway:
        assert called(gateway)
        wait_until(lambda: calls_recorded(address) == 1)
        database.stop()
        assert [called(gateway) for _ in range(5)] == 5 * [True]
        gateway.wait_for("events cannot be recorded at the moment; calls still work")
        database.start()
        assert called(gateway)
        wait_until(lambda: calls_recorded(address) == 7)
