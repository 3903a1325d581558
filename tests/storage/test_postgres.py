"""What PostgreSQL adds to the contract: several gateways at once, a server that goes away, and moving into it."""

import json
import queue
import secrets
import threading
import time
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from contextlib import closing, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from urllib.parse import quote

import psycopg
import pytest

from shortlist.cli import main
from shortlist.errors import InvalidConfig, InvalidInput, NotStorable, StoreError
from shortlist.index.cache import StoredVectors
from shortlist.index.embedding import KEPT_AT_ONCE
from shortlist.index.index import Index
from shortlist.storage.audit import AuditRecord
from shortlist.storage.local import open_local
from shortlist.storage.owned import StoredWorkspace, WorkspaceLimits
from shortlist.storage.port import Decision, PinnedDefinition, Storage, StoredExperiment, StoredPins, StoredToken
from shortlist.storage.postgres import database as database_module
from shortlist.storage.postgres.database import MOST_CONNECTIONS, Postgres, PostgresConnection, migrations, read_address
from shortlist.storage.postgres.moving import move
from shortlist.storage.postgres.opening import open_postgres
from shortlist.storage.postgres.records import PostgresVectors
from shortlist.storage.shared import Holder, SharedStores, Spool, StoredSession
from shortlist.telemetry.events import Exposed
from shortlist.telemetry.ledger import Ledger
from shortlist.telemetry.recorder import Recorder
from shortlist.telemetry.redaction import Privacy
from tests.fakes import HashingEmbedder, catalog, tool
from tests.storage.postgres import is_running, new_database
from tests.telemetry.happenings import NOON, batch_of, call, search

pytestmark = pytest.mark.skipif(not is_running(), reason="needs PostgreSQL: python -m tests.storage.postgres pytest …")
NOWHERE = "postgresql://somebody:hunter2@127.0.0.1:1/nothing"
DAY = 86_400
SECONDS = 60


@pytest.fixture
def address() -> str:
    return new_database()


@pytest.fixture
def storage(address: str) -> Iterator[Storage]:
    with closing(open_postgres(address)) as opened:
        yield opened


