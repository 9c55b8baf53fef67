"""A feed's files: whatever fails, whoever wakes up late, index files name each row once and in order, and what
`metadata` promises is there."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from support import feed_tables
from support.effort import seeds
from tistream.clock import ManualClock
from tistream.errors import CommitStateUnknown, Unavailable
from tistream.model.ids import TenantKey
from tistream.read.cursor import Place, Position
from tistream.schema.visible import TableVersion
from tistream.storage.backends.memory import MemoryObjectStore
from tistream.wire.bulk.changefeeds import Move
from tistream_changefeed.core.failure import FeedFailed
from tistream_changefeed.core.outgoing import NOTHING
from tistream_changefeed.core.progress import Fence, Revision
from tistream_changefeed.core.segments import windows
from tistream_changefeed.core.shard import Order, Shard, Transaction
from tistream_changefeed.fingerprints.windows import FoundParts, compared, parse
from tistream_changefeed.protocols.canal_json.encoder import CanalJson, CanalOptions
from tistream_changefeed.sinks.left_out import LetterMark
from tistream_changefeed.sinks.storage.formats import LinesFormat
from tistream_changefeed.sinks.storage.paths import Layout
from tistream_changefeed.sinks.storage.placed_rows import FilePlace, PlacedBatch, PlacedRows, in_order
from tistream_changefeed.sinks.storage.root import SinkRoot
from tistream_changefeed.sinks.storage.schema_file import definition
from tistream_changefeed.sinks.storage.storage_sink import StorageSink
from tistream_changefeed.sinks.storage.target import StorageTarget

TENANT = TenantKey("7", "acme")
DAY_MS = 86_400_000
NOW_MS = 20_000 * DAY_MS
START, END = (NOW_MS - 2_000) << 18, (NOW_MS + 2_000) << 18  # midnight lies between
ORDER = Order(TENANT, "orders", 0, Fence(1, 1), START, END)
FORMAT = LinesFormat(CanalJson(CanalOptions()), ".json", b"\n")
TARGET = StorageTarget("memory:feed", FORMAT, Layout(".json", index_digits=6), 300, 40)
ID = feed_tables.column("id")
BEFORE, AFTER = feed_tables.version([ID]), feed_tables.version([ID, feed_tables.column("added")])
OTHER = feed_tables.version([ID], name="other", table_id=101)
Row = tuple[int, int]  # commit_ts and number


class Killed(BaseException):
    """The process is dead; it has not even closed its sink."""


class Store:
    """The store of one holder, which may die or pause before and after each call."""

    def __init__(self, life: Life) -> None:
        self._life = life

    def __getattr__(self, name: str) -> Any:
        call = getattr(self._life.objects, name)

        def made(*arguments: Any, **named: Any) -> Any:
            self._life.interrupt()
            if name.startswith("put") and self._life.chance(0.03):
                raise Unavailable("refused")
            if name.startswith("put_") and self._life.chance(0.03):
                if self._life.chance(0.5):
                    call(*arguments, **named)
                raise CommitStateUnknown(arguments[0])
            found = call(*arguments, **named)
            self._life.interrupt()
            return found

        return made


class Life:
    """Holders one after the other, of which some wake up while others work."""

    def __init__(self, seed: int) -> None:
        self.rng = Random(seed)
        self.objects, self.clock = MemoryObjectStore(), ManualClock(NOW_MS)
        stamps = sorted(self.rng.sample(range(START + 1, END + 1), 40))
        self.rows = [(ts, number) for ts in stamps for number in range(self.rng.randrange(1, 5))]
        self.ddl = self.rng.choice(stamps)
        self.epoch = self.depth = 0
        self.resolved_ts = START
        self.finished = False
        self.failures: set[str] = set()
        self.windows = 0  # most that were compared

    def chance(self, probability: float) -> bool:
        return self.rng.random() < probability

    def interrupt(self) -> None:
        """The process may be killed here; or it is paused, and another one takes over."""
        if self.chance(0.005):
            raise Killed
        if self.depth < 2 and self.chance(0.005):
            self.depth += 1
            self.hold()
            self.depth -= 1

    def run(self) -> None:
        while not self.finished:
            self.hold()

    def hold(self) -> None:
        """A new holder works until it has finished, fails or is killed; or it stops in the middle. It may have the
        epoch of another one, as after a restore of the meta database."""
        self.epoch += int(self.chance(0.7))
        shard = Shard(replace(ORDER, fence=Fence(1, self.epoch)), self.rng)
        root = SinkRoot(Store(self), TARGET.url, TARGET.layout)  # type: ignore[arg-type]
        sink = StorageSink(TARGET, root, shard.order, self.clock)
        try:
            self.write(shard, sink, shard.opened(*sink.open(), sink.where))
            while shard.phase != "finished" and not self.chance(0.05):
                self.step(shard, sink)
                self.check()
            self.finished = self.finished or shard.phase == "finished"
        except FeedFailed as error:
            self.failures.add(error.failure.kind)
            if error.failure.kind == "failed":
                raise
        except Killed:
            return

    def step(self, shard: Shard, sink: StorageSink) -> None:
        self.clock.advance(self.rng.randrange(300))
        low = shard.at
        rest = [
            row for row in self.rows if Position(row[0], Place.ROW, start_ts=row[1]) > low or row[0] > low.commit_ts
        ]
        if self.chance(0.3):
            self.resolved_ts = min(self.resolved_ts + self.rng.randrange(1, 1_000 << 18), END)
        high = max(low.low_ts, min(low.low_ts + self.rng.randrange(1, END - START), self.resolved_ts))
        at_ddl = low < Position(self.ddl, Place.DDL, table_id=1) and self.ddl <= high
        found = [row for row in rest if row[0] <= (self.ddl if at_ddl else high)]
        until = Position(self.ddl, Place.ROW, start_ts=9) if at_ddl else Position(high)
        if found and self.chance(0.3):  # a transaction is read in parts
            found, at_ddl = found[: self.rng.randrange(1, len(found) + 1)], False
            until = Position(found[-1][0], Place.ROW, start_ts=found[-1][1])
        placed = self.placed(found)
        for window in windows(placed.commit_ts, placed.sizes, 60, until):
            part = placed.between(window.start, window.end)
            self.write(shard, sink, shard.send(part, len(part), (), window.until))
        shard.skip(until)
        if at_ddl:
            mark = definition(AFTER).file(self.ddl, "alter table t add added bigint", 5)
            self.write(shard, sink, shard.send(NOTHING, 0, (mark,), Position(self.ddl, Place.DDL, table_id=1)))
            shard.skip(Position(self.ddl))
        if shard.at.commit_ts == END or (sink.waits and shard.at.low_ts == self.resolved_ts):
            self.write(shard, sink, shard.send(NOTHING, 0, (), shard.at))

    def write(self, shard: Shard, sink: StorageSink, transaction: Transaction) -> None:
        if sink.write(transaction):
            shard.acknowledged(transaction, self.clock.monotonic_ms())

    def placed(self, rows: list[Row]) -> PlacedRows:
        batches: dict[FilePlace, list[int]] = {}
        for at, row in enumerate(rows):
            batches.setdefault(FilePlace(self.table(row), None, TARGET.layout.dated(row[0])), []).append(at)
        return in_order([self.batch(place, rows, found) for place, found in batches.items()])

    def table(self, row: Row) -> TableVersion:
        return OTHER if row[1] == 2 else AFTER if row[0] > self.ddl else BEFORE

    @staticmethod
    def batch(place: FilePlace, rows: list[Row], at: list[int]) -> PlacedBatch:
        lines = [b"%d.%d\n" % rows[one] for one in at]
        stamps = np.array([rows[one][0] for one in at], np.int64)
        sizes = np.array([len(line) for line in lines], np.int64)
        table = pa.table({"line": pa.array(lines, pa.large_binary())})
        return PlacedBatch(place, table, np.array(at), stamps, sizes, FORMAT.hashes(table, stamps))

    def check(self) -> None:
        """What `metadata` promises to readers is in files that index files name, each row once and in order."""
        by_directory = dict(indexed(self.objects))
        assert all(rows == sorted(rows) for rows in by_directory.values())
        found = sorted(row for rows in by_directory.values() for row in rows)
        assert len(set(found)) == len(found)
        stored = json.loads(self.objects.get("metadata"))
        promised = stored["checkpoint-ts"]
        there = FoundParts()
        for number, name in ((0, BEFORE.name), (2, OTHER.name)):
            mine = [row for row in found if (row[1] == 2) is (number == 2)]
            stamps = np.array([row[0] for row in mine], np.int64)
            lines = pa.table({"line": pa.array([b"%d.%d\n" % row for row in mine], pa.large_binary())})
            there.add(name, stamps, FORMAT.hashes(lines, stamps))
        windows = [parse(one) for one in stored["tistream"].get("windows", ())]
        # Above that a window may have been committed whose index files are not put yet.
        compared_ = compared(windows, there.events(), START, promised)
        assert compared_.differences == ()
        self.windows = max(self.windows, compared_.count)
        assert [row for row in self.rows if row[0] <= promised] == [row for row in found if row[0] <= promised]


def indexed(objects: MemoryObjectStore) -> Iterator[tuple[str, list[Row]]]:
    """The rows of each directory of which an index file names the last file."""
    for info in objects.list_after(""):
        directory, is_index, _ = info.key.partition("/meta/CDC.index")
        if is_index:
            last = int(objects.get(info.key).decode().strip().removeprefix("CDC").removesuffix(".json"))
            body = b"".join(objects.get(f"{directory}/CDC{number:06}.json") for number in range(1, last + 1))
            rows = [tuple(map(int, line.split(b"."))) for line in body.splitlines()]
            yield directory, rows  # type: ignore[misc]


@pytest.mark.parametrize("seed", seeds(16, 1_000))
def test_each_row_is_in_one_file_whoever_is_killed_or_wakes_up_late(seed: int) -> None:
    life = Life(seed)
    life.run()
    life.check()
    found = dict(indexed(life.objects))
    assert sorted(row for rows in found.values() for row in rows) == life.rows
    for directory, rows in found.items():
        _, table, version, date = directory.split("/")
        assert {TARGET.layout.dated(ts) for ts, _ in rows} == {date}
        tables = {life.table(row) for row in rows}
        assert len(tables) == 1
        assert (int(version) == life.ddl) is (table == "t" and tables == {AFTER})
        assert int(version) < min(ts for ts, _ in rows)
    files = [info.key for info in life.objects.list_after("d/") if "/CDC" in info.key and "meta" not in info.key]
    assert len(files) > 20
    assert life.windows > 5
    named = {info.key.partition("/meta/CDC")[0] for info in life.objects.list_after("d/") if "/meta/CDC" in info.key}
    assert {key.rpartition("/")[0] for key in files} == named


def test_rows_of_a_tenant_that_stands_still_come_once_it_was_waited_for() -> None:
    life = Life(1)
    shard, sink = opened(life, 1)
    at = Position(START + 2)
    life.write(shard, sink, shard.send(life.placed([(START + 1, 0)]), 1, (), at))
    for passed_ms in (0, 300, 299, 1):
        assert (sink.waits, list(indexed(life.objects))) == (True, [])
        assert shard.acked is not None
        assert shard.acked.checkpoint_ts == START
        life.clock.advance(passed_ms)
        life.write(shard, sink, shard.send(NOTHING, 0, (), at))
    assert [rows for _, rows in indexed(life.objects)] == [[(START + 1, 0)]]
    assert (sink.waits, shard.acked.checkpoint_ts) == (False, START + 2)


def test_a_letter_is_an_object_and_does_not_end_the_window_of_the_rows_beside_it() -> None:
    life, letter = Life(1), LetterMark("d.t", START + 1, b'{"reason":"wrong"}')
    for epoch in (1, 2):
        shard, sink = opened(life, epoch)
        life.write(shard, sink, shard.send(life.placed([(START + 1, 0)]), 1, (letter,), Position(START + 2), 1))
        assert (sink.waits, list(indexed(life.objects))) == (True, [])
    (key,) = [info.key for info in life.objects.list_after("tistream-dead-letters/")]
    assert life.objects.get(key) == letter.value


class KilledBeforeTheCommit(MemoryObjectStore):
    """The store of a process that dies once it has put a data file, before `metadata`."""

    def put_if(self, key: str, body: bytes, version: str) -> None:
        if any("/CDC" in info.key for info in self.list_after("")):
            raise Killed
        super().put_if(key, body, version)


def test_a_window_that_ended_early_ends_there_for_the_worker_that_takes_over() -> None:
    life, rows = Life(1), [(START + 1, 0), (START + 2, 0)]
    life.objects = KilledBeforeTheCommit()
    shard, sink = opened(life, 1)
    life.write(shard, sink, shard.send(life.placed(rows[:1]), 1, (), Position(START + 1)))
    life.clock.advance(600)
    with pytest.raises(Killed):
        life.write(shard, sink, shard.send(NOTHING, 0, (), Position(START + 1)))
    life.objects.__class__ = MemoryObjectStore
    shard, sink = opened(life, 2)
    life.write(shard, sink, shard.send(life.placed(rows), 2, (), Position(END)))
    life.write(shard, sink, shard.send(NOTHING, 0, (), Position(END)))
    assert [rows for _, rows in indexed(life.objects)] == [rows]


class LateIndex(MemoryObjectStore):
    """Calls `late` before the first index file is put."""

    late: Callable[[], None] | None = None

    def put_new(self, key: str, body: bytes) -> None:
        late, self.late = (self.late, None) if "/meta/CDC.index" in key else (None, self.late)
        if late is not None:
            late()
        super().put_new(key, body)


def test_a_holder_that_is_late_does_not_undo_the_progress_of_another_one_with_its_epoch() -> None:
    life, rows = Life(1), [(START + 1, 0), (START + (700 << 18), 0)]
    life.objects = objects = LateIndex()

    def flushed(shard: Shard, sink: StorageSink, row: Row) -> None:
        life.write(shard, sink, shard.send(life.placed([row]), 1, (), Position(row[0])))
        life.clock.advance(600)
        life.write(shard, sink, shard.send(NOTHING, 0, (), Position(row[0])))

    one = opened(life, 1)
    objects.late = lambda: flushed(*opened(life, 1), rows[1])
    with pytest.raises(FeedFailed, match="another holder has replaced it"):
        flushed(*one, rows[0])
    shard, _ = opened(life, 1)
    assert shard.at == Position(rows[1][0])
    assert [rows for _, rows in indexed(life.objects)] == [rows]


def test_a_feed_that_is_moved_back_writes_rows_again_into_new_files_window_by_window() -> None:
    life, at = Life(1), START + (1_600 << 18)
    rows = [(START + (ms << 18), 0) for ms in (100, 700, 1_500)]
    shard, sink = opened(life, 1)
    life.write(shard, sink, shard.send(life.placed(rows), 3, (), Position(at)))
    life.clock.advance(600)
    life.write(shard, sink, shard.send(NOTHING, 0, (), Position(at)))
    shard, sink = opened(life, 2, revision=Revision(1, Move(revision=1, ts=START)))
    life.write(shard, sink, shard.send(life.placed(rows[:2]), 2, (), Position(rows[1][0])))
    assert [rows for _, rows in indexed(life.objects)] == [[*rows, rows[0]]]
    assert json.loads(life.objects.get("metadata"))["checkpoint-ts"] == at


def killed() -> None:
    raise Killed


def test_files_that_a_killed_holder_has_not_named_are_named_though_the_configuration_has_changed() -> None:
    life, rows = Life(1), [(START + 1, 0)]
    life.objects = objects = LateIndex()
    shard, sink = opened(life, 1)
    life.write(shard, sink, shard.send(life.placed(rows), 1, (), Position(START + 1)))
    life.clock.advance(600)
    objects.late = killed
    with pytest.raises(Killed):
        life.write(shard, sink, shard.send(NOTHING, 0, (), Position(START + 1)))
    digits = replace(TARGET, layout=Layout(".json", index_digits=7))
    with pytest.raises(FeedFailed, match=r"CDC0000001\.json: this file of the newest window is missing"):
        opened(life, 2, target=digits)
    by_window = replace(TARGET, layout=Layout(".json", index_digits=6, by_window=True))
    opened(life, 2, target=by_window)
    assert [rows for _, rows in indexed(objects)] == [rows]


def opened(life: Life, epoch: int, *, target: StorageTarget = TARGET, **order: Any) -> tuple[Shard, StorageSink]:
    shard = Shard(replace(ORDER, fence=Fence(1, epoch), **order), life.rng)
    sink = StorageSink(target, SinkRoot(life.objects, target.url, target.layout), shard.order, life.clock)
    life.write(shard, sink, shard.opened(*sink.open(), sink.where))
    return shard, sink
