"""Which DDLs reach the tables of a feed into Iceberg, and that its progress is stored though no row comes."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

import numpy as np
import pytest

from support.feed_lake import LakeRun
from support.feed_run import StillView
from support.feed_tables import Change, Key, batch, column, version
from support.pull_world import golden_world
from support.row_bytes import record_key
from tistream.clock import ManualClock
from tistream.model.ts import Window
from tistream.read.events import Events, Image, Rows
from tistream.schema.ddl_event import DdlEvent
from tistream.schema.tidb import table as tidb
from tistream.schema.visible import Name, TableVersion
from tistream.wire.bulk.changefeeds import Skip
from tistream_changefeed.hold.holder import IDLE_MS, PAUSE_MS
from tistream_changefeed.hold.new_rows import NewRows
from tistream_changefeed.hold.pool import Pool
from tistream_changefeed.hold.sink import Pipeline
from tistream_changefeed.rows.net import net
from tistream_changefeed.sinks.iceberg.lake_feed import lake_feed
from tistream_changefeed.sinks.iceberg.lake_pipeline import TableDdl
from tistream_changefeed.sinks.left_out import LetterMark
from tistream_changefeed.sinks.mysql.mysql_feed import mysql_feed
from tistream_changefeed.table_errors.table_failed import TableFailed

URI = "iceberg://lake?catalog-uri=sqlite:////lake/c.db&warehouse=file:///lake&mode=both"
KEYED = version([column("id")], [Key("primary", ("id",), primary=True)], name="keyed", table_id=100)
KEYLESS = version([column("id")], name="keyless", table_id=101)
DDL_TS = 1_000


def reached(query: str, action: str, table: str, *there: TableVersion, gone: bool = False) -> list[TableDdl]:
    """The DDLs that the sink gets. `there` are the tables that it involves; `gone`: it drops them."""
    names = tuple(one.name for one in there)
    event = DdlEvent(DDL_TS, DDL_TS - 1, 1, "d", table, query, action, 7, (*([] if table else [("d", "")]), *names))

    def table_at(ts: int, database: str, name: str) -> TableVersion | None:
        found: dict[Name, TableVersion] = {} if gone and ts >= DDL_TS else {one.name: one for one in there}
        return found.get((database, name))

    marks = lake_feed(URI, {}).pipeline.ddl(event, table_at, lambda _: 1)
    return [one for one in marks if isinstance(one, TableDdl)]


def test_ddls_of_tables_that_are_left_out_do_not_reach_the_sink() -> None:
    query = "alter table keyless truncate partition p0"
    assert reached(query, "truncate partition", "keyless", KEYLESS) == []
    (sent,) = reached(query, "truncate partition", "keyed", KEYED)
    assert [one.after for one in sent.changes] == [KEYED], "the sink refuses it"


def test_a_database_that_is_dropped_drops_its_tables() -> None:
    (sent,) = reached("drop database d", "drop schema", "", KEYED, KEYLESS, gone=True)
    assert [(one.before, one.after) for one in sent.changes] == [(KEYED, None)]
    assert reached("drop database d", "drop schema", "", KEYLESS, gone=True) == []


@pytest.mark.parametrize("rules", [["shop.k_none"], ["shop.p_list"]])
def test_a_feed_that_sends_no_rows_stores_how_far_it_has_read(rules: list[str], tmp_path: Path) -> None:
    world, clock = golden_world("everything"), ManualClock(4_000_000_000_000)
    run = LakeRun(world, tmp_path, "changelog", rules, clock=clock, endless=True)
    holder = run.holder()
    rest = None
    while rest is None:
        rest = holder.step()
        assert holder.shard.failure is None, holder.shard.failure
        clock.advance(IDLE_MS + 1)
    clock.advance(60_000)
    still = NewRows(world.source, Window(world.end_ts, world.end_ts))
    assert holder.is_due(rest, clock.monotonic_ms(), still), "though the tenant stands still"
    rest = holder.step()
    assert holder.report().checkpoint_ts == world.end_ts
    assert rest is not None
    assert not holder.is_due(rest, clock.monotonic_ms() + 600_000, still), "all is stored"
    holder.stop()
    holder.run()


def by_day() -> Events:
    """Changes of a table whose key is a date: an insert, and then an insert, a delete and updates with a date that no
    calendar has; the last one is of the first row."""
    of = version([column("day", tidb.DATE, tidb.FLAG_NOT_NULL), column("n")], [Key("primary", ("day",), primary=True)])
    days = ((None, "2024-02-29"), (None, "0000-00-00"), ("2020-02-00", None), ("2020-02-30", "2020-03-01"))
    days = (*days, ("2024-02-29", "2024-02-31"))
    found = batch(
        of,
        [
            Change(
                *(one and {"day": one, "n": ts} for one in sides),
                ts,
                ts - 1,
                record_key(of.table.id, {15: 11}.get(ts, ts)),
            )
            for ts, sides in enumerate(days, 11)
        ],
    )
    put = (found.new_at >= 0).astype(np.int64)
    rows = Rows(
        of,
        Image(found.new, []),
        Image(found.old, []),
        *(found.commit_ts, found.start_ts, found.schema_version, put, found.new_at, found.old_at),
        found.raw,
        np.zeros(len(found), bool),
    )
    return Events.ordered([rows])


def test_a_row_whose_key_no_calendar_has_stops_the_feed_or_is_a_dead_letter() -> None:
    letters = {"tistream": {"tables": [{"matcher": ["d.*"], "on-row-error": "dead-letter"}]}}
    sent = lake_feed(URI, letters).pipeline.rows(by_day(), lambda _: 1)
    assert sent.messages.commit_ts.tolist() == [11, 14, 15]
    (rows,) = sent.messages.window.rows
    assert [(old >= 0, new >= 0) for old, new in zip(rows.old_at, rows.new_at, strict=True)] == [
        (False, True),
        (False, True),  # an update from a key that the table does not have
        (True, False),  # the row goes with its earlier key
    ]
    (shown,) = net(sent.messages.window)
    assert [one.to_pydict()["day"] for one in (shown.deletes, shown.updates, shown.inserts)] == [[], [], ["2020-03-01"]]
    assert [one.commit_ts for one in sent.letters] == [12, 13, 14, 15]
    told = [json.loads(one.sent.value) for one in sent.letters if isinstance(one.sent, LetterMark)]
    assert [one["new"] and one["new"]["day"] for one in told] == ["0000-00-00", None, "2020-03-01", "2024-02-31"]
    assert {one["reason"][:24] for one in told} == {"column day of its key ha"}
    key = record_key(100, 12)
    with pytest.raises(
        TableFailed, match=rf"table d\.t, commit_ts 12, key {key.hex()}: column day of its key"
    ) as found:
        lake_feed(URI, {}).pipeline.rows(by_day(), lambda _: 1)
    assert (found.value.commit_ts, found.value.key) == (12, key)
    changes = lake_feed(URI.replace("both", "changelog"), {}).pipeline.rows(by_day(), lambda _: 1)
    assert (changes.messages.commit_ts.tolist(), changes.letters) == ([11, 12, 13, 14, 15], ())


def test_a_skipped_update_of_a_key_deletes_the_row_that_no_later_event_would_find() -> None:
    keys = {ts: record_key(100, {15: 11}.get(ts, ts)).hex() for ts in (12, 13, 14, 15)}
    skips = [Skip(commit_ts=ts, table="d.t", key=key, reason="r") for ts, key in keys.items()]
    of_sinks: list[tuple[Pipeline, list[int]]] = [
        (lake_feed(URI, {}, skips).pipeline, [11, 15]),  # the old key of 14 is one that the table cannot have
        (mysql_feed("mysql://db/", {}, skips).pipeline, [11, 14, 15]),
        (lake_feed(URI.replace("both", "changelog"), {}, skips).pipeline, [11]),  # it has events, not rows
    ]
    for pipeline, wanted in of_sinks:
        sent = pipeline.rows(by_day(), lambda _: 1)
        assert sent.messages.commit_ts.tolist() == wanted
        assert [one.commit_ts for one in sent.letters] == [*keys]
        (rows,) = sent.messages.window.rows
        sides = [(old >= 0, new >= 0) for old, new in zip(rows.old_at, rows.new_at, strict=True)]
        assert sides == [(False, True), *[(True, False)] * (len(wanted) - 1)]


@dataclass(frozen=True)
class Waited(StillView):
    """A pool that stands still, and for how long a reader was ready to wait for it."""

    waits_ms: list[int] = field(default_factory=list)

    def wait_above(self, ts: int, timeout_ms: int) -> bool:
        self.waits_ms.append(timeout_ms)
        return False


def test_a_feed_whose_rows_wait_for_their_window_does_not_poll(tmp_path: Path) -> None:
    world = golden_world("everything")
    run = LakeRun(world, tmp_path, "changelog", ["shop.orders"], clock=ManualClock(4_000_000_000_000), endless=True)
    holder, view = run.holder(), Waited(world)
    holder.view = lambda: cast(Pool, view)
    for _ in range(3):
        assert holder.step() is None
        assert holder.shard.failure is None, holder.shard.failure
    assert min(view.waits_ms) >= PAUSE_MS
    holder.stop()
    holder.run()