def test_gateways_that_start_at_once_make_one_schema_and_lose_no_event(address: str) -> None:
    ready, failures = threading.Barrier(4), []

    def record(number: int) -> None:
        try:
            with closing(open_postgres(address)) as storage:
                ready.wait(60)
                for _ in range(10):
                    storage.events.append(batch_of([call(f"s/{number}")]))
        except Exception as error:
            failures.append(error)

    threads = [threading.Thread(target=record, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    with closing(open_postgres(address)) as storage:
        found = list(storage.events.events())
        assert len({event.id for event in found}) == len(found) == 40
        assert storage.tallies.sums(names=("calls",)) == {("calls", "ok"): 40}


def test_replicas_that_start_at_once_on_an_empty_store_embed_nothing_twice(address: str) -> None:
    tools = catalog([tool(f"s/tool_{n}", f"Does number {n}.") for n in range(2 * KEPT_AT_ONCE)])
    embedders, ready = [HashingEmbedder(), HashingEmbedder()], threading.Barrier(2)

    def start(embedder: HashingEmbedder) -> int:
        with closing(open_postgres(address)) as storage:
            index = Index.build(tools)
            ready.wait(60)
            return index.embedded(embedder, cache=StoredVectors(storage.vectors)).waiting

    with ThreadPoolExecutor(2) as replicas:
        assert list(replicas.map(start, embedders)) == [0, 0]
    embedded = [text for embedder in embedders for text in embedder.embedded]
    assert len(embedded) == len(set(embedded)) == len(tools)


class InterruptedDatabase(Postgres):
    """A database whose connections end as soon as they are lent."""

    @contextmanager
    def filling(self) -> Iterator[PostgresConnection]:
        with super().filling() as connection:
            connection.close()
            yield connection


def test_a_claim_that_the_database_interrupts_is_granted(address: str) -> None:
    with (
        closing(InterruptedDatabase(address)) as database,
        PostgresVectors(database).claim(["part"]) as granted,
    ):
        assert granted == {"part"}


def test_a_server_that_cannot_be_reached_is_a_clear_error_without_the_password() -> None:
    with closing(open_postgres(NOWHERE)) as storage:
        with pytest.raises(StoreError, match=r"127.0.0.1:1/nothing.*Check that PostgreSQL is running") as refused:
            storage.events.append(batch_of([call("s/a")]))
        assert "hunter2" not in str(refused.value)
        assert storage.vectors.get([b"key"]) == {}
        with storage.vectors.claim(["part"]) as granted:
            assert granted == {"part"}, "whoever cannot ask others works"
        assert storage.catalogs.load("sky") is None


def test_an_address_of_several_hosts_reaches_the_one_that_can_be_written(address: str) -> None:
    socket_folder = address.partition("host=")[2].partition("&")[0]
    several = address.replace(f"host={socket_folder}", f"host=/nowhere,{socket_folder}&target_session_attrs=read-write")
    with closing(open_postgres(several)) as storage:
        storage.events.append(batch_of([call("s/a")]))
        assert len(list(storage.events.events())) == 1


def test_an_error_names_all_hosts_without_the_password() -> None:
    address = "postgresql://somebody:hunter2@127.0.0.1:1,[::1]:2,db/nothing?target_session_attrs=read-write"
    with closing(open_postgres(address)) as storage, pytest.raises(StoreError) as raised:
        storage.events.append(batch_of([call("s/a")]))
    assert "postgresql://127.0.0.1:1,[::1]:2,db:5432/nothing: " in str(raised.value)
    assert "hunter2" not in str(raised.value)


@pytest.mark.parametrize("password", ["a/b", "1/b", "a@b", "a#b", "a?b", "a%b", "a%2Fb/", "a:b", "a b", "a+b=", "ä'\\"])
def test_a_password_is_read_whether_it_is_percent_encoded_or_not(password: str) -> None:
    for written in (password, quote(password, safe="")):
        parts = read_address(f"postgresql://shortlist:{written}@database:5433/tools?sslmode=require")
        assert (parts["user"], parts["password"], parts["sslmode"]) == ("shortlist", password, "require")
        assert (parts["host"], parts["port"], parts["dbname"]) == ("database", "5433", "tools")


def test_an_address_that_cannot_be_read_is_refused_without_showing_it() -> None:
    with pytest.raises(InvalidConfig, match="percent-encode") as raised:
        open_postgres("postgresql://hunter2:hunter2/database:x")
    assert "hunter2" not in str(raised.value)


def test_a_connection_that_may_only_read_is_not_used_again(address: str) -> None:
    with closing(open_postgres(address)) as storage:
        storage.events.append(batch_of([call("s/a")]))
        with psycopg.connect(address, autocommit=True) as other:
            (name,) = other.execute("SELECT current_database()").fetchone() or ("",)
            other.execute(f"ALTER DATABASE {name} SET default_transaction_read_only = on")
            other.execute(_END_OTHERS)
            with pytest.raises(StoreError, match="read-only"):
                storage.events.append(batch_of([call("s/b")]))
            other.execute("SET default_transaction_read_only = off")
            other.execute(f"ALTER DATABASE {name} RESET default_transaction_read_only")
        for _ in range(MOST_CONNECTIONS):  # a new connection, as after the promotion of another host
            with suppress(StoreError):
                storage.events.append(batch_of([call("s/c")]))
                break
        assert [event.subject for event in storage.events.events()] == ["s/a", "s/c"]


_END_OTHERS = (
    "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity "
    "WHERE datname = current_database() AND pid <> pg_backend_pid()"
)


def test_while_the_server_is_away_one_query_tries_to_reach_it_and_the_others_fail_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(database_module, "WAIT_SECONDS", 0.1)
    monkeypatch.setattr(database_module, "AWAY_SECONDS", 0.0)
    monkeypatch.setattr(database_module, "TRY_SECONDS", 600.0)
    with closing(Postgres(NOWHERE)) as database, ThreadPoolExecutor(2) as threads:
        with pytest.raises(StoreError):
            database.read("SELECT 1")
        tries = [threads.submit(database.read, "SELECT 1") for _ in range(2)]
        finished, waiting = wait(tries, return_when=FIRST_COMPLETED)
        assert len(finished) == len(waiting) == 1
        assert isinstance(finished.pop().exception(), StoreError)
        database.close()
        assert isinstance(waiting.pop().exception(), StoreError)


def test_a_newer_schema_is_refused_and_left_alone(address: str) -> None:
    database = Postgres(address)
    with closing(database), database.transaction() as connection:
        connection.execute("INSERT INTO migrations VALUES (%s)", (len(migrations()) + 1,))
    with closing(open_postgres(address)) as storage, pytest.raises(StoreError, match="newer version of shortlist"):
        storage.events.append(batch_of([call("s/a")]))


def test_a_gateway_of_the_version_before_goes_on_while_a_newer_one_migrates_the_schema(
    address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    scripts = migrations()
    monkeypatch.setattr(database_module, "migrations", lambda: scripts[:4])  # before leases and grants
    with closing(open_postgres(address)) as older:
        older.events.append(batch_of([call("s/a")]))
        monkeypatch.undo()
        with closing(open_postgres(address)) as newer:
            assert shared(newer).leases.take("box", "2", "http://two").replica == "2"
            older.events.append(batch_of([search("q", "s/a"), call("s/a")]))
            shared(older).sessions.open("one", StoredSession(owner="ada", handshake="{}"))
            newer.events.append(batch_of([call("s/b")]))
            assert shared(newer).sessions.find("one") is not None
            assert older.tallies.sums(names=("calls",)) == {("calls", "ok"): 3}
    monkeypatch.setattr(database_module, "migrations", lambda: scripts[:4])
    with closing(open_postgres(address)) as again, pytest.raises(StoreError, match="newer version of shortlist"):
        again.events.append(batch_of([call("s/a")]))


@pytest.mark.parametrize(
    ("condition", "words"), [("disk_full", "Free disk space"), ("insufficient_privilege", "Grant the user")]
)
def test_a_database_that_refuses_to_write_is_a_clear_error_and_works_again_afterwards(
    storage: Storage, address: str, monkeypatch: pytest.MonkeyPatch, condition: str, words: str
) -> None:
    monkeypatch.setattr(database_module, "AWAY_SECONDS", 0.0)
    storage.events.append(batch_of([call("s/a")]))
    with psycopg.connect(address, options="-c search_path=shortlist", autocommit=True) as connection:
        connection.execute(
            "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS "
            f"$$ BEGIN RAISE EXCEPTION 'no' USING ERRCODE = '{condition}'; END $$".encode()
        )
        connection.execute("CREATE TRIGGER refused BEFORE INSERT ON events FOR EACH ROW EXECUTE FUNCTION refuse()")
        with pytest.raises(StoreError, match=words):
            storage.events.append(batch_of([call("s/b")]))
        connection.execute("DROP TRIGGER refused ON events")
    storage.events.append(batch_of([call("s/c")]))
    assert [event.subject for event in storage.events.events()] == ["s/a", "s/c"]
    assert storage.tallies.sums(names=("calls",)) == {("calls", "ok"): 2}


def test_a_migration_that_a_restart_of_the_database_interrupts_is_repeated_whole(
    address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    scripts = migrations()
    restart = "SELECT pg_terminate_backend(pg_backend_pid())"
    monkeypatch.setattr(database_module, "migrations", lambda: (*scripts[:3], restart))
    monkeypatch.setattr(database_module, "AWAY_SECONDS", 0.0)
    with closing(open_postgres(address)) as storage:
        with pytest.raises(StoreError, match="Check that PostgreSQL is running"):
            storage.events.append(batch_of([call("s/a")]))
        monkeypatch.setattr(database_module, "migrations", lambda: scripts)
        storage.events.append(batch_of([call("s/a")]))
        assert len(list(storage.events.events())) == 1


def test_a_schema_that_was_removed_under_a_gateway_is_made_again(storage: Storage, address: str) -> None:
    storage.tokens.put(StoredToken(name="ci", hash="sha256:1", created=1.0))
    with psycopg.connect(address, autocommit=True) as connection:
        connection.execute("DROP SCHEMA shortlist CASCADE")
    with pytest.raises(StoreError, match="Restore the schema from a backup"):
        storage.tokens.load()
    assert storage.tokens.load() == {}


@pytest.mark.parametrize(("ahead", "words"), [(-90.0, "90 s behind"), (90.0, "90 s ahead of"), (0.0, "")])
def test_a_clock_that_differs_from_the_databases_is_reported(
    address: str, caplog: pytest.LogCaptureFixture, ahead: float, words: str
) -> None:
    with closing(Postgres(address, lambda: time.time() + ahead)) as database:
        assert database.read("SELECT 1") == [(1,)]
    assert [words in record.message for record in caplog.records] == ([True] if words else [])


def test_days_that_are_over_are_dropped_whole(storage: Storage, address: str) -> None:
    for day in range(4):
        storage.events.append(batch_of([call(f"s/{day}")], at=NOON - day * DAY))
    storage.events.purge(NOON - 1.5 * DAY, 1_000)
    assert [event.subject for event in storage.events.events()] == ["s/0", "s/1"]
    with closing(Postgres(address)) as database:
        ((count,),) = database.read(
            "SELECT count(*) FROM pg_class WHERE relname LIKE 'events_day_%%' AND relkind = 'r'"
        )
    assert count == 3  # of the day of the cutoff, only the first half is deleted


def test_a_day_whose_partition_another_gateway_dropped_gets_a_new_one(storage: Storage, address: str) -> None:
    storage.events.append(batch_of([call("s/a")]))
    with closing(open_postgres(address)) as other:
        other.events.purge(NOON + 2 * DAY, megabytes=100)
    storage.events.append(batch_of([call("s/b")]))
    with psycopg.connect(address, options="-c search_path=shortlist") as connection:
        assert connection.execute("SELECT count(*) FROM events_other").fetchone() == (0,)
    assert [event.subject for event in storage.events.events()] == ["s/b"]


def test_a_batch_whose_commit_was_not_answered_is_recorded_once(storage: Storage) -> None:
    batch = batch_of([call("s/a")])
    batch.spool = ("a spool", 1)
    storage.events.append(batch)
    number = batch.entries[0].place.id
    storage.events.append(batch)
    assert [event.id for event in storage.events.events()] == [number] == [batch.entries[0].place.id]
    assert storage.tallies.sums(names=("calls",)) == {("calls", "ok"): 1}


def test_names_and_queries_that_no_index_holds_keep_no_other_event_from_being_recorded(storage: Storage) -> None:
    one, other = (f"s/{secrets.token_urlsafe(6_000)}" for _ in range(2))
    asked = "".join(chr(0x4E00 + secrets.randbelow(20_000)) for _ in range(1_000))
    for events in ([search(asked, one), call(one), call(other)], [call(one, "error")], [call("s/a")]):
        storage.events.append(batch_of(events))
    storage.exemplars.learn()
    assert storage.tallies.sums(names=("calls",)) == {("calls", "ok"): 3, ("calls", "error"): 1}
    named = [event.subject for event in storage.events.events() if event.kind == "called"]
    assert named[0] == named[2] != named[1]
    assert named[3] == "s/a"


def test_an_event_that_the_database_refuses_takes_no_other_of_its_batch_with_it(storage: Storage) -> None:
    recorder = Recorder(storage.events, Ledger(Privacy()))
    for tokens in (1, 2**70, 2):
        recorder(search("find gold", "s/a", tokens=tokens))
        recorder(call("s/a"))
    recorder.close(SECONDS)
    assert recorder.lost["unwritable"] == 1
    assert [event.kind for event in storage.events.events()] == ["searched", "called", "called", "searched", "called"]
    assert sum(storage.tallies.sums(names=("calls",)).values()) == 3


def test_a_statement_that_the_database_refuses_does_not_keep_others_from_it(storage: Storage) -> None:
    with pytest.raises(NotStorable, match="It was not stored; everything else still is"):
        storage.tokens.put(StoredToken(name=secrets.token_urlsafe(6_000), hash="sha256:1", created=1.0))
    storage.tokens.put(StoredToken(name="ci", hash="sha256:1", created=1.0))
    assert set(storage.tokens.load()) == {"ci"}


def test_text_that_the_database_cannot_hold_is_kept_as_well_as_it_can(storage: Storage) -> None:
    storage.events.append(batch_of([search("nul \x00 and \udc80 surrogate", "s/a")]))
    (event,) = storage.events.events()
    assert event.subject == "nul \N{REPLACEMENT CHARACTER} and ? surrogate"


def test_everything_moves_from_files_into_an_empty_database(
    tmp_path: Path, address: str, capsys: pytest.CaptureFixture[str]
) -> None:
    before = recorded(tmp_path)
    assert main(["storage", "migrate", str(tmp_path), address]) == 0
    assert "events: 4" in capsys.readouterr().out
    with closing(open_postgres(address)) as after:
        assert list(after.events.events()) == list(before.events.events())
        assert after.tallies.sums() == before.tallies.sums()
        assert after.experiments.experiments() == before.experiments.experiments()
        assert after.experiments.outcomes("e") == before.experiments.outcomes("e")
        after.exemplars.learn()
        assert after.exemplars.pairs() == before.exemplars.pairs()
        assert after.pins.read("sky") == before.pins.read("sky")
        assert after.tokens.load() == before.tokens.load()
        assert list(after.audit.records()) == list(before.audit.records())
        assert [(check.records, check.problem, check.closed) for check in after.audit.checks()] == [(1, "", True)]
        assert after.catalogs.load("sky") == b'{"format": 2, "tools": []}'
        batch = batch_of([call("s/later")])
        after.events.append(batch)
        assert batch.entries[0].place.id == 5
    assert main(["storage", "migrate", str(tmp_path), address]) == 2
    assert "is not empty" in capsys.readouterr().err


def test_names_that_no_index_holds_are_moved_shortened(tmp_path: Path, address: str) -> None:
    name, storage = f"s/{secrets.token_urlsafe(6_000)}", open_local(tmp_path)
    storage.events.append(batch_of([search("find it", name), call(name)]))
    storage.exemplars.learn()
    assert dict(move(tmp_path, address, {}))["exemplars"] == 1
    with closing(open_postgres(address)) as after:
        assert [str(event.subject)[:100] for event in after.events.events() if event.kind == "called"] == [name[:100]]


def test_two_that_move_into_one_database_at_once_do_not_mix(tmp_path: Path, address: str) -> None:
    recorded(tmp_path)
    first = move(tmp_path, address, {})
    next(first)
    with pytest.raises(InvalidInput, match="Another `shortlist storage migrate`"):
        list(move(tmp_path, address, {}))
    list(first)
    with closing(open_postgres(address)) as storage:
        assert len(list(storage.events.events())) == 4


def test_a_move_that_fails_leaves_the_database_empty_and_can_be_repeated(tmp_path: Path, address: str) -> None:
    recorded(tmp_path)
    people = tmp_path / "audit" / "people.json"
    whole = people.read_bytes()
    people.write_bytes(b"damaged")
    with pytest.raises(StoreError, match=r"people\.json.* cannot be read"):
        list(move(tmp_path, address, {}))
    people.write_bytes(whole)
    assert dict(move(tmp_path, address, {}))["tokens"] == 1


def recorded(folder: Path) -> Storage:
    storage = open_local(folder)
    storage.experiments.start(StoredExperiment(name="e", plan=json.dumps({}), started=1))
    exposed = Exposed(caller="local", workspace="w", experiment="e", variant="treatment")
    storage.events.append(batch_of([exposed, search("write to anna", "mail/send"), call("mail/send")]))
    storage.events.append(batch_of([call("s/a")], at=NOON - 3 * DAY))
    storage.exemplars.learn()
    pinned = PinnedDefinition("tool", "forecast", "{}")
    storage.pins.write("sky", StoredPins(listing="x", accepted=(pinned,)))
    storage.pins.decide("sky", [Decision("tool", "forecast", "h", True, "ada", 1.5)])
    storage.tokens.put(StoredToken(name="ci", hash="sha256:1", created=1.0, servers=("sky",)))
    storage.catalogs.save("sky", b'{"format": 2, "tools": []}')
    log = storage.audit.log(no_spool)
    log.record(AuditRecord(at=NOON, principal="token:ci", action="tools/call", decision="allowed", server="sky"))
    log.close()
    return storage


def no_spool() -> Spool:
    raise AssertionError("files need no spool")


def test_a_session_is_found_by_its_id_until_it_ends(storage: Storage, address: str) -> None:
    sessions = shared(storage).sessions
    opened = StoredSession(owner="ada", handshake='{"protocolVersion": "2025-11-25"}')
    sessions.open("session-id", opened)
    sessions.change("session-id", "debug", ["note://a"])
    assert sessions.find("session-id") == replace(opened, level="debug", subscriptions=("note://a",))
    assert sessions.find("another") is None
    with closing(Postgres(address)) as database:
        assert "session-id" not in str(database.read("SELECT * FROM client_sessions"))
    sessions.end("session-id")
    assert sessions.find("session-id") is None


def test_sessions_that_nobody_uses_are_forgotten(storage: Storage, address: str) -> None:
    sessions = shared(storage).sessions
    for name in ("used", "unused"):
        sessions.open(name, StoredSession(owner="", handshake="{}"))
    with closing(Postgres(address)) as database, database.transaction() as connection:
        connection.execute("UPDATE client_sessions SET used = now() - interval '2 hours'")
    assert sessions.find("unused") is None
    sessions.touch(["used"])
    assert sessions.find("used") is not None
    with closing(Postgres(address)) as database:
        assert database.read("SELECT count(*) FROM client_sessions") == [(1,)]


def test_replicas_find_each_other_until_they_leave_or_are_gone(storage: Storage, address: str) -> None:
    replicas = shared(storage).replicas
    for name in ("1", "2", "3"):
        replicas.announce(name, f"http://host{name}")
    assert replicas.others("1") == {"2": "http://host2", "3": "http://host3"}
    replicas.leave("2")
    with closing(Postgres(address)) as database, database.transaction() as connection:
        connection.execute("UPDATE replicas SET seen = now() - interval '1 minute' WHERE id = '3'")
    assert replicas.others("1") == {}


def test_a_lease_is_held_by_one_gateway_until_it_is_released_or_expires(storage: Storage, address: str) -> None:
    with closing(open_postgres(address)) as other:
        mine, theirs = shared(storage).leases, shared(other).leases
        assert mine.take("box", "1", "http://one") == Holder("1", "http://one")
        assert theirs.take("box", "2", "http://two") == Holder("1", "http://one")
        assert theirs.renew("2", ["box", "unknown"]) == {"box": Holder("1", "http://one")}
        theirs.release("box", "2")
        mine.release("box", "1")
        assert theirs.take("box", "2", "http://two").replica == "2"
        with psycopg.connect(address) as connection:
            connection.execute("UPDATE shortlist.leases SET until = now() - interval '1 second'")
        assert mine.renew("1", ["box"]) == {"box": Holder("2", "http://two", is_expired=True)}
        assert theirs.renew("2", ["box"]) == {"box": Holder("2", "http://two")}
        assert mine.take("box", "1", "http://one", over="2").replica == "2"
        with psycopg.connect(address) as connection:
            connection.execute("UPDATE shortlist.leases SET until = now() - interval '1 second'")
        assert mine.take("box", "1", "http://one") == Holder("2", "http://two", is_expired=True)
        assert mine.take("box", "1", "http://one", over="3") == Holder("2", "http://two", is_expired=True)
        assert mine.take("box", "1", "http://one", over="2") == Holder("1", "http://one")


def test_all_gateways_have_the_same_keys(storage: Storage, address: str) -> None:
    with closing(open_postgres(address)) as other:
        assert shared(storage).key("a") == shared(other).key("a") != shared(other).key("b")


def test_changes_of_one_gateway_are_heard_by_another(storage: Storage, address: str) -> None:
    heard: queue.Queue[str] = queue.Queue()
    ended = threading.Event()
    listening = threading.Thread(target=shared(storage).changes.listen, args=(heard.put, ended))
    listening.start()
    try:
        assert heard.get(timeout=60) == ""
        with closing(open_postgres(address)) as other:
            other.tokens.put(StoredToken(name="ci", hash="sha256:1", created=1.0))
            other.tokens.note_use({"ci": 5.0})
            other.pins.decide("sky", [Decision("tool", "forecast", "h", True, "ada", 1.5)])
            limits = WorkspaceLimits(seconds=60, most=9, most_of_owner=9)
            other.workspaces.save(StoredWorkspace(key="principal:ada", loaded={}, used=1.0), limits)
        assert [heard.get(timeout=60) for _ in range(3)] == ["tokens", "decisions", "workspaces principal:ada"]
        end_connections(address)
        assert heard.get(timeout=60) == ""  # connected again: anything may have changed meanwhile
    finally:
        ended.set()
        listening.join()


def end_connections(address: str) -> None:
    with psycopg.connect(address, autocommit=True) as connection:
        connection.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
            "WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )


def shared(storage: Storage) -> SharedStores:
    assert storage.shared is not None
    return storage.shared
