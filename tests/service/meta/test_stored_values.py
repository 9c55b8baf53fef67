"""What goes into the meta database comes out as it was, on every kind of database: names, keys, timestamps."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tistream.errors import InvalidRequest
from tistream.model.ids import TenantKey
from tistream.model.span import WHOLE, KeySpan
from tistream.model.ts import MAX_TS
from tistream.wire.bulk.restores import MySqlPlace, NewRestore, RestoreName, RestoreReport, RestoreTable
from tistream_meta.database.repository import Repository
from tistream_meta.decide.incarnations import Start
from tistream_meta.decide.model import Child, Seal, Store
from tistream_meta.decide.split_merge import Succession, TaskOrder, halves
from tistream_meta.decide.task_phases import PhaseEvent
from tistream_meta.decide.task_policy import Command
from tistream_meta.restores.book import RestoreBook
from tistream_meta.routes.restore_routes import info_of

LONGEST = "A" + "z" * 62
ACME = TenantKey("7", "acme")


@pytest.fixture
def owner(database_url: str) -> Iterator[Repository]:
    repository = Repository.open(database_url, "meta-1")
    repository.prepare()
    repository.take_ownership(600_000, "http://meta-1")
    yield repository
    repository.close()


def test_names_that_differ_in_case_alone_are_different_everywhere(owner: Repository) -> None:
    names = ["ACME", "Acme", "acme", "acme-", "acme_"]
    keys = [TenantKey(cluster, name) for cluster in ("C", "c") for name in names]
    for key in keys:
        assert owner.create_tenant(key)[1] is not None, "it is a new one"
        owner.activate(key, 42, (WHOLE,))
        owner.assign_stores([Store(key, 1, "dispatcher-1")])
    plan = owner.plan()
    assert [tenant.key for tenant in plan.tenants] == sorted(keys)
    assert [task.tenant for task in plan.tasks] == sorted(keys)
    assert [store.tenant for store in plan.stores] == sorted(keys)
    assert [tenant.key for tenant in owner.tenants_of("C")] == [TenantKey("C", name) for name in sorted(names)]
    owner.set_problem(keys[0], "too late")
    for number, node in enumerate(("sorter-1", "Sorter-1", "SORTER-1"), 1):
        owner.register(node, "sorter", f"http://{number}", Start(f"i{number}", owner.new_start()))
    owner.execute_moves([Command(1, PhaseEvent.HAND_OVER, "Sorter-1", "test")])
    owner.drain("SORTER-1", True)
    plan = owner.plan()
    assert {node.node_id: (node.url, node.draining) for node in plan.nodes} == {
        "sorter-1": ("http://1", False),
        "Sorter-1": ("http://2", False),
        "SORTER-1": ("http://3", True),
    }
    owner.register("sorter-1", "sorter", "http://4", Start("i4", owner.new_start()))
    assert {task.task_epoch for task in owner.plan().tasks if task.sorter_node == "Sorter-1"} == {1}


@pytest.mark.parametrize("name", ["acme ", " acme", "acme\t", "ａcme", "acmé", "acme\u0301", "acme\x00", "acme\n", ""])
def test_names_that_a_database_could_take_for_others_are_none(name: str) -> None:
    with pytest.raises(InvalidRequest):
        TenantKey.parse("7", name)
    with pytest.raises(InvalidRequest):
        TenantKey.parse(name, "acme")


def test_the_longest_names_and_the_largest_numbers_are_kept(owner: Repository) -> None:
    key = TenantKey(LONGEST, LONGEST)
    owner.create_tenant(key)
    owner.activate(key, MAX_TS, (WHOLE,))
    owner.assign_stores([Store(key, MAX_TS, LONGEST)])
    start = Start(LONGEST, (1 << 62) - 1)
    owner.register(LONGEST, "dispatcher", "http://" + "x" * 248, start)
    owner.execute_moves([Command(1, PhaseEvent.HAND_OVER, LONGEST, "test")])
    owner.raise_epochs({1: MAX_TS - 1})
    plan = owner.plan()
    assert plan.tenants[0].snapshot_ts == MAX_TS
    assert plan.stores == (Store(key, MAX_TS, LONGEST),)
    assert (plan.tasks[0].sorter_node, plan.tasks[0].task_epoch) == (LONGEST, MAX_TS)
    assert (plan.nodes[0].instance, plan.nodes[0].start_epoch) == (LONGEST, (1 << 62) - 1)
    assert len(plan.nodes[0].url) == 255


# TiKV takes keys of some KiB; an order to seal writes four of them.
@pytest.mark.parametrize("key", [bytes(range(256)) * 48, b"\\'\"%s\x00\x1a\n\r", b"\xff" * 300, b" ", b"a ", b"\x00"])
def test_keys_are_kept_byte_for_byte(owner: Repository, key: bytes) -> None:
    owner.create_tenant(ACME)
    low = KeySpan(key, key + b"\x01\x00")
    owner.activate(ACME, 42, (low,))
    cut = halves(low, key + b"\x00")
    assert cut is not None
    children = tuple(Child(11 + at, span) for at, span in enumerate(cut))
    order = TaskOrder((1,), Seal(children, MAX_TS, final=False), "test")
    assert owner.order_seals([order]).tasks[0].seal == order.seal
    assert (owner.plan().tasks[0].span, owner.plan().tasks[0].seal) == (low, order.seal)
    owner.replace_sealed([Succession(ACME, (1,), children)])
    tasks = owner.plan().tasks
    assert [(task.task_id, task.span, task.parents) for task in tasks] == [
        (child.task_id, child.span, (1,)) for child in children
    ]


def test_tasks_are_in_the_order_of_their_bytes(owner: Repository) -> None:
    keys = [b"", b"A", b"A ", b"A\x00", b"Z", b"a", b"\x7f", b"\x80", b"\xc3\xa4", b"\xff", b"\xff\x00"]
    owner.create_tenant(ACME)
    ordered = sorted(keys)
    spans = [KeySpan(low, high) for low, high in zip(ordered, [*ordered[1:], b""], strict=True)]
    owner.activate(ACME, 42, spans[::-1])
    assert [task.span for task in owner.plan().tasks] == spans


def test_thousands_of_tasks_are_written_and_read_at_once(owner: Repository) -> None:
    owner.create_tenant(ACME)
    keys = [b"", *(number.to_bytes(4, "big") for number in range(1, 3_000))]
    spans = [KeySpan(low, high) for low, high in zip(keys, [*keys[1:], b""], strict=True)]
    change = owner.activate(ACME, 42, spans)
    assert change is not None
    assert len(change.tasks) == 3_000
    owner.execute_moves([Command(task.task_id, PhaseEvent.HAND_OVER, "sorter-1", "test") for task in change.tasks])
    assert {(task.sorter_node, task.task_epoch) for task in owner.plan().tasks} == {("sorter-1", 1)}


def test_a_restore_of_tables_of_any_name_is_reported_and_claimed_everywhere(owner: Repository) -> None:
    owner.create_tenant(ACME)
    book = owner.part(RestoreBook)
    names = [RestoreName(database="we`ird 名", table=f"表🙂{at:060d}") for at in range(1_000)]
    place = MySqlPlace(kind="mysql", dsn_file="é", rename={"we`ird 名": "ß"})
    wanted = NewRestore(restore_id="a" * 32, ts="42", tables=names, target=place, if_exists="replace")
    assert book.claim("ingest-1") is None
    book.add(ACME, wanted)
    claimed = book.claim("ingest-1")
    assert claimed is not None
    assert NewRestore.model_validate_json(claimed.wanted) == wanted
    tables = [RestoreTable(database=one.database, table=one.table, rows=1 << 40, rows_done=1) for one in names]
    reason = "表🙂 'quoted' \\ " * 9_000
    book.report(ACME, "a" * 32, RestoreReport(epoch=1, state="failed", tables=tables, reason=reason))
    info = info_of(book.one(ACME, "a" * 32))
    assert (info.state, info.reason, info.tables) == ("failed", reason, tables)
    became = owner.audit.page(None, 10, ACME).entries[-1].became
    assert became is not None
    assert became["tables"][0] == f"we`ird 名.表🙂{0:060d}"
