"""The schema on a real MariaDB: made once by several at once, and made whole wherever it was cut short."""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from string import Template

import pytest
from sqlalchemy import text

from support.effort import cases
from support.mariadb import MariaDb
from support.waiting import PATIENCE_S, eventually
from tistream.errors import Unavailable
from tistream.model.ids import TenantKey
from tistream_meta import migrations
from tistream_meta.database.engine import open_engine
from tistream_meta.database.repository import Repository

NEWEST = max(migrations.files("mysql"))
EACH, NEWEST_STATEMENTS = 6, 8
BUSY = "another process is bringing the meta database up to date"


def prepared(repository: Repository) -> int:
    """As the loop of a meta server does it: again, until it is done."""
    failures: list[str] = []
    versions: list[int] = []

    def attempt() -> bool:
        try:
            versions.append(repository.prepare())
        except Unavailable as error:
            failures.append(str(error))
        return bool(versions)

    eventually(attempt)
    assert set(failures) <= {BUSY}, "they wait for each other, and are not in each other's way"
    return versions[0]


def schema(mariadb: MariaDb, url: str) -> list[tuple[object, ...]]:
    """Every column of every table as the server tells it: its table's engine, its name, its place among the keys, …"""
    return mariadb.run(
        "SELECT table_name, t.engine, column_name, column_key, column_type, is_nullable, column_default, "
        "character_set_name, collation_name FROM information_schema.columns JOIN information_schema.tables t "
        f"USING (table_schema, table_name) WHERE table_schema = '{url.rsplit('/', 1)[1]}' ORDER BY 1, 3"
    )


def test_meta_servers_that_start_at_once_make_the_schema_once(mariadb: MariaDb, mysql_url: str) -> None:
    repositories = [Repository.open(mysql_url, f"meta-{number}") for number in range(6)]
    with ThreadPoolExecutor(6) as many:
        assert list(many.map(prepared, repositories)) == [NEWEST] * 6
    database = mysql_url.rsplit("/", 1)[1]
    assert mariadb.run(f"SELECT version FROM {database}.schema_migrations") == [
        (one,) for one in migrations.files("mysql")
    ]
    assert [one.owner().owner_rev for one in repositories] == [0] * 6
    for one in repositories:
        one.close()


def statements() -> list[str]:
    """In the order in which they are run, the notes of what is done among them."""
    found = []
    for number, sql in migrations.files("mysql").items():
        found += [one for one in re.split(r";\s*$", sql, flags=re.MULTILINE) if one.strip()]
        found.append(f"INSERT INTO schema_migrations (version) VALUES ({number})")
    return [Template(one).substitute(NAME="CHARACTER SET ascii COLLATE ascii_bin") for one in found]


def test_wherever_it_is_cut_short_it_becomes_whole(mariadb: MariaDb, mysql_url: str) -> None:
    whole = Repository.open(mysql_url, "meta-1")
    whole.prepare()
    wanted = schema(mariadb, mysql_url)
    everything = statements()
    first = everything.index("INSERT INTO schema_migrations (version) VALUES (1)")
    places = [2, *range(first, len(everything))]
    few = sorted({*places[::EACH], *places[-NEWEST_STATEMENTS:]})  # what was shown of a migration stays true of it
    for cut in cases(few, [place for place in places if place not in few]):
        url = mariadb.new_database()
        engine = open_engine(url)
        with engine.begin() as connection:
            connection.execute(text("CREATE TABLE schema_migrations (version BIGINT PRIMARY KEY)"))
            for statement in everything[:cut]:
                connection.execute(text(statement))
        repository = Repository(engine, "meta-1")
        assert repository.prepare() == NEWEST
        assert schema(mariadb, url) == wanted, everything[cut]
        repository.close()
    whole.close()


def test_one_that_is_killed_in_the_middle_of_a_statement_is_gone_on_with(mariadb: MariaDb, mysql_url: str) -> None:
    database = mysql_url.rsplit("/", 1)[1]
    repository = Repository.open(mysql_url, "meta-1")
    repository.prepare()
    wanted = schema(mariadb, mysql_url)
    mariadb.run(f"ALTER TABLE {database}.tasks DROP COLUMN seal")
    mariadb.run(f"DELETE FROM {database}.schema_migrations WHERE version >= 5")
    with closing(mariadb.connect(database)) as reader, reader.cursor() as cursor, ThreadPoolExecutor(1) as beside:
        cursor.execute("SELECT * FROM tasks")  # its transaction keeps the table from being altered
        killed = beside.submit(repository.prepare)
        eventually(lambda: mariadb.clients("Waiting for table metadata lock"))
        mariadb.kill()
        assert isinstance(killed.exception(PATIENCE_S), Unavailable)
    assert prepared(repository) == NEWEST
    assert schema(mariadb, mysql_url) == wanted
    repository.close()


