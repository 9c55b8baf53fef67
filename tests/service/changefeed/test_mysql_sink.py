"""The MySQL sink on a real MariaDB: rows and progress appear together, and only the newest holder writes."""

from __future__ import annotations

import itertools
import json
import re
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any, cast

import pytest

from support.certificates import Authority
from support.feed_batches import golden_windows
from support.feed_run import StillView
from support.feed_tables import Change, Key, batch, column, version
from support.mariadb import MariaDb
from support.mariadb import running as mariadb_running
from support.mysql_feed import (
    CLOCK,
    PASSWORD,
    USER,
    MySqlFeedRun,
    begun,
    emptied,
    first_slot_held,
    join,
    killed,
    progress_of,
    rows_at,
    rows_written,
    tables_of,
    target_of,
    there,
    uri_of,
    wanted,
)
from support.pull_world import World, committed, golden_world
from support.secret_pair import new_pair
from support.waiting import PATIENCE_S, PAUSE_S, eventually
from tistream.errors import InvalidRequest, Unavailable
from tistream.model.ids import TenantKey
from tistream.model.ts import Window, from_physical_ms, physical_ms
from tistream.pool.versions.reader import StoreReader
from tistream.read.cursor import Position, Scope
from tistream.rules.table_rules import TableRules
from tistream.schema.ddl_event import DdlEvent
from tistream.schema.tidb.create_table import Dialect, table_statements
from tistream.schema.tidb.table import BIT, ENUM, SET, VARCHAR, VECTOR
from tistream.secrets.sealing import private_keys, seal
from tistream.service.ids import random_id
from tistream.targets.mysql import TargetFailed
from tistream.wire.bulk.changefeeds import CheckChangefeed, CreateChangefeed, HeldBy, Move, Skip
from tistream.wire.bulk.feed_verify import VerifyFeed
from tistream_changefeed.core.failure import FeedFailed
from tistream_changefeed.core.load import Load
from tistream_changefeed.core.outgoing import NOTHING
from tistream_changefeed.core.progress import Fence, Progress, Revision
from tistream_changefeed.core.shard import Order, Shard, Transaction
from tistream_changefeed.core.sync_points import SyncMark
from tistream_changefeed.dispatch.table_shards import TableShard
from tistream_changefeed.feed_checks import FeedChecks
from tistream_changefeed.fingerprints.rows import row_fingerprints
from tistream_changefeed.fingerprints.windows import SentWindow
from tistream_changefeed.hold.feed import Allowed
from tistream_changefeed.hold.holder import Holder
from tistream_changefeed.hold.secret_keys import SecretKeys
from tistream_changefeed.protocols.table_change import TableChange
from tistream_changefeed.rows.net import net
from tistream_changefeed.rows.split import by_unique_index, split
from tistream_changefeed.rows.window import EventWindow
from tistream_changefeed.sinks.mysql import ddl_runner, stored_progress
from tistream_changefeed.sinks.mysql.connection import connected
from tistream_changefeed.sinks.mysql.ddl import ddl_statements
from tistream_changefeed.sinks.mysql.ddl_runner import DdlRunner
from tistream_changefeed.sinks.mysql.lock_holders import lock_holders
from tistream_changefeed.sinks.mysql.mysql_sink import MySqlSink
from tistream_changefeed.sinks.mysql.payload import DdlMark, NetWindow
from tistream_changefeed.sinks.mysql.statements import statements
from tistream_changefeed.sinks.mysql.target import SYNC_TABLES
from tistream_changefeed.table_errors.tables_refused import TablesRefused
from tistream_changefeed.verify.verification import Verifications

# MariaDB has no VECTOR and no defaults from sequences; rows of EXCHANGE PARTITION have no events.
LEFT_OUT = ["!types.*", "!shop.with_seq", "!shop.p_hash", "!shop.p_x"]
# With and without keys; one of them gets many rows.
FEW = ["shop.k_*", "shop.big"]


def document(rules: list[str]) -> dict[str, Any]:
    return {"force-replicate": True, "filter": {"rules": rules}}


@pytest.fixture
def server(mariadb: MariaDb) -> MariaDb:
    emptied(mariadb)
    return mariadb


@contextmanager
def working(holder: Holder) -> Iterator[threading.Thread]:
    """Run a holder in a thread for a `with` block, and then until it has ended."""
    gone = threading.Event()

    def work() -> None:
        while not holder.stopping and holder.shard.phase not in ("finished", "failed", "fenced"):
            if holder.step() is not None:
                gone.wait(PAUSE_S)
            if gone.is_set():
                return

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield thread
        join(thread, holder)
    finally:
        gone.set()
        holder.stop()
        thread.join(PATIENCE_S)
        holder.run()


def exists(server: MariaDb, table: str) -> bool:
    return bool(server.run(f"SELECT 1 FROM information_schema.tables WHERE table_name = '{table}'"))


def event(query: str, action: str) -> DdlEvent:
    return DdlEvent(1 << 58, 1, 7, "shop", "a", query, action, 1, (("shop", "a"),))


@contextmanager
def opened(server: MariaDb, epoch: int = 1) -> Iterator[MySqlSink]:
    """An open sink of a feed, under this epoch."""
    order = Order(TenantKey("7", "acme"), "copy", 0, Fence(1, epoch), 100)
    sink = MySqlSink(target_of(server, "?worker-count=2"), order, CLOCK, random_id())
    sink.open()
    try:
        yield sink
    finally:
        sink.close()


def applied(revision: int, moved: Move | None = None, **members: Any) -> Order:
    """An order of a feed's shard under a revision."""
    return Order(TenantKey("7", "acme"), "copy", start_ts=100, revision=Revision(revision, moved), **members)


@contextmanager
def ddls(server: MariaDb) -> Iterator[DdlRunner]:
    """What executes the DDLs of a feed whose sink is open."""
    with opened(server) as sink:
        yield sink._runner()


def inserting(commit_ts: int, epoch: int = 1) -> Transaction:
    """A transaction that inserts a row into a table without a key."""
    change = Change(None, {"a": commit_ts}, commit_ts, key=str(commit_ts).encode())
    window = split(EventWindow((batch(version([column("a")]), [change]),), ()), by_unique_index)
    progress = Progress(Position(commit_ts), 0, Fence(1, epoch), rows=commit_ts)
    sent = SentWindow(commit_ts - 1, commit_ts, row_fingerprints(window.rows))
    return Transaction(NetWindow(net(window), commit_ts), (), progress, sent)


def numbers(server: MariaDb) -> list[int]:
    return sorted(number for (number,) in server.run("SELECT a FROM d.t"))


def windows(server: MariaDb) -> list[tuple[int, str]]:
    """The windows that are stored, by number."""
    return [(number, text) for number, text in server.run("SELECT number, `window` FROM tistream.windows ORDER BY 1")]


@pytest.fixture
def table(server: MariaDb) -> MariaDb:
    """A server with a table that has no key."""
    server.run("CREATE DATABASE d")
    server.run("CREATE TABLE d.t (a INT)")
    return server


