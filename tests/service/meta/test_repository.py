"""The meta database: epochs only grow, one owner writes, what is created is there again after a restart."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from sqlalchemy import Engine, inspect, text

from tistream.errors import AlreadyDiffers, Fenced, Unavailable, UnknownName
from tistream.model.ids import TenantKey
from tistream.model.span import WHOLE, KeySpan
from tistream_meta.database import tables
from tistream_meta.database.engine import open_engine
from tistream_meta.database.repository import Repository
from tistream_meta.decide.incarnations import Start
from tistream_meta.decide.model import FOR_EVER, Encryption, Retention
from tistream_meta.decide.task_phases import PhaseEvent
from tistream_meta.decide.task_policy import Command
from tistream_meta.migrations import NewerDatabase, files, migrate

ACME = TenantKey("7", "acme")
LEASE_MS = 60_000
NEWEST = max(files("sqlite"))
WEEK = Retention(7 * 86_400_000)


@pytest.fixture
def engine(database_url: str) -> Iterator[Engine]:
    engine = open_engine(database_url)
    yield engine
    engine.dispose()


def owner(engine: Engine, node: str = "meta-1") -> Repository:
    repository = Repository(engine, node)
    repository.prepare()
    assert repository.take_ownership(LEASE_MS, "http://here").url == "http://here"
    return repository


def test_migrations_make_the_tables_that_the_code_names(engine):
    assert migrate(engine) == migrate(engine) == NEWEST
    found = inspect(engine)
    for table in tables.metadata.sorted_tables:
        columns = {column["name"]: column for column in found.get_columns(table.name)}
        assert set(columns) == {column.name for column in table.columns}
        assert found.get_pk_constraint(table.name)["constrained_columns"] == [c.name for c in table.primary_key]
        for column in table.columns:
            assert columns[column.name]["nullable"] == column.nullable, column


def test_a_database_of_a_newer_program_is_refused(engine):
    migrate(engine)
    with engine.begin() as connection:
        connection.execute(text("INSERT INTO schema_migrations (version) VALUES (99)"))
    with pytest.raises(NewerDatabase, match="99"):
        migrate(engine)


def test_a_migration_that_was_cut_short_is_run_again(engine):
    migrate(engine)
    with engine.begin() as connection:
        connection.execute(text("DELETE FROM schema_migrations"))
        connection.execute(text("DROP TABLE nodes"))
    migrate(engine)
    assert "nodes" in inspect(engine).get_table_names()
    with engine.begin() as connection:
        connection.execute(text("DELETE FROM schema_migrations WHERE version >= 2"))
    assert migrate(engine) == NEWEST


def test_tenants_of_a_database_without_retention_are_kept_for_ever(engine):
    migrate(engine)
    with engine.begin() as connection:
        connection.execute(text("ALTER TABLE tenants DROP COLUMN retention_ms"))
        connection.execute(text("ALTER TABLE tenants DROP COLUMN kms_key_id"))
        connection.execute(text("DELETE FROM schema_migrations WHERE version >= 9"))
        connection.execute(text("INSERT INTO tenants (cluster_id, tenant_id, created_ms) VALUES ('7', 'acme', 1)"))
    repository = owner(engine)
    assert [tenant.retention_ms for tenant in repository.plan().tenants] == [None]
    assert repository.set_rule(ACME, WEEK)[0].retention_ms == WEEK.ms


def test_a_key_is_kept_through_all_that_happens_to_a_tenant_and_changes_as_it_is_told(engine):
    repository = owner(engine)
    created, change = repository.create_tenant(ACME, encryption=Encryption("k1"))
    assert change is not None
    assert created.kms_key_id == "k1"
    assert repository.create_tenant(ACME) == (created, None)
    for other in (Encryption("k2"), Encryption(None)):
        with pytest.raises(AlreadyDiffers, match="exists with key k1"):
            repository.create_tenant(ACME, encryption=other)
    for made in (repository.set_problem(ACME, "why"), repository.activate(ACME, 5, [KeySpan(b"", b"")])):
        assert [tenant.kms_key_id for tenant in made.tenants] == ["k1"]
    changed, change = repository.set_rule(ACME, Encryption("k2"))
    assert (changed.kms_key_id, change.tenants) == ("k2", (changed,))
    assert repository.set_rule(ACME, Encryption("k2"))[1] is None
    assert repository.set_rule(ACME, WEEK)[0].kms_key_id == "k2"
    assert repository.set_rule(ACME, Encryption(None))[0].kms_key_id is None
    with pytest.raises(UnknownName):
        repository.set_rule(TenantKey("7", "nobody"), Encryption("k"))


def test_retention_is_kept_through_all_that_happens_to_a_tenant(engine):
    repository = owner(engine)
    created, change = repository.create_tenant(ACME, WEEK)
    assert created.retention_ms == WEEK.ms
    for made in (change, repository.set_problem(ACME, "waits"), repository.activate(ACME, 42, (WHOLE,))):
        assert [tenant.retention_ms for tenant in made.tenants] == [WEEK.ms]
    assert repository.create_tenant(ACME) == (repository.plan().tenants[0], None)
    assert repository.create_tenant(ACME, WEEK)[1] is None
    with pytest.raises(AlreadyDiffers, match=str(WEEK.ms)):
        repository.create_tenant(ACME, FOR_EVER)


def test_a_change_of_retention_is_a_new_version_and_the_same_again_is_none(engine):
    repository = owner(engine)
    repository.create_tenant(ACME, None, WEEK)
    repository.activate(ACME, 42, (WHOLE,))
    version = repository.plan().version
    assert repository.set_rule(ACME, WEEK)[1] is None
    assert repository.plan().version == version
    tenant, change = repository.set_rule(ACME, FOR_EVER)
    assert (tenant.snapshot_ts, tenant.retention_ms) == (42, None)
    assert change.version == repository.plan().version > version
    assert change.tenants == repository.plan().tenants == (tenant,)
    with pytest.raises(UnknownName):
        repository.set_rule(TenantKey("7", "nobody"), WEEK)


def test_who_is_not_the_owner_any_more_changes_no_retention(engine):
    first, second = owner(engine), owner(engine)
    second.create_tenant(ACME)
    with pytest.raises(Fenced):
        first.set_rule(ACME, WEEK)
    assert second.plan().tenants[0].retention_ms is None


def test_starts_are_counted_on_in_a_database_of_before_they_bore_an_instance(engine):
    migrate(engine)
    with engine.begin() as connection:
        connection.execute(text("ALTER TABLE nodes DROP COLUMN instance"))
        connection.execute(text("DELETE FROM schema_migrations WHERE version >= 2"))
        connection.execute(
            text(
                "INSERT INTO nodes (node_id, role, url, start_epoch, last_heartbeat_ms) "
                "VALUES ('api-1', 'api', 'http://a', 7, 0)"
            )
        )
    repository = owner(engine)
    assert repository.plan().nodes[0].start_epoch == 7
    start = Start("a", repository.new_start())
    assert start.start_epoch == 8
    assert repository.register("api-1", "api", "http://b", start)[0].url == "http://b"
    assert repository.plan().nodes[0].start_epoch == 8


def test_owner_rev_grows_with_every_start(engine):
    revs = []
    for _ in range(3):
        repository = Repository(engine, "meta-1")
        repository.prepare()
        revs.append(repository.take_ownership(LEASE_MS, "http://here").owner_rev)
    assert revs == [1, 2, 3]


def test_another_node_waits_for_the_lease_and_then_fences_the_first(engine):
    first = owner(engine)
    second = Repository(engine, "meta-2")
    assert second.take_ownership(LEASE_MS, "http://there").node_id == "meta-1"
    assert second.owner_rev == 0
    with pytest.raises(Fenced):
        second.create_tenant(ACME)
    first.renew(-1_000)
    assert second.take_ownership(LEASE_MS, "http://here").owner_rev == 2
    with pytest.raises(Fenced) as caught:
        first.create_tenant(ACME)
    assert (caught.value.held_epoch, caught.value.current_epoch) == (1, 2)
    assert second.plan().tenants == ()
    second.create_tenant(ACME)


def test_an_earlier_start_of_the_same_node_is_fenced_too(engine):
    first, again = owner(engine), owner(engine)
    with pytest.raises(Fenced):
        first.create_tenant(ACME)
    again.create_tenant(ACME)


def test_tenants_are_kept_by_exact_name_and_created_once(engine):
    repository = owner(engine)
    for name in ("acme", "ACME", "b-1", "acme"):
        repository.create_tenant(TenantKey("7", name))
    assert [tenant.key.tenant_id for tenant in repository.tenants_of("7")] == ["ACME", "acme", "b-1"]
    with pytest.raises(UnknownName):
        repository.tenants_of("8")
    assert owner(engine).tenants_of("7") == repository.tenants_of("7")


def test_a_tenant_is_activated_once_with_ids_that_no_other_has(engine):
    repository = owner(engine)
    spans = (KeySpan(b"", b"t\xff\x00"), KeySpan(b"t\xff\x00", b""))
    for name in ("acme", "beta"):
        key = repository.create_tenant(TenantKey("7", name))[0].key
        repository.set_problem(key, "not yet")
        assert repository.activate(key, 42, spans)
        assert not repository.activate(key, 43, (WHOLE,))
        repository.set_problem(key, "too late")
    plan = repository.plan()
    assert [(t.snapshot_ts, t.problem) for t in plan.tenants] == [(42, None), (42, None)]
    assert [task.task_id for task in plan.tasks] == [1, 2, 3, 4]
    assert [task.span for task in plan.tasks] == [*spans, *spans]
    assert {task.task_epoch for task in plan.tasks} == {0}


def test_every_move_and_every_start_of_its_sorter_takes_a_new_epoch(engine):
    repository = owner(engine)
    repository.create_tenant(ACME)
    repository.activate(ACME, 42, (WHOLE,))

    def start(node: str, role: str, url: str) -> None:
        number = repository.new_start()
        repository.register(node, role, url, Start(f"{node}-{number}", number))

    start("sorter-1", "sorter", "http://a")
    epochs, versions = [], []
    for action in (
        lambda: repository.execute_moves([Command(1, PhaseEvent.HAND_OVER, "sorter-1")]),
        lambda: start("sorter-1", "sorter", "http://b"),
        lambda: start("api-1", "api", "http://c"),
        lambda: repository.execute_moves([Command(1, PhaseEvent.HAND_OVER, "sorter-2")]),
        lambda: start("sorter-1", "sorter", "http://b"),
    ):
        action()
        plan = repository.plan()
        epochs.append(plan.tasks[0].task_epoch)
        versions.append(plan.version)
    assert epochs == [1, 2, 2, 3, 3]
    assert versions == sorted(set(versions))
    assert {node.node_id: node.start_epoch for node in plan.nodes} == {"api-1": 3, "sorter-1": 4}


def test_who_prepares_is_noted_until_it_takes_over_or_is_given_up(engine):
    repository = owner(engine)
    repository.create_tenant(ACME)
    repository.activate(ACME, 42, (WHOLE,))
    seen = []
    for step, node in (
        (PhaseEvent.HAND_OVER, "a"),
        (PhaseEvent.PREPARE, "b"),
        (PhaseEvent.ABANDON, None),
        (PhaseEvent.PREPARE, "c"),
        (PhaseEvent.HAND_OVER, "c"),
    ):
        repository.execute_moves([Command(1, step, node)])
        (task,) = repository.plan().tasks
        seen.append((task.sorter_node, task.next_node, task.task_epoch))
    assert seen == [("a", None, 1), ("a", "b", 1), ("a", None, 1), ("a", "c", 1), ("c", None, 2)]


def test_renewing_changes_no_version(engine):
    repository = owner(engine)
    before = repository.plan()
    repository.renew(LEASE_MS, ["sorter-1"])
    assert repository.plan() == before


def test_a_database_that_does_not_answer_is_unavailable(tmp_path):
    repository = Repository(open_engine(f"sqlite:///{tmp_path}/missing/meta.db"), "meta-1")
    with pytest.raises(Unavailable, match="meta database"):
        repository.prepare()


def test_other_databases_are_refused():
    with pytest.raises(ValueError, match="use sqlite or mysql"):
        open_engine("postgresql://host/db")
