"""Transactions on a real MariaDB: deadlocks, locks, connections that are killed, answers that are lost."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from random import Random

import pytest
from sqlalchemy import Connection, Engine, select, text

from support.mariadb import MariaDb
from support.metas import asked
from support.mysql_wire import Lose, Wire
from support.waiting import PATIENCE_S, eventually
from tistream.errors import Fenced, Unavailable
from tistream.model.ids import TenantKey
from tistream.model.span import WHOLE
from tistream_meta.database import engine as engine_module
from tistream_meta.database.engine import LOCK_WAIT_S, ConnectionLimits, now_ms, open_engine
from tistream_meta.database.repository import Repository
from tistream_meta.database.transactions import CommitUnknown, Transactions

ACME, BETA = TenantKey("7", "acme"), TenantKey("7", "beta")
LEASE_MS = 600_000
URL = "http://meta-1"


@pytest.fixture
def engine(mysql_url: str) -> Iterator[Engine]:
    engine = open_engine(mysql_url)
    yield engine
    engine.dispose()


@pytest.fixture
def owner(engine: Engine) -> Repository:
    repository = Repository(engine, "meta-1")
    repository.prepare()
    assert repository.take_ownership(LEASE_MS, URL).owner_rev == 1
    return repository


@pytest.fixture
def wire(mysql_url: str) -> Iterator[Wire]:
    between = Wire(mysql_url)
    yield between
    between.close()


@pytest.fixture
def far_owner(wire: Wire) -> Iterator[Repository]:
    """The owner, with something between it and the database."""
    repository = Repository.open(wire.url, "meta-1")
    repository.prepare()
    assert repository.take_ownership(LEASE_MS, URL).owner_rev == 1
    yield repository
    repository.close()


def database_of(engine: Engine) -> str:
    return str(engine.url.database)


def tenants(repository: Repository) -> list[str]:
    return [tenant.key.tenant_id for tenant in repository.plan().tenants]


@pytest.fixture
def waits_for_locks(monkeypatch: pytest.MonkeyPatch) -> None:
    """However long another transaction takes, as long as it does not hang."""
    before, after = f"innodb_lock_wait_timeout = {LOCK_WAIT_S}", f"innodb_lock_wait_timeout = {PATIENCE_S:.0f}"
    monkeypatch.setattr(engine_module, "_SESSION", engine_module._SESSION.replace(before, after))
    monkeypatch.setattr(engine_module.open_engine, "__defaults__", (ConnectionLimits(answer_s=PATIENCE_S),))


@pytest.mark.usefixtures("waits_for_locks")
def test_a_transaction_that_a_deadlock_has_undone_is_done_again(
    mariadb: MariaDb, engine: Engine, owner: Repository, caplog: pytest.LogCaptureFixture
) -> None:
    mariadb.run(f"CREATE TABLE {database_of(engine)}.much (id BIGINT PRIMARY KEY)")
    with (
        closing(mariadb.connect(database_of(engine))) as other,
        other.cursor() as cursor,
        ThreadPoolExecutor(1) as beside,
    ):
        # It has done more, so that it is not the one of the two that is undone.
        cursor.executemany("INSERT INTO much VALUES (%s)", [(number,) for number in range(500)])
        cursor.execute("UPDATE counters SET value = value + 1 WHERE name = 'route_version'")
        created = beside.submit(owner.create_tenant, ACME)
        eventually(lambda: mariadb.run("SELECT * FROM information_schema.innodb_lock_waits"))
        cursor.execute("UPDATE owner SET url = 'http://other' WHERE id = 1")
        other.commit()
        assert created.result(PATIENCE_S)[0].key == ACME
    assert "1213" in undone(caplog)
    assert tenants(owner) == ["acme"]


def undone(caplog: pytest.LogCaptureFixture) -> str:
    """Why transactions were done again."""
    return " ".join(str(getattr(one, "error", "")) for one in caplog.records if one.msg == "transaction undone: again")


@contextmanager
def once_undone(log: logging.Handler, reason: str, action: Callable[[], object]) -> Iterator[None]:
    """When a transaction was undone for that reason, `action` is done in the thread that has met it: before it tries
    again."""

    def look(record: logging.LogRecord) -> bool:
        if record.msg == "transaction undone: again" and reason in str(getattr(record, "error", "")):
            action()
        return True

    log.addFilter(look)
    try:
        yield
    finally:
        log.removeFilter(look)


@pytest.mark.parametrize("let_go", [True, False])
def test_a_lock_that_somebody_else_has_is_waited_for_but_not_for_ever(
    mariadb: MariaDb, engine: Engine, owner: Repository, caplog: pytest.LogCaptureFixture, let_go: bool
) -> None:
    with (
        closing(mariadb.connect(database_of(engine))) as other,
        other.cursor() as cursor,
        ThreadPoolExecutor(1) as beside,
        once_undone(caplog.handler, "1205", other.commit if let_go else lambda: None),
    ):
        cursor.execute("UPDATE owner SET url = 'http://other' WHERE id = 1")
        created = beside.submit(owner.create_tenant, ACME)
        eventually(lambda: "1205" in undone(caplog))
        if let_go:
            assert created.result(PATIENCE_S)[0].key == ACME
        else:
            assert isinstance(created.exception(PATIENCE_S), Unavailable)
            other.rollback()
    assert tenants(owner) == (["acme"] if let_go else [])


def killing(mariadb: MariaDb, connection: Connection) -> None:
    """As an operator does it, or a server that ends."""
    number = connection.execute(text("SELECT CONNECTION_ID()")).scalar_one()
    mariadb.run(f"KILL {number}")
    eventually(lambda: number not in mariadb.clients())


def test_what_was_killed_before_its_commit_is_done_again_and_counts_once(
    mariadb: MariaDb, engine: Engine, owner: Repository
) -> None:
    transactions, attempts = Transactions(engine, Random(1)), []

    def body(connection: Connection) -> int:
        attempts.append(connection)
        connection.execute(text("UPDATE counters SET value = value + 1 WHERE name = 'last_start'"))
        if len(attempts) == 1:
            killing(mariadb, connection)
        return int(connection.execute(text("SELECT value FROM counters WHERE name = 'last_start'")).scalar_one())

    assert transactions.run(body) == 1
    assert len(attempts) == 2
    assert owner.new_start() == 2


def test_what_is_killed_again_and_again_is_given_up(mariadb: MariaDb, engine: Engine, owner: Repository) -> None:
    attempts = []

    def body(connection: Connection) -> None:
        attempts.append(connection)
        killing(mariadb, connection)
        connection.execute(text("SELECT 1"))

    with pytest.raises(Unavailable, match="meta database"):
        Transactions(engine, Random(1)).run(body)
    assert len(attempts) == 2


def test_what_is_killed_at_its_commit_is_not_done_again_nobody_knows(
    mariadb: MariaDb, engine: Engine, owner: Repository
) -> None:
    attempts = []

    def body(connection: Connection) -> None:
        attempts.append(connection)
        connection.execute(text("UPDATE counters SET value = 77 WHERE name = 'last_start'"))
        killing(mariadb, connection)

    with pytest.raises(CommitUnknown):
        Transactions(engine, Random(1)).run(body)
    assert len(attempts) == 1
    assert owner.new_start() == 1, "here it was not done"


@pytest.mark.parametrize(("lose", "done"), [(Lose.COMMIT, False), (Lose.ANSWER, True)])
def test_a_commit_without_an_answer_may_be_done_and_the_same_again_is_done_once(
    wire: Wire, far_owner: Repository, lose: Lose, done: bool
) -> None:
    far_owner.create_tenant(BETA)
    wire.lose = lose
    with pytest.raises(CommitUnknown):
        far_owner.create_tenant(ACME)
    assert wire.lost == 1
    assert tenants(far_owner) == (["acme", "beta"] if done else ["beta"])
    far_owner.create_tenant(ACME)
    assert tenants(far_owner) == ["acme", "beta"]


@pytest.mark.parametrize(("lose", "rev"), [(Lose.COMMIT, 2), (Lose.ANSWER, 3)])
def test_who_won_an_election_without_hearing_of_it_wins_the_next_at_once(
    wire: Wire, far_owner: Repository, lose: Lose, rev: int
) -> None:
    wire.lose = lose
    with pytest.raises(CommitUnknown):
        far_owner.take_ownership(LEASE_MS, URL, first=False)
    assert far_owner.take_ownership(LEASE_MS, URL, first=False).owner_rev == rev
    assert far_owner.owner_rev == rev, "though the lease of the one that was won before lasts"
    far_owner.create_tenant(ACME)


def test_who_won_an_election_without_hearing_of_it_takes_nothing_from_a_successor_of_its_name(
    wire: Wire, far_owner: Repository, mysql_url: str
) -> None:
    wire.lose = Lose.ANSWER
    with pytest.raises(CommitUnknown):
        far_owner.take_ownership(LEASE_MS, URL, first=False)
    successor = Repository.open(mysql_url, "meta-1")
    assert successor.take_ownership(LEASE_MS, URL).owner_rev == 3
    assert far_owner.take_ownership(LEASE_MS, URL, first=False).owner_rev == 3
    with pytest.raises(Fenced):
        far_owner.create_tenant(ACME)
    successor.create_tenant(ACME)
    successor.close()


def test_connections_that_lead_to_a_server_that_cannot_write_any_more_are_left(
    engine: Engine, owner: Repository, caplog: pytest.LogCaptureFixture
) -> None:
    with engine.connect() as connection:  # as the connections to a primary that has become a replica
        connection.execute(text("SET SESSION TRANSACTION READ ONLY"))
        connection.commit()
    owner.create_tenant(ACME)
    assert "1792" in undone(caplog)
    owner.create_tenant(BETA)
    assert undone(caplog).count("1792") == 1, "nobody goes back to it"
    assert tenants(owner) == ["acme", "beta"]


def test_a_server_that_is_read_only_is_written_to_once_it_is_not(mariadb: MariaDb, owner: Repository) -> None:
    mariadb.run("SET GLOBAL read_only = 1")
    try:
        with pytest.raises(Unavailable, match="read-only"):
            owner.create_tenant(ACME)
        assert owner.owner().node_id == "meta-1"
    finally:
        mariadb.run("SET GLOBAL read_only = 0")
    owner.create_tenant(ACME)
    assert tenants(owner) == ["acme"]


def test_a_server_with_too_many_connections_is_unavailable_until_some_have_ended(
    mariadb: MariaDb, engine: Engine, owner: Repository
) -> None:
    before = mariadb.run("SELECT @@max_connections")[0][0]
    mariadb.run("SET GLOBAL max_connections = 10")
    try:
        engine.dispose()
        others = mariadb.fill(1_000)
        with pytest.raises(Unavailable, match="1040"):
            owner.create_tenant(ACME)
        for other in others:
            other.close()
    finally:
        mariadb.run(f"SET GLOBAL max_connections = {before}")
    owner.create_tenant(ACME)
    assert tenants(owner) == ["acme"]


def test_a_process_has_no_more_connections_than_it_may(mariadb: MariaDb, mysql_url: str, owner: Repository) -> None:
    repository = Repository.open(mysql_url, "meta-1", ConnectionLimits(connections=3))
    database = mysql_url.rsplit("/", 1)[1]
    before = connections_to(mariadb, database)
    most = 0
    with ThreadPoolExecutor(30) as many:
        asked = [many.submit(repository.owner) for _ in range(300)]
        while not all(one.done() for one in asked):
            most = max(most, connections_to(mariadb, database))
    assert {one.result().owner_rev for one in asked} == {1}
    assert 1 <= connections_to(mariadb, database) - before <= 3
    assert most - before <= 3
    repository.close()


def connections_to(mariadb: MariaDb, database: str) -> int:
    rows = mariadb.run(f"SELECT COUNT(*) FROM information_schema.processlist WHERE db = '{database}'")
    return int(rows[0][0])


def test_leases_are_told_by_the_databases_clock_whatever_zone_it_is_set_to(mariadb: MariaDb, mysql_url: str) -> None:
    mariadb.run("SET GLOBAL time_zone = '+05:30'")
    try:
        engine = open_engine(mysql_url)
        with engine.connect() as connection:
            connection.execute(text("SET SESSION time_zone = '-08:00'"))
            values = [connection.execute(select(now_ms(engine))).scalar_one() for _ in range(200)]
        assert abs(values[-1] - time.time() * 1000) < 60_000
        assert len({value % 1_000 for value in values}) > 3, "milliseconds"
    finally:
        mariadb.run("SET GLOBAL time_zone = 'SYSTEM'")
        engine.dispose()


def test_a_value_that_does_not_fit_is_refused_though_the_server_would_cut_it(mariadb: MariaDb, mysql_url: str) -> None:
    mode = mariadb.run("SELECT @@GLOBAL.sql_mode")[0][0]
    mariadb.run("SET GLOBAL sql_mode = ''")
    try:
        repository = Repository.open(mysql_url, "meta-1")
        repository.prepare()
        repository.take_ownership(LEASE_MS, URL)
        with pytest.raises(Unavailable, match="too long"):
            repository.take_ownership(LEASE_MS, "http://" + "x" * 300)
        assert repository.owner().url == URL
        repository.close()
    finally:
        mariadb.run(f"SET GLOBAL sql_mode = '{mode}'")


@pytest.mark.parametrize("ask", [Repository.owner, Repository.plan, lambda repository: repository.create_tenant(ACME)])
def test_a_database_that_hangs_is_given_up_and_nothing_is_wrong_after_it(
    mariadb: MariaDb, mysql_url: str, owner: Repository, ask: Callable[[Repository], object]
) -> None:
    owner.activate(owner.create_tenant(BETA)[0].key, 42, (WHOLE,))
    repository = Repository.open(mysql_url, "meta-1", ConnectionLimits(answer_s=0.5))
    asked(lambda: repository.take_ownership(LEASE_MS, URL))
    with ThreadPoolExecutor(1) as beside, mariadb.hanging():
        assert isinstance(beside.submit(ask, repository).exception(PATIENCE_S), Unavailable)
    asked(repository.plan)
    asked(lambda: repository.create_tenant(ACME))
    assert asked(lambda: tenants(repository)) == ["acme", "beta"]
    repository.close()


def test_what_was_under_way_in_a_process_that_vanished_holds_nobody_up_for_longer_than_a_lease(
    mariadb: MariaDb, engine: Engine, owner: Repository, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    stuck = engine.connect()  # as of a process that is stopped: it holds the owner's row, and says nothing
    stuck.execute(text("UPDATE owner SET url = 'http://stuck' WHERE id = 1"))
    assert stuck.execute(text("SELECT @@wait_timeout, @@innodb_lock_wait_timeout")).one() == (8, 2)
    eventually(lambda: wrote(owner))
    assert owner.owner().url == URL
    stuck.invalidate()
    stuck.close()


def wrote(owner: Repository) -> bool:
    try:
        owner.renew(LEASE_MS)
    except Unavailable:
        return False
    return True