def differing(world: World, server: MariaDb, rules: list[str], least: int = 11) -> list[str]:
    """The tables of a feed with these rules in which the server does not have what SELECT shows."""
    chosen = TableRules.parse(rules, case_sensitive=True)
    tables = [one for one in tables_of(world) if chosen.matches(*one.name)]
    assert len(tables) >= least
    return [one.name[1] for one in tables if there(server, one) != wanted("everything", one)]


def test_tables_are_what_select_shows_though_connections_and_holders_end(server: MariaDb) -> None:
    world = golden_world("everything")
    run = MySqlFeedRun(world, server, document(FEW), "?worker-count=3")
    first = run.holder()
    with working(first):
        eventually(lambda: exists(server, "big"))
        before = rows_written(server)
        eventually(lambda: rows_written(server) > before)
        with first_slot_held(server):
            eventually(lambda: len(set(begun(server)) - {None}) > 1)  # other slots have written their parts of a window
            assert killed(server)
        eventually(lambda: first.shard.retries)
        before = rows_written(server)
        eventually(lambda: rows_written(server) > before)
        second = run.holder()
        with working(second):
            pass
    assert (first.shard.phase, second.shard.phase) == ("fenced", "finished")
    assert differing(world, server, FEW) == []


def test_ddls_and_rows_between_them_leave_what_select_shows(server: MariaDb) -> None:
    world = golden_world("everything")
    rules = ["*.*", "!shop.busy", "!shop.big", "!shop.k_*", *LEFT_OUT]
    run = MySqlFeedRun(world, server, document(rules), "?worker-count=3")
    with working(run.holder()):
        pass
    assert differing(world, server, rules) == []
    counted = rows_written(server)
    with working(run.holder()):
        pass
    assert rows_written(server) == counted