def test_one_that_another_does_not_end_is_waited_for_and_only_in_its_own_database(
    mariadb: MariaDb, mysql_url: str
) -> None:
    database = mysql_url.rsplit("/", 1)[1]
    repository, elsewhere = Repository.open(mysql_url, "meta-1"), Repository.open(mariadb.new_database(), "meta-1")
    with closing(mariadb.connect(database)) as other, other.cursor() as cursor:
        cursor.execute("SELECT GET_LOCK(CONCAT('tistream.', SHA1(DATABASE())), 0)")
        with pytest.raises(Unavailable, match=BUSY):
            repository.prepare()
        assert elsewhere.prepare() == NEWEST
    assert prepared(repository) == NEWEST
    for one in (repository, elsewhere):
        one.close()


def test_a_process_that_has_made_the_schema_holds_up_no_other_that_is_still_to_look(mysql_url: str) -> None:
    first, second = Repository.open(mysql_url, "meta-1"), Repository.open(mysql_url, "meta-2")
    assert first.prepare() == NEWEST
    assert prepared(second) == NEWEST
    assert first.take_ownership(60_000, "http://meta-1").node_id == "meta-1", "its own connections go on"
    for one in (first, second):
        one.close()


def test_the_schema_is_the_same_whatever_the_servers_defaults_are(mariadb: MariaDb, mysql_url: str) -> None:
    names = ("default_storage_engine", "sql_mode", "character_set_server", "collation_server")
    before = mariadb.run("SELECT @@GLOBAL." + ", @@GLOBAL.".join(names))[0]
    others = ("MyISAM", "", "utf8mb4", "utf8mb4_unicode_ci")
    for name, value in zip(names, others, strict=True):
        mariadb.run(f"SET GLOBAL {name} = '{value}'")
    try:
        url = mariadb.new_database()
        repository = Repository.open(url, "meta-1")
        repository.prepare()
    finally:
        for name, value in zip(names, before, strict=True):
            mariadb.run(f"SET GLOBAL {name} = '{value}'")
    found = schema(mariadb, url)
    assert {column[1] for column in found} == {"InnoDB"}
    repository.prepare()
    plain = {column[2]: column[-1] for column in found if column[-2] == "ascii"}
    assert {"cluster_id", "tenant_id", "node_id", "sorter_node", "instance", "name", "seal", "parents"} <= set(plain)
    assert {column[-1] for column in found} == {None, "ascii_bin", "utf8mb4_bin"}
    repository.take_ownership(60_000, "http://meta-1")
    key = repository.create_tenant(TenantKey("7", "acme"))[0].key
    repository.set_problem(key, "表 🙂")
    assert repository.plan().tenants[0].problem == "表 🙂"
    repository.close()


def test_what_was_made_by_an_older_program_gets_the_same_columns(mariadb: MariaDb, mysql_url: str) -> None:
    """In a database of another character set, as a server has it by default."""
    repository = Repository.open(mysql_url, "meta-1")
    repository.prepare()
    database = mysql_url.rsplit("/", 1)[1]
    mariadb.run(f"DELETE FROM {database}.schema_migrations WHERE version >= 8")
    mariadb.run(f"ALTER TABLE {database}.tenants MODIFY COLUMN problem TEXT CHARACTER SET latin1")
    mariadb.run(f"ALTER TABLE {database}.tasks MODIFY COLUMN seal TEXT")
    repository.take_ownership(60_000, "http://meta-1")
    key = repository.create_tenant(TenantKey("7", "acme"))[0].key
    repository.set_problem(key, "no snapshot")
    assert repository.prepare() == NEWEST
    assert repository.plan().tenants[0].problem == "no snapshot"
    repository.set_problem(key, "表 🙂")
    assert repository.plan().tenants[0].problem == "表 🙂"
    repository.close()
