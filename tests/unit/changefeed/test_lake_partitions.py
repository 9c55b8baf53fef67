"""DDLs that move the rows of partitions without row events come to the tables of a feed into Iceberg: the rows that
come or go are read from the pool."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from test_lake_sink import ID, KEY, START, TARGET, VALUE, Killed, Steady, opened_as

from support import feed_tables
from support.effort import cases
from support.feed_tables import Change
from tistream.model.ts import Window
from tistream.schema.visible import TableVersion
from tistream_changefeed.core.failure import failed
from tistream_changefeed.core.row_events import RowEvents
from tistream_changefeed.protocols.table_change import TableChange
from tistream_changefeed.rows.split import never, split
from tistream_changefeed.rows.window import EventWindow
from tistream_changefeed.sinks.iceberg.mirrored.moved_partitions import MovedIds, moved_ids
from tistream_changefeed.table_errors.tables_refused import TablesRefused
from tistream_client.lake.now import rows_now

Rows = dict[int, dict[int, int]]  # by physical id and id


def parted(*ids: int, name: str = "t", table_id: int = 100) -> TableVersion:
    """A version of a table with these partitions; none: it is not partitioned."""
    return feed_tables.version([ID, VALUE], KEY, name=name, table_id=table_id, partitions=ids)


def plain(table_id: int) -> TableVersion:
    return feed_tables.version([ID, VALUE], KEY, name="other", table_id=table_id)


def test_the_ids_that_a_ddl_moves_with_their_rows() -> None:
    old, new = parted(1, 2, 3), parted(2, 3, 4)
    for action in ("drop partition", "exchange partition", "rollback of truncate partition"):
        assert moved_ids(action, old, new) == MovedIds([1], [4], whole=False)
    assert moved_ids("truncate partition", old, new) == MovedIds([1], [], whole=False)
    assert moved_ids("exchange partition", plain(7), plain(1)) == MovedIds([7], [1], whole=True)
    assert moved_ids("drop partition", old, old) is None
    assert moved_ids("drop partition", None, new) is None
    for action in ("alter table reorganize partition", "add partition", "truncate table", "alter table partition by"):
        assert moved_ids(action, old, new) is None


@dataclass
class Parts:
    """A feed over two tables, of which one is partitioned. `there`: the rows of the pool."""

    feed: Steady
    there: Rows = field(default_factory=dict)
    asked: list[tuple[str, tuple[int, ...], bool]] = field(default_factory=list)

    def put(self, version: TableVersion, physical_id: int, *numbers: int) -> None:
        """A transaction that inserts rows into a partition; those with a negative number are deleted."""
        feed, rows = self.feed, self.there.setdefault(physical_id, {})
        feed.ts += 1
        changes = []
        for number in numbers:
            key = abs(number)
            old = {"id": key, "value": rows[key]} if key in rows else None
            new = {"id": key, "value": feed.ts} if number > 0 else None
            rows.pop(key, None)
            if new is not None:
                rows[key] = feed.ts
            changes.append(Change(old, new, feed.ts, feed.ts - 1, f"{physical_id}/{key}".encode()))
        feed.changes(version, changes)

    def reread(self) -> None:
        def rows_of(
            version: TableVersion, window: Window, ids: Collection[int] | None = None, *, gone: bool = False
        ) -> Iterator[RowEvents]:
            assert window == Window(START, self.feed.ts)
            assert ids is not None
            self.asked.append((version.name[1], tuple(ids), gone))
            for physical_id in ids:
                for number, value in self.there.get(physical_id, {}).items():
                    key = f"{physical_id}/{number}".encode()
                    one = Change(None, {"id": number, "value": value}, self.feed.ts, 0, key)
                    yield RowEvents(split(EventWindow((feed_tables.batch(version, [one]),), ()), never))

        self.feed.sink.reads_again(rows_of)

    def ddl(self, *ddl: Any) -> None:
        """Apply a DDL; if the worker dies in it, the next one does."""
        feed, at = self.feed, self.feed.ts
        self.reread()
        try:
            feed.ddl(*ddl)
        except Killed:
            feed.life.interrupt = lambda: None  # type: ignore[method-assign]
            feed.ts = at
            feed.shard, feed.sink = opened_as(feed.life, feed.target)
            self.reread()
            feed.ddl(*ddl)

    def check(self, *versions: TableVersion) -> None:
        """Each table has the rows of its physical ids."""
        catalog = self.feed.life.catalog
        for version in versions:
            wanted = {key: value for one in version.head.physical_ids for key, value in self.there.get(one, {}).items()}
            name = f"d.{version.name[1]}"
            table = catalog.load_table(name)
            delta = catalog.load_table(f"{name}_delta") if table.properties.get("tistream.delta") else None
            rows = self.feed.life.rows(name) if delta is None else rows_now(table, delta).to_pylist()
            assert {row["id"]: row["value"] for row in rows} == wanted
            assert len(rows) == len(wanted)


@pytest.mark.parametrize("share", [0, 40])
@pytest.mark.parametrize("last", [None, *cases((1, 3, 5), (0, 2, 4, 6, 7, 8, 10, 12))])
def test_rows_of_partitions_come_and_go_though_the_worker_is_killed(
    tmp_path: Path, share: int, last: int | None
) -> None:
    """The worker is killed before its step `last` of the EXCHANGE."""
    parts = Parts(Steady(tmp_path, replace(TARGET, shapes=("table",), delta_share=share, file_bytes=64)))
    first, other, exchanged, swapped = parted(1, 2, 3), plain(7), parted(7, 2, 3), plain(1)
    parts.put(first, 1, 1, 11, 21)
    parts.put(first, 2, 2, 12, 22)
    parts.put(first, 3, 3, 13, 23)
    parts.put(first, 1, -11, 31)
    parts.put(other, 7, 1, 41)
    steps = iter(range(1_000))

    def dying() -> None:
        if next(steps) == last:
            raise Killed

    parts.feed.life.interrupt = dying  # type: ignore[method-assign]
    parts.ddl("exchange partition", TableChange(other, swapped), TableChange(first, exchanged))
    parts.feed.life.interrupt = lambda: None  # type: ignore[method-assign]
    parts.check(exchanged, swapped)
    parts.put(exchanged, 7, 1, 51)
    parts.put(swapped, 1, -1)
    parts.check(exchanged, swapped)
    parts.asked.clear()
    parts.ddl("truncate partition", TableChange(exchanged, truncated := parted(7, 8, 3)))
    assert parts.asked == [("t", (2,), True)]
    parts.check(truncated, swapped)
    parts.put(truncated, 8, 2)
    parts.ddl("drop partition", TableChange(truncated, dropped := parted(8, 3)))
    parts.check(dropped)
    parts.ddl("rollback of drop partition", TableChange(dropped, truncated))
    parts.check(truncated)
    parts.ddl("alter table reorganize partition", TableChange(truncated, parted(9, 10)))
    parts.there[9] = {**parts.there[7], **parts.there[8], **parts.there[3]}
    parts.check(parted(9, 10))
    parts.ddl("truncate partition", TableChange(parted(9, 10), empty := parted(11, 12)))
    parts.check(empty)


def test_a_table_that_gets_all_its_rows_by_an_exchange_has_them(tmp_path: Path) -> None:
    """The feed has no Iceberg table of it yet, and its rows are older than that table."""
    parts = Parts(Steady(tmp_path, replace(TARGET, shapes=("changes", "table"))))
    other = plain(7)
    parts.put(other, 7, 1, 2)
    parts.ddl("exchange partition", TableChange(other, plain(1)), TableChange(parted(1), exchanged := parted(7)))
    parts.check(exchanged, plain(1))
    properties = parts.feed.life.catalog.load_table("d.t").properties
    assert properties["tistream.since_ts"] == str(START), "verify compares what is older too"
    assert parts.feed.ids("d.other__changes") == [1, 2]


def test_a_table_stops_alone_if_its_rows_cannot_be_read(tmp_path: Path) -> None:
    parts = Parts(Steady(tmp_path, replace(TARGET, shapes=("table",))))
    feed, other = parts.feed, plain(7)
    parts.put(parted(1, 2), 1, 1)
    parts.put(parted(1, 2), 2, 2)

    def refusing(*_: Any, **__: Any) -> Iterator[RowEvents]:
        raise failed("pool", "d.t", "not all of its rows have been backfilled: run `tistream backfill run`")

    feed.sink.reads_again(refusing)
    for action in ("drop partition", "recover table"):
        with pytest.raises(TablesRefused, match=r"d\.t.*(backfilled|rows come back without events)") as found:
            feed.ddl(action, TableChange(parted(1, 2), parted(2)))
        assert found.value.names == (("d", "t"),)
        feed.shard.roll_back()
        feed.ts = feed.shard.at.commit_ts
        parts.put(other, 7, feed.ts)
    parts.ddl("drop partition", TableChange(parted(1, 2), parted(2)))
    parts.check(parted(2), other)