def test_a_feed_that_begins_with_rows_has_each_once_though_connections_and_holders_end(server: MariaDb) -> None:
    world = golden_world("everything")
    stamps = committed("everything")[0]["commit_ts"].unique().sort()
    rules = [*FEW, "shop.orders", "shop.fk_*", "shop.p_range", "other.*"]
    start_ts = stamps[2 * len(stamps) // 5]
    options = "?worker-count=3&snapshot=now"
    run = MySqlFeedRun(world, server, document(rules), options, window_bytes=10_000, start_ts=start_ts)
    first = run.holder()
    with working(first):
        eventually(lambda: rows_written(server) > 0)
        with first_slot_held(server):
            assert killed(server)
        eventually(lambda: first.shard.retries)
        before = rows_written(server)
        eventually(lambda: rows_written(server) > before or first.shard.phase == "failed")
        with first_slot_held(server):
            assert progress_of(server)["load"][0] == str(start_ts)
            assert first.report().held_by[0].object.startswith("shop.")
            second = run.holder()
            thread = threading.Thread(target=second.step)
            thread.start()
        thread.join()
        with working(second):
            pass
    assert (first.shard.phase, second.shard.phase) == ("fenced", "finished")
    assert "load" not in progress_of(server)
    assert differing(world, server, rules) == []
    assert server.run("SELECT constraint_name FROM information_schema.referential_constraints") != []


def test_shards_wait_for_each_other_at_ddls_and_sync_points(server: MariaDb) -> None:
    world = golden_world("everything")
    rules = ["shop.orders", "shop.items", "shop.modpk", "shop.k_*"]
    start_ts = from_physical_ms(physical_ms(world.snapshot_ts) + 600)
    run = MySqlFeedRun(
        world, server, document(rules), "?worker-count=2&snapshot=now", start_ts=start_ts, shards=2, sync_ms=20
    )
    tables = {name: world.source.table(start_ts, "shop", name) for name in ("orders", "items")}
    for sql in SYNC_TABLES:
        server.run(sql)
    server.run("CREATE DATABASE seen")
    server.run("CREATE TABLE seen.at (ts BIGINT, orders BIGINT, items BIGINT)")
    server.run(
        "CREATE TRIGGER tidb_cdc.look AFTER INSERT ON tidb_cdc.syncpoint_v1 FOR EACH ROW INSERT INTO seen.at "
        "SELECT NEW.primary_ts, (SELECT COUNT(*) FROM shop.orders), (SELECT COUNT(*) FROM shop.items)"
    )
    with working(run.holder(0)), working(run.holder(1)):
        pass
    assert differing(world, server, rules, 20) == []
    points = server.run("SELECT primary_ts, secondary_ts, changefeed FROM tidb_cdc.syncpoint_v1 ORDER BY primary_ts")
    every = from_physical_ms(20)
    first = (start_ts // every + 1) * every
    assert [int(ts) for ts, _, _ in points] == list(range(first, world.end_ts, every))
    assert {feed for _, _, feed in points} == {f"{world.tenant}/copy"}
    assert abs(physical_ms(int(points[-1][1])) - CLOCK.now_ms()) < 3_600_000
    seen = server.run("SELECT ts, orders, items FROM seen.at ORDER BY ts")
    assert len(seen) == len(points)
    for ts, *counts in seen:
        assert counts == [rows_at("everything", one, ts).height for one in tables.values()]
    assert len({orders for _, orders, _ in seen}) > 5
    written = [
        json.loads(text)["rows"] for (text,) in server.run("SELECT progress FROM tistream.progress WHERE slot = 0")
    ]
    assert len(written) == 2
    assert all(written)
    assert server.run("SELECT DISTINCT feed FROM tistream.ddl") == [(f"{world.tenant}/copy/0",)]


def test_no_sync_point_is_marked_while_another_shard_is_above_it(server: MariaDb) -> None:
    """As after a pause, when the shards stand at different ts, and an update that sets another interval."""
    world = golden_world("everything")
    every = from_physical_ms(20)
    above = (world.snapshot_ts // every + 3) * every + 1
    run = MySqlFeedRun(world, server, document(["shop.no_such"]), shards=2, sync_ms=20)
    order = replace(run.holder(1).shard.order, end_ts=None)
    with closing(MySqlSink(target_of(server), order, CLOCK, random_id())) as sink:
        sink.open()
        sink.write(Transaction(NOTHING, (), Progress(Position(above), 0, order.fence)))
    with working(run.holder(0)), working(run.holder(1)):
        pass
    points = server.run("SELECT primary_ts FROM tidb_cdc.syncpoint_v1 ORDER BY primary_ts")
    assert [int(ts) for (ts,) in points] == list(range(above - 1 + every, world.end_ts, every))


def test_feeds_of_two_clusters_with_equal_ids_have_sync_points_of_their_own(server: MariaDb) -> None:
    target = replace(target_of(server), sync_retention_ms=3_600_000)
    for sql in SYNC_TABLES:
        server.run(sql)
    old = "INSERT INTO tidb_cdc.syncpoint_v1 VALUES ('{}', 'acme/copy', '{}', '1', NOW() - INTERVAL 2 HOUR)"
    server.run(old.format(7, 300))
    server.run(old.format(9, 400))
    for cluster in ("7", "8"):
        order = Order(TenantKey(cluster, "acme"), "copy", 0, Fence(1, 1), 100)
        with closing(MySqlSink(target, order, CLOCK, random_id())) as sink:
            sink.open()
            sink.write(Transaction(NOTHING, (SyncMark(500),), Progress(Position(500), 0, order.fence)))
    points = server.run("SELECT ticdc_cluster_id, changefeed, primary_ts FROM tidb_cdc.syncpoint_v1 ORDER BY 1")
    assert points == [("7", "7/acme/copy", "500"), ("8", "8/acme/copy", "500"), ("9", "acme/copy", "400")]


def test_a_load_is_not_ended_by_an_update_that_leaves_out_the_snapshot(server: MariaDb) -> None:
    world = golden_world("everything")
    run = MySqlFeedRun(world, server, document(["shop.k_int"]))
    order = run.holder().shard.order
    with closing(MySqlSink(target_of(server), order, CLOCK, random_id())) as sink:
        sink.open()
        load = Load(world.snapshot_ts, 7, "shop.k_int", b"k")
        sink.write(Transaction(NOTHING, (), Progress(Position(world.snapshot_ts), 0, order.fence, load=load)))
    holder = run.holder()
    with working(holder):
        pass
    assert holder.shard.phase == "failed"
    assert re.search(r"shop\.k_int: .* no longer has snapshot=now, .* update the URI", holder.report().error or "")
    assert progress_of(server)["load"][2] == "shop.k_int"


def verifying(world: World, server: MariaDb, tmp_path: Path, rules: list[str]) -> tuple[Verifications, VerifyFeed]:
    """What compares the tables of a feed with these rules, and the request for it."""
    private, _ = new_pair(b"7" * 32)
    (tmp_path / "secrets.key").write_text(private)
    by = Verifications(
        ("127.0.0.1",),
        SecretKeys(tmp_path / "secrets.key"),
        lambda _: cast(Any, StillView(world)),
        CLOCK,
        world.budget,
        StoreReader(world.objects),
        longest_ms=int(PATIENCE_S * 1000),
    )
    of = world.tenant
    return by, VerifyFeed(
        cluster_id=of.cluster_id,
        tenant_id=of.tenant_id,
        changefeed_id="copy",
        sink_uri=uri_of(server),
        config=document(rules),
        secrets={"password": seal(private_keys(private)[-1].public_key, of, "password", PASSWORD)},
        from_ts=0,
        to_ts=0,
    )


def test_tables_are_compared_with_the_pool_and_what_differs_is_named(server: MariaDb, tmp_path: Path) -> None:
    world = golden_world("everything")
    rules = ["shop.k_*", "shop.orders"]
    run = MySqlFeedRun(world, server, document(rules), start_ts=world.end_ts, options="?snapshot=now", sync_ms=20)
    with working(run.holder()):
        pass
    by, asked = verifying(world, server, tmp_path, rules)
    found = by.verify(asked)
    assert (found.equal, found.of, found.to_ts) == (True, "tables", str(world.end_ts))
    assert len(found.tables) > 15
    assert all(one.events == one.messages for one in found.tables)
    assert sum(one.events for one in found.tables) > 80
    ((changed,), (deleted,)) = server.run("SELECT id FROM shop.orders ORDER BY id LIMIT 2")
    server.run(f"UPDATE shop.orders SET note = 'by hand' WHERE id = {changed}")
    server.run(f"DELETE FROM shop.orders WHERE id = {deleted}")
    server.run("INSERT INTO shop.k_none SELECT * FROM shop.k_none LIMIT 1")
    server.run("DROP TABLE shop.k_date")
    found = by.verify(asked)
    assert not found.equal
    told = sorted((one.what, one.table, one.key.get("id")) for one in found.differences if one.table != "k_date")
    assert told == sorted(
        [
            ("missing", "orders", str(changed)),
            ("missing", "orders", str(deleted)),
            ("repeated", "k_none", None),
            ("unexpected", "orders", str(changed)),
        ]
    )
    (dropped,) = (one for one in found.tables if one.table == "k_date")
    assert (dropped.missing, dropped.messages) == (dropped.events, 0)
    only = by.verify(asked.model_copy(update={"table": "shop.k_int"}))
    assert [(one.table, only.equal) for one in only.tables] == [("k_int", True)]
    with closing(server.connect()) as other, other.cursor() as cursor:
        cursor.execute("LOCK TABLES shop.k_int WRITE")
        with pytest.raises(Unavailable, match="not compared in time"):
            replace(by, longest_ms=1_000).verify(asked.model_copy(update={"table": "shop.k_int"}))

    def ddl(ts: int) -> None:
        ids = f"SELECT feed, generation, {ts}, 0, {ts}, 0, '', '' FROM tistream.progress WHERE slot = 0"
        server.run(f"INSERT IGNORE INTO tistream.ddl {ids}")  # the view is checked for each table

    class Altered(StillView):
        def check_served(self, ts: int) -> None:
            ddl(ts + 1)

    with pytest.raises(Unavailable, match=f"begun the DDL at commit_ts {world.end_ts + 1} meanwhile"):
        replace(by, view=lambda _: cast(Any, Altered(world))).verify(asked)
    with pytest.raises(Unavailable, match=f"the DDL at commit_ts {world.end_ts + 1} is being executed"):
        replace(by, longest_ms=0).verify(asked)
    server.run("UPDATE tistream.progress SET progress = NULL")
    with pytest.raises(Unavailable, match="has written nothing yet"):
        replace(by, longest_ms=0).verify(asked)


def test_windows_are_compared_with_the_pool_and_what_the_feed_has_written_otherwise_is_named(
    server: MariaDb, tmp_path: Path
) -> None:
    world = golden_world("everything")
    rules = ["shop.k_*"]
    run = MySqlFeedRun(world, server, document(rules), "?worker-count=2", slot_rows=2, window_bytes=200)
    with working(run.holder()):
        pass
    by, asked = verifying(world, server, tmp_path, rules)
    found = by.verify(asked)
    assert (found.equal, found.windows > 5) == (True, True)
    number, text = next(one for one in reversed(windows(server)) if json.loads(one[1])[3])
    after_ts, until_ts, late, ((database, table, events, *sums), *others) = json.loads(text)
    other = json.dumps([after_ts, until_ts, late, [[database, table, events + 1, *sums], *others]])
    server.run(f"UPDATE tistream.windows SET `window` = '{other}' WHERE number = {number}")
    altered = by.verify(asked)
    assert (altered.equal, altered.differences) == (False, [])
    ((name, at, written),) = ((one.table, one.to_ts, one.events) for one in altered.window_differences)
    assert (name, at, written) == (table, until_ts, altered.window_differences[0].messages + 1)
    server.run("UPDATE tistream.windows SET version = 2")
    with pytest.raises(InvalidRequest, match="windows have version 2; this program knows 1: upgrade the workers"):
        by.verify(asked)
    server.run("DROP TABLE tistream.windows")  # as an earlier release leaves it
    assert (by.verify(asked).equal, by.verify(asked).windows) == (True, 0)
    with working(run.holder()):
        pass
    assert windows(server) == []


def test_of_the_windows_of_a_feed_the_newest_are_kept(table: MariaDb, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stored_progress, "WINDOWS_KEPT", 10)
    for first in (11, 50):
        with opened(table) as sink:
            for ts in range(first, first + 32):
                sink.write(inserting(ts))
    assert [number for number, _ in windows(table)] == list(range(55, 65))
    other = replace(inserting(90), progress=Progress(Position(90), 0, Fence(2, 1)))
    order = Order(TenantKey("7", "acme"), "copy", 0, Fence(2, 1), 80)
    with closing(MySqlSink(target_of(table), order, CLOCK, random_id())) as sink:
        sink.open()
        sink.write(other)
        assert windows(table)[0][0] == 1, "those of a feed that was created anew"


def test_rows_with_which_a_feed_begins_go_into_empty_tables_only(server: MariaDb) -> None:
    world = golden_world("everything")
    server.run("CREATE DATABASE shop")
    server.run("CREATE TABLE shop.k_int (id BIGINT PRIMARY KEY, other INT)")
    run = MySqlFeedRun(world, server, document(["shop.k_int"]), "?snapshot=now", start_ts=world.end_ts)
    holder = run.holder()
    holder.step()
    assert "without the columns v: add them" in holder.report().error
    server.run("ALTER TABLE shop.k_int ADD COLUMN v TEXT")
    server.run("INSERT INTO shop.k_int (id) VALUES (7)")
    holder = run.holder()
    holder.step()
    assert "has rows in the table already: empty it or drop it, then resume" in holder.report().error
    server.run("DROP TABLE shop.k_int")
    holder = run.holder()
    with working(holder):
        pass
    assert len(server.run("SELECT id FROM shop.k_int")) == rows_written(server) > 0


def test_rows_and_their_progress_are_one_transaction(table: MariaDb) -> None:
    with opened(table) as sink:
        assert sink.write(inserting(11))
        table.run(
            "CREATE TRIGGER tistream.full BEFORE UPDATE ON tistream.progress FOR EACH ROW "
            "IF NOT NEW.progress <=> OLD.progress THEN SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'full'; END IF"
        )
        with pytest.raises(FeedFailed, match="full"):
            sink.write(inserting(12))
    assert (numbers(table), rows_written(table)) == ([11], 11)
    assert [(number, json.loads(text)[1]) for number, text in windows(table)] == [(1, "11")]


@pytest.mark.parametrize(
    ("by_hand", "undone", "reason"),
    [
        ("ALTER TABLE d.t CHANGE a b INT", "ALTER TABLE d.t CHANGE b a INT", "Unknown column 'a'"),
        ("ALTER TABLE d.t MODIFY a TINYINT", "ALTER TABLE d.t MODIFY a INT", "value out of range for a column: 'a'"),
        ("ALTER TABLE d.t ADD b INT NOT NULL", "ALTER TABLE d.t DROP b", "Field 'b' doesn't have a default value"),
        ("RENAME TABLE d.t TO d.other", "RENAME TABLE d.other TO d.t", "Table 'd.t' doesn't exist"),
    ],
)
def test_a_table_that_was_altered_by_hand_is_named_and_goes_on_once_that_is_undone(
    table: MariaDb, by_hand: str, undone: str, reason: str
) -> None:
    with opened(table) as sink:
        sink.write(inserting(11))
        table.run(by_hand)
        with pytest.raises(
            TablesRefused, match=f"table d.t: .*{reason}.*; repair the table there, then resume"
        ) as refused:
            sink.write(inserting(1_000))
        assert refused.value.names == (("d", "t"),)
        assert rows_written(table) == 11
        table.run(undone)
        sink.write(inserting(1_000))
    assert (numbers(table), rows_written(table)) == ([11, 1_000], 1_000)


def test_a_server_without_room_is_tried_again_and_has_each_row_once(table: MariaDb) -> None:
    for error, ts in ((1114, 11), (1021, 12), (3, 13)):  # as InnoDB, and as the server says it
        table.run(
            "CREATE TRIGGER d.full BEFORE INSERT ON d.t FOR EACH ROW "
            f"SIGNAL SQLSTATE 'HY000' SET MYSQL_ERRNO = {error}, MESSAGE_TEXT = 'No space left on device'"
        )
        with opened(table) as sink:
            with pytest.raises(FeedFailed, match="No space left on device") as refused:
                sink.write(inserting(ts))
            assert refused.value.failure.kind == "retry"
        table.run("DROP TRIGGER d.full")
        with opened(table) as sink:
            sink.write(inserting(ts))
    assert (numbers(table), rows_written(table)) == ([11, 12, 13], 13)


def test_loaded_rows_and_their_progress_are_one_transaction(server: MariaDb) -> None:
    server.run("CREATE DATABASE d")
    server.run("CREATE TABLE d.t (a INT PRIMARY KEY)")
    of = version([column("a", flag=3)], pk_is_handle=True)
    changes = [Change(None, {"a": a}, 100, key=str(a).encode()) for a in range(40)]
    rows = NetWindow(net(split(EventWindow((batch(of, changes),), ()), by_unique_index)), 100)
    order = Order(TenantKey("7", "acme"), "copy", 0, Fence(1, 1), 100)
    sink = MySqlSink(target_of(server, "?worker-count=4"), order, CLOCK, random_id(), slot_rows=1)
    sink.open()
    begun = Progress(Position(100), 0, Fence(1, 1), load=Load(100))
    sink.write(Transaction(NetWindow((), 100), (), begun))
    server.run(
        "CREATE TRIGGER tistream.full BEFORE UPDATE ON tistream.progress FOR EACH ROW "
        "IF NOT NEW.progress <=> OLD.progress THEN SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'full'; END IF"
    )
    with pytest.raises(FeedFailed, match="full"):
        sink.write(Transaction(rows, (), replace(begun, rows=40, load=Load(100, 7, "d.t", b"39"))))
    sink.close()
    assert numbers(server) == []


def test_a_holder_that_was_replaced_writes_nothing(table: MariaDb) -> None:
    with opened(table) as old:
        old.write(inserting(11))
        with opened(table, 2) as new:
            with pytest.raises(FeedFailed) as refused:
                old.write(inserting(12))
            assert refused.value.failure.kind == "fenced"
            new.write(inserting(13, 2))
    assert numbers(table) == [11, 13]
    with pytest.raises(FeedFailed) as refused, opened(table):
        pass
    assert refused.value.failure.kind == "fenced"


def test_of_two_holders_with_one_epoch_only_the_one_that_came_last_writes(table: MariaDb) -> None:
    """As after a restore of the meta database, which then gives an epoch twice."""
    with opened(table) as of_earlier_release:
        of_earlier_release.write(inserting(11))
    table.run("ALTER TABLE tistream.progress DROP COLUMN holder")
    with table.connect() as reader, reader.cursor() as cursor:
        cursor.execute("SELECT * FROM tistream.progress")  # until it ends, no other connection may add the column
        with pytest.raises(FeedFailed, match="1205") as refused, opened(table):
            pass
        assert refused.value.failure.kind == "retry"
        table.run("UPDATE tistream.progress SET epoch = epoch")  # other feeds go on
    with opened(table) as one, opened(table) as other:
        with pytest.raises(FeedFailed, match="another holder has taken the feed's progress") as refused:
            one.write(inserting(12))
        assert refused.value.failure.kind == "fenced"
        other.write(inserting(12))
        with opened(table) as again:  # the one that was late connects again
            again.write(inserting(13))
            with pytest.raises(FeedFailed, match="another holder"):
                other.write(inserting(13))
    assert (numbers(table), rows_written(table)) == ([11, 12, 13], 13)


def test_shards_from_before_a_cut_that_the_meta_server_has_forgotten_write_nothing(server: MariaDb) -> None:
    cut = Move(revision=2, ts=150, cut=True)
    for shard in range(3):
        _written(server, applied(2, cut, shard=shard, fence=Fence(1, 5), shards=3))
    for order, reason in (
        (applied(1, shard=0, fence=Fence(1, 6), shards=2), "revision 2 of the feed has written here"),
        (applied(2, shard=1, fence=Fence(1, 6), shards=2), "3 shards of the feed have written here"),
    ):
        with pytest.raises(FeedFailed, match=reason):
            _written(server, order)
    _written(server, applied(3, Move(revision=3, ts=120), shard=1, fence=Fence(1, 6), shards=2))


def _written(server: MariaDb, order: Order) -> None:
    """Open the sink of a shard, and write what a holder writes first."""
    sink, shard = MySqlSink(target_of(server), order, CLOCK, random_id()), Shard(order, Random(1))
    try:
        found, ends = sink.open()
        sink.write(shard.opened(found, ends, sink.where))
    finally:
        sink.close()


def test_a_ddl_that_was_executed_before_a_crash_is_not_executed_again(server: MariaDb) -> None:
    mark = DdlMark(event("alter table a add index (v)", "add index"), (), (("shop", "a"),))
    with ddls(server) as runner:
        server.run("CREATE DATABASE shop")
        server.run("CREATE TABLE shop.a (id INT PRIMARY KEY, v INT)")
        runner.run(mark)
        server.run("UPDATE tistream.ddl SET done = 0")  # as a worker leaves it that is killed after the statement
        runner.run(mark)
        assert len(server.run("SHOW INDEX FROM shop.a")) == 2
        server.run("ALTER TABLE shop.a DROP INDEX v")
        server.run("UPDATE tistream.ddl SET done = 0")  # and before it
        runner.run(mark)
        assert len(server.run("SHOW INDEX FROM shop.a")) == 2


# Attack: two tables of one definition exchange their names, and the worker is killed after the statement
@pytest.mark.parametrize("step", [0, 1])
def test_tables_that_exchange_their_names_do_so_once(server: MariaDb, step: int) -> None:
    one, other = (
        [version([column("id")], name=name, database="shop", table_id=number) for name in names]
        for number, names in ((1, "ab"), (2, "ba"))
    )
    changes = TableChange(*one), TableChange(*other)
    text = "rename table a to t, b to a, t to b"
    both = (("shop", "a"), ("shop", "b"))
    mark = DdlMark(DdlEvent(1 << 58, 1, 7, "shop", "a", text, "rename tables", 1, both), changes, both)
    with ddls(server) as runner:
        server.run("CREATE DATABASE shop")
        for number, name in enumerate("ab"):
            server.run(f"CREATE TABLE shop.{name} (id INT PRIMARY KEY)")
            server.run(f"INSERT INTO shop.{name} VALUES ({number})")
        for number, sql in enumerate(ddl_statements(mark, Dialect.MARIADB)[: step + 1]):
            runner._step(mark, number, sql)
        server.run(f"UPDATE tistream.ddl SET done = 0 WHERE step = {step}")
        runner.run(mark)
        assert server.run("SELECT a.id, b.id FROM shop.a, shop.b") in ([(1, 0)], ((1, 0),))


def test_a_ddl_names_the_session_that_it_waits_for_and_is_executed_once_that_has_ended(server: MariaDb) -> None:
    mark = DdlMark(event("alter table a add index (v)", "add index"), (), (("shop", "a"),))
    server.run("CREATE DATABASE shop")
    for name in "ab":
        server.run(f"CREATE TABLE shop.{name} (id INT PRIMARY KEY, v INT)")
    with ddls(server) as of_feed, closing(server.connect()) as user, user.cursor() as cursor:
        runner = replace(of_feed, lock_wait_s=1)
        cursor.execute("SELECT * FROM shop.a")
        with pytest.raises(FeedFailed) as refused:
            runner.run(mark)
        failure = refused.value.failure
        assert (failure.kind, failure.stage, failure.object) == ("retry", "ddl", "shop.a")
        session = rf"one of those with an open transaction: {user.thread_id()} \(root@\S+, \d+ s\); the feed goes on"
        assert re.search(
            f"DDL job 7 at commit_ts .* waits for a session that uses table shop.a, .*{session}", failure.reason
        )
        server.run("INSERT INTO shop.a VALUES (1, 1)")  # others do not wait meanwhile
        assert len(server.run("SHOW INDEX FROM shop.a")) == 1
        user.rollback()
        cursor.execute("LOCK TABLES shop.a WRITE")
        with pytest.raises(FeedFailed, match=r"job 7 .* waits for a session that uses table shop\.a"):
            runner.run(mark)
        cursor.execute("UNLOCK TABLES")
        replace(of_feed, lock_wait_s=int(PATIENCE_S)).run(mark)
        assert len(server.run("SHOW INDEX FROM shop.a")) == 2


def test_a_ddl_that_changes_a_large_table_waits_as_long_as_the_server_says(
    server: MariaDb, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.run("CREATE DATABASE shop")
    server.run("CREATE TABLE shop.a (id INT PRIMARY KEY, v INT)")
    ((default,),) = server.run("SELECT @@GLOBAL.lock_wait_timeout")

    def bound_of(runner: DdlRunner, job_id: int, query: str, action: str) -> int:
        runner.run(DdlMark(replace(event(query, action), job_id=job_id), (), (("shop", "a"),)))
        return int(runner.other.target().rows("SELECT @@SESSION.lock_wait_timeout")[0][0])

    with ddls(server) as of_feed:
        runner = replace(of_feed, lock_wait_s=7)
        assert bound_of(runner, 7, "alter table a add index (v)", "add index") == 7
        monkeypatch.setattr(ddl_runner, "LARGE_BYTES", 0)
        assert bound_of(runner, 8, "alter table a modify v bigint", "modify column") == default
        assert bound_of(runner, 9, "alter table a drop index v", "drop index") == 7


def test_a_ddl_that_changes_a_large_table_does_not_begin_while_a_session_uses_it(
    server: MariaDb, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ddl_runner, "LARGE_BYTES", 0)
    modified = event("alter table a modify v bigint", "modify column")
    # One of its tables is not there.
    mark = DdlMark(replace(modified, involved=(("shop", "none"), ("shop", "a"))), (), (("shop", "a"),))
    server.run("CREATE DATABASE shop")
    server.run("CREATE TABLE shop.a (id INT PRIMARY KEY, v INT)")
    with ddls(server) as of_feed, closing(server.connect()) as user, user.cursor() as cursor:
        cursor.execute("SELECT * FROM shop.a")
        with pytest.raises(FeedFailed, match=r"job 7 .* waits for a session that uses table shop\.a"):
            replace(of_feed, lock_wait_s=1).run(mark)
        assert server.run("SELECT * FROM tistream.ddl") == []
        server.run("INSERT INTO shop.a VALUES (1, 1)")  # others do not wait meanwhile
        user.rollback()
        replace(of_feed, lock_wait_s=int(PATIENCE_S)).run(mark)
        assert "bigint" in server.run("SHOW CREATE TABLE shop.a")[0][1]
        # The feed's session keeps no lock: with one, it could read the locked tables only.
        assert of_feed.other.target().rows("SELECT done FROM tistream.ddl") == [(1,)]


def test_a_large_ddl_does_not_begin_behind_a_session_that_came_after_the_check(
    server: MariaDb, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ddl_runner, "LARGE_BYTES", 0)
    mark = DdlMark(event("alter table a modify v bigint", "modify column"), (), (("shop", "a"),))
    server.run("CREATE DATABASE shop")
    server.run("CREATE TABLE shop.a (id INT PRIMARY KEY, v INT)")
    server.run(f"REVOKE LOCK TABLES ON *.* FROM {USER}@127.0.0.1")  # so the check lets it pass
    with ddls(server) as of_feed, closing(server.connect()) as user, user.cursor() as cursor:
        cursor.execute("INSERT INTO shop.a VALUES (2, 2)")  # a lock that the DDL needs before it copies rows
        told: list[HeldBy | None] = []
        with pytest.raises(FeedFailed, match=r"job 7 .* waits for a session that uses table shop\.a") as refused:
            replace(of_feed, lock_wait_s=2, tell=told.append).run(mark)
        assert (refused.value.failure.kind, refused.value.failure.cause) == ("retry", "locked")
        assert f": {user.thread_id()} (root@" in refused.value.failure.reason
        assert {one.object for one in told if one is not None} == {"shop.a"}
        assert told[-1] is None
        server.run("INSERT INTO shop.a VALUES (1, 1)")  # others do not wait meanwhile
        assert "bigint" not in server.run("SHOW CREATE TABLE shop.a")[0][1]
        user.rollback()
        replace(of_feed, lock_wait_s=int(PATIENCE_S)).run(mark)
        assert "bigint" in server.run("SHOW CREATE TABLE shop.a")[0][1]


def test_a_ddl_that_waits_says_for_which_session_while_it_waits(server: MariaDb) -> None:
    world = golden_world("everything")
    events = world.source.ddl_events(Scope(world.tenant), Window(world.snapshot_ts, world.end_ts)).events
    first = next(one for one in events if one.table == "ddl1" and one.action == "add column")
    run = MySqlFeedRun(world, server, document(["shop.ddl1"]), "?snapshot=now", start_ts=first.commit_ts - 1)
    holder = run.holder()

    def loaded() -> bool:
        holder.step()
        return holder.shard.acked is not None and holder.shard.acked.load is None

    eventually(loaded)
    with closing(server.connect()) as user, user.cursor() as cursor, working(holder):
        cursor.execute("SELECT * FROM shop.ddl1")
        shown = f": {user.thread_id()} (root@"
        eventually(lambda: any(shown in one.reason for one in holder.report().held_by))
        assert holder.report().phase == "running"
        user.rollback()
    assert (holder.shard.phase, holder.report().held_by) == ("finished", [])


def test_a_ddl_that_changes_a_large_table_is_executed_without_the_right_to_lock_it(
    server: MariaDb, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ddl_runner, "LARGE_BYTES", 0)
    server.run("CREATE DATABASE shop")
    server.run("CREATE TABLE shop.a (id INT PRIMARY KEY, v INT)")
    server.run(f"REVOKE LOCK TABLES ON *.* FROM {USER}@127.0.0.1")
    with ddls(server) as runner:
        with pytest.raises(TargetFailed, match="denied"):
            runner.other.target().execute("LOCK TABLES shop.a WRITE")
        runner.run(DdlMark(event("alter table a modify v bigint", "modify column"), (), (("shop", "a"),)))
    assert "bigint" in server.run("SHOW CREATE TABLE shop.a")[0][1]


def test_a_feed_whose_ddl_waits_for_a_session_says_so_and_goes_on_by_itself(server: MariaDb) -> None:
    world = golden_world("everything")
    events = world.source.ddl_events(Scope(world.tenant), Window(world.snapshot_ts, world.end_ts)).events
    first = next(one for one in events if one.table == "ddl1" and one.action == "add column")
    rules = document(["shop.ddl1", "shop.modpk"])  # the second one's rows come later
    run = MySqlFeedRun(world, server, rules, "?snapshot=now", start_ts=first.commit_ts - 1, lock_wait_s=1)
    holder = run.holder()

    def loaded() -> bool:
        holder.step()
        return holder.shard.acked is not None and holder.shard.acked.load is None

    def stands() -> bool:
        holder.step()
        return holder.report().phase != "running"

    with closing(server.connect()) as user, user.cursor() as cursor:
        eventually(loaded)
        cursor.execute("SELECT * FROM shop.ddl1")
        eventually(stands)
        report = holder.report()
        (held,) = report.held_by
        assert (report.phase, held.stage, held.object) == ("retrying", "ddl", "shop.ddl1")
        assert f"DDL job {first.job_id}" in held.reason
        assert f": {user.thread_id()} (root@localhost" in held.reason
    with working(holder):
        pass
    assert holder.shard.phase == "finished"
    assert differing(world, server, ["shop.modpk"], 1) == []


def test_a_server_that_knows_who_holds_a_lock_of_a_table_tells_it(tmp_path: Path) -> None:
    names = ("--performance-schema", "--performance-schema-instrument=wait/lock/metadata/sql/mdl=ON")
    with mariadb_running(tmp_path / "named", names) as server:
        emptied(server)
        server.run("CREATE DATABASE shop")
        for name in "ab":
            server.run(f"CREATE TABLE shop.{name} (id INT PRIMARY KEY, v INT)")
        with opened(server), closing(server.connect()) as user, closing(server.connect()) as other:
            for connection, name in ((user, "b"), (other, "a")):
                connection.cursor().execute(f"SELECT * FROM shop.{name}")
            with connected(target_of(server)) as asking:
                found = lock_holders(asking, [("shop", "c"), ("shop", "b")], [])
                assert (found.table, found.certain) == (("shop", "b"), True)
                assert [one.id for one in found.sessions] == [user.thread_id()]
                assert re.fullmatch(
                    rf"session {user.thread_id()} \(root@.*, \d+ s\), which uses table shop.b", str(found)
                )
                whole = lock_holders(asking, [("shop", "")], [user.thread_id()])
                assert [one.id for one in whole.sessions] == [other.thread_id()]


def test_a_ddl_that_the_server_refuses_names_it(server: MariaDb) -> None:
    server.run("CREATE DATABASE shop")
    mark = DdlMark(event("alter table a add index (v)", "add index"), (), (("shop", "a"),))
    with ddls(server) as runner, pytest.raises(TablesRefused, match=r"DDL job 7 .*add index.*doesn't exist") as refused:
        runner.run(mark)
    assert refused.value.names == (("shop", "a"),)


def test_values_of_every_type_are_what_select_shows(server: MariaDb) -> None:
    windows = golden_windows("everything")
    batches = [one for window in windows for one in window.rows if one.version.name == ("types", "everything")]
    of = batches[0].version
    info = of.stored.info()
    kept = [place for place, one in enumerate(of.table.visible_columns) if one.tp != VECTOR]
    info["cols"] = [one for one in info["cols"] if one["type"]["Tp"] != VECTOR]
    server.run("CREATE DATABASE types")
    server.run(table_statements(info, of.name, Dialect.MARIADB).create)
    with connected(target_of(server)) as target:
        for window in windows:
            rows = tuple(
                replace(
                    one,
                    columns=tuple(one.columns[at] for at in kept),
                    new=[one.new[at] for at in kept],
                    old=[one.old[at] for at in kept],
                )
                for one in window.rows
                if one.version.name == of.name
            )
            for one in statements(net(EventWindow(rows, ())), Dialect.MARIADB, safe=False):
                target.execute(one.sql)
    columns = tuple(of.table.visible_columns[at] for at in kept)
    assert there(server, of, columns) == wanted("everything", of, columns)


def test_a_table_whose_row_is_refused_stops_by_name_and_goes_on_after_a_repair(server: MariaDb) -> None:
    world = golden_world("everything")
    run = MySqlFeedRun(world, server, document(FEW), "?worker-count=3")
    first = run.holder()
    with working(first):
        eventually(lambda: exists(server, "big"))
        with first_slot_held(server):
            server.run("INSERT IGNORE INTO shop.big (id, pad) SELECT 4700, 'of others'")
        eventually(lambda: first.shard.acked is not None and first.shard.acked.stopped)
        eventually(lambda: first.shard.acked is not None and first.shard.acked.at.commit_ts >= world.end_ts)
        first.stop()
    (stopped,) = first.report().stopped
    assert (stopped.database, stopped.table) == ("shop", "big")
    assert "duplicate entry for a unique key: 'PRIMARY'" in stopped.reason
    assert [(one.stage, one.object) for one in first.report().held_by] == [("sink", "shop.big")]
    server.run("DELETE FROM shop.big WHERE pad = 'of others'")
    second = run.holder()
    with working(second):
        pass
    assert second.shard.phase == "finished"
    assert differing(world, server, FEW) == []


def test_a_table_whose_ddl_one_shard_is_refused_stops_in_the_shard_that_has_its_rows(server: MariaDb) -> None:
    world = golden_world("everything")
    rules = ["shop.modpk", "shop.k_*", "shop.items"]
    named = {one.name[1]: one for one in tables_of(world) if one.name[0] == "shop"}
    taken = next(name for name in sorted(named) if name.startswith("k_") and TableShard(1, 2).has(named[name]))
    server.run("CREATE DATABASE shop")
    server.run(f"CREATE TABLE shop.{taken} (by_hand INT)")
    run = MySqlFeedRun(world, server, document(rules), "?worker-count=2", shards=2)
    holders = run.holder(0), run.holder(1)
    with working(holders[0]), working(holders[1]):
        for holder in holders:
            eventually(lambda shard=holder.shard: shard.acked is not None and shard.acked.at.commit_ts >= world.end_ts)
            holder.stop()
    reports = [holder.report() for holder in holders]
    for report in reports:
        (reason,) = {one.reason for one in report.stopped if one.table == taken}
        assert "already exists" in reason
    stopped = {one.table for report in reports for one in report.stopped}
    assert set(differing(world, server, [*rules, f"!shop.{taken}"])) <= stopped, "the others have gone on"
    assert stopped != {name for name in named if TableRules.parse(rules, case_sensitive=True).matches("shop", name)}
    assert server.run(f"SELECT * FROM shop.{taken}") == []
    server.run(f"DROP TABLE shop.{taken}")
    server.run(table_statements(named[taken].stored.info(), named[taken].name, Dialect.MARIADB).create)
    run.revision = 1
    again = run.holder(0), run.holder(1)
    with working(again[0]), working(again[1]):
        pass
    assert differing(world, server, rules, 20) == []


def test_a_table_that_is_left_behind_for_a_ddl_that_the_server_refuses_holds_no_other_up(server: MariaDb) -> None:
    world = golden_world("everything")
    rules = ["shop.k_*", "shop.items"]
    server.run("CREATE DATABASE shop")
    server.run("CREATE TABLE shop.k_ci (by_hand INT)")
    run = MySqlFeedRun(world, server, {**document(rules), "tistream": {"on-table-error": "leave-table"}})
    holder = run.holder()
    with working(holder):
        pass
    (stopped,) = holder.report().stopped
    assert (holder.shard.phase, stopped.table, stopped.left) == ("finished", "k_ci", True)
    assert "already exists" in stopped.reason
    assert differing(world, server, [*rules, "!shop.k_ci"]) == []
    assert server.run("SELECT * FROM shop.k_ci") == []


def test_a_ddl_that_the_user_skips_is_a_dead_letter(server: MariaDb) -> None:
    world = golden_world("everything")
    window = Window(world.snapshot_ts, world.end_ts)
    events = world.source.ddl_events(Scope(world.tenant), window).events
    named = next(one for one in events if one.action == "modify table comment")
    skip = Skip(commit_ts=named.commit_ts, table="shop.ddl1", ddl_job=named.job_id, reason="not wanted")
    run = MySqlFeedRun(world, server, document(["shop.ddl1", "shop.ddl2", "other.*"]), skips=[skip])
    holder = run.holder()
    with working(holder):
        pass
    assert (holder.shard.phase, holder.report().skipped) == ("finished", 1)
    ((feed, table, letter),) = server.run("SELECT feed, `table`, letter FROM tistream.dead_letters")
    assert (feed, table, json.loads(letter)["reason"]) == (f"{world.tenant}/copy/0", "shop.ddl1", "not wanted")
    jobs = [job for (job,) in server.run("SELECT job_id FROM tistream.ddl")]
    assert named.job_id not in jobs
    assert len(jobs) > 10


def test_a_feed_is_checked_before_it_is_created(table: MariaDb, tmp_path: Path) -> None:
    private, _ = new_pair(b"7" * 32)
    key_file = tmp_path / "secrets.key"
    key_file.write_text(private)
    tables = [version([column("a")]), version([column("a", flag=3)], name="keyed", pk_is_handle=True)]
    checks = FeedChecks(Allowed(["127.0.0.1"]), SecretKeys(key_file), lambda _: tables)

    def check(password: str) -> CheckChangefeed:
        uri = f"mysql://feed:{password}@127.0.0.1:{table.port}/"
        wanted = CreateChangefeed(changefeed_id="copy", sink_uri=uri)
        return CheckChangefeed(cluster_id="7", tenant_id="acme", wanted=wanted)

    plan = checks.plan(check(PASSWORD))
    assert plan.sink_uri == f"mysql://feed:${{secret:copy.password}}@127.0.0.1:{table.port}/"
    assert ([one.table for one in plan.tables], plan.topics, list(plan.secrets)) == (["keyed"], {}, ["copy.password"])
    assert "are not sent: d.t; add a key" in plan.warnings[0]
    with pytest.raises(InvalidRequest, match="put the secret of the password again") as refused:
        checks.plan(check("not-the-password"))
    assert "not-the-password" not in str(refused.value)


def test_an_enum_that_is_no_member_is_written_and_nothing_else_is_changed_with_it(server: MariaDb) -> None:
    server.run("CREATE DATABASE d")
    server.run("CREATE TABLE d.t (a INT PRIMARY KEY, e ENUM('x', 'y'), v VARCHAR(2))")
    columns = [column("a", flag=3), column("e", ENUM, Elems=["x", "y"]), column("v", VARCHAR)]
    of = version(columns, pk_is_handle=True)

    def written(*rows: tuple[int, str | None, str]) -> Transaction:
        changes = [Change(None, {"a": a, "e": e, "v": v}, 10 + a, key=str(a).encode()) for a, e, v in rows]
        window = split(EventWindow((batch(of, changes),), ()), by_unique_index)
        return Transaction(NetWindow(net(window), 99), (), Progress(Position(99), 0, Fence(1, 1)))

    with opened(server) as sink:
        sink.write(written((1, "", "a"), (2, "y", "b"), (3, None, "c")))
        shown = server.run("SELECT a, e, e + 0, v FROM d.t ORDER BY a")
        assert shown == [(1, "", 0, "a"), (2, "y", 2, "b"), (3, None, None, "c")]
        with pytest.raises(TablesRefused, match="has 2 values that the server would change"):
            sink.write(written((4, "", "longer")))
        with pytest.raises(TablesRefused, match=r"table d\.t: .*value too long.*; repair the table there, then resume"):
            sink.write(written((5, "x", "longer")))
    assert len(server.run("SELECT a FROM d.t")) == 3


@pytest.mark.parametrize("names", [("e",), ("s",), ("b",), ("e", "s", "b")])
def test_rows_whose_keys_are_members_and_bits_are_found_again(server: MariaDb, names: tuple[str, ...]) -> None:
    """Members are in another order than their names, one is called like the number of another, and 0 is no member."""
    values = {"e": ["b", "a", "10", "1", ""], "s": ["", "b", "a", "b,a"], "b": [0, 1, 10, (1 << 64) - 1]}
    server.run("CREATE DATABASE d")
    types = {"e": "ENUM('b', 'a', '10', '1')", "s": "SET('b', 'a')", "b": "BIT(64)"}
    declared = ", ".join(f"{name} {types[name]}" for name in names)
    server.run(f"CREATE TABLE d.t ({declared}, v INT, PRIMARY KEY ({', '.join(names)}))")
    of_type = {
        "e": column("e", ENUM, flag=3, Elems=["b", "a", "10", "1"]),
        "s": column("s", SET, flag=3, Elems=["b", "a"]),
        "b": column("b", BIT, flag=3, Flen=64),
    }
    of = version([*(of_type[name] for name in names), column("v")], [Key("PRIMARY", names, primary=True)])
    keys = [dict(zip(names, one, strict=True)) for one in itertools.product(*(values[name] for name in names))]

    def written(commit_ts: int, changes: list[tuple[dict[str, Any] | None, dict[str, Any] | None]]) -> Transaction:
        found = [Change(old, new, commit_ts, key=repr(old or new).encode()) for old, new in changes]
        window = split(EventWindow((batch(of, found),), ()), by_unique_index)
        return Transaction(NetWindow(net(window), commit_ts), (), Progress(Position(commit_ts), 0, Fence(1, 1)))

    def there() -> list[tuple[Any, ...]]:
        shown = ", ".join(f"{name} + 0" if name == "b" else name for name in names)
        return sorted(server.run(f"SELECT {shown}, v FROM d.t"))

    with opened(server) as sink:
        sink.write(written(11, [(None, {**key, "v": 1}) for key in keys]))
        assert there() == sorted((*key.values(), 1) for key in keys)
        sink.write(written(12, [({**key, "v": 1}, {**key, "v": 2}) for key in keys[::3]]))
        sink.write(written(13, [({**key, "v": 1}, None) for key in keys[1::3]]))
    assert there() == sorted([(*key.values(), 2) for key in keys[::3]] + [(*key.values(), 1) for key in keys[2::3]])


def test_a_server_is_known_by_its_certificate_and_knows_the_feed_by_its_own(server: MariaDb, tmp_path: Path) -> None:
    assert server.authority is not None
    signed = server.authority.sign("feed")
    server.run("CREATE USER IF NOT EXISTS signed@127.0.0.1 IDENTIFIED BY 'signed-password' REQUIRE X509")
    server.run("GRANT ALL ON *.* TO signed@127.0.0.1")
    pem = {"ca": server.authority.file, "cert": signed.cert_file, "key": signed.key_file}
    secured = replace(
        target_of(server),
        user="signed",
        password="signed-password",
        tls=True,
        **{name: file.read_text() for name, file in pem.items()},
    )
    with connected(secured) as target:
        assert target.rows("SHOW STATUS LIKE 'Ssl_cipher'")[0][1]
    for other, text in (
        (replace(secured, ca=Authority(tmp_path, "other").file.read_text()), "give the certificate of its authority"),
        (replace(secured, cert=None, key=None), "put the secret of the password again"),
        (replace(secured, tls=False, ca=None, cert=None, key=None), "put the secret of the password again"),
    ):
        with pytest.raises(FeedFailed, match=text) as refused:
            connected(other)
        assert refused.value.failure.refused


def test_a_wrong_password_is_named_and_not_shown(server: MariaDb) -> None:
    with pytest.raises(FeedFailed, match="put the secret of the password again") as refused:
        connected(replace(target_of(server), password="not-the-password"))
    assert refused.value.failure.refused
    assert "not-the-password" not in str(refused.value)
    assert PASSWORD not in str(refused.value)
