"""What reads of the API wait for: objects that one read needs are asked for at the same time, and once."""

from __future__ import annotations

import random
from itertools import pairwise

import pyarrow as pa
import pytest

from support.round_trips import Distant, waits
from support.versions_world import VersionsWorld, int_key, random_rows, written_run
from tistream.errors import CorruptObject, Unavailable
from tistream.format.run import RunRef
from tistream.format.segment import OP_PUT, SCHEMA
from tistream.model.span import WHOLE
from tistream.model.ts import Window
from tistream.pool import at_once, parquet_objects
from tistream.pool.footers import FooterCache
from tistream.pool.rows import open_segment
from tistream.pool.versions.plan import IndexShard, records_of
from tistream.pool.versions.pool_reads import PoolReads
from tistream.pool.versions.scan import read_range
from tistream.pool.writer import write_segment
from tistream.read.group_cache import GroupCache
from tistream.storage.backends.memory import MemoryObjectStore
from tistream_api.points import cached_reader
from tistream_api.points.cached_reader import CachedReader
from tistream_api.points.parts import row_marks

TABLE, EVER = 100, Window(0, 1 << 60)


def segments_of(commits: int, each: int) -> tuple[VersionsWorld, IndexShard]:
    """Segments of `each` commits, without an index."""
    world = VersionsWorld()
    world.rows = random_rows(random.Random(3), 1, 40, commits, common=False)
    stamps = sorted({row["commit_ts"] for row in world.rows})
    cuts = [0, *stamps[each - 1 :: each]]
    segments = (
        world.segment([row for row in world.rows if low < row["commit_ts"] <= high]) for low, high in pairwise(cuts)
    )
    return world, IndexShard(WHOLE, tuple(segments))


@pytest.mark.parametrize(("ahead", "depth"), [(cached_reader.AHEAD_BYTES, 2), (0, 10)])
def test_segments_are_read_at_the_same_time_and_once_unless_they_are_large(
    monkeypatch: pytest.MonkeyPatch, ahead: int, depth: int
) -> None:
    monkeypatch.setattr(cached_reader, "AHEAD_BYTES", ahead)
    world, shard = segments_of(40, 4)
    assert (len(shard.segments), at_once.LOT) == (10, 8)
    readers: list[CachedReader] = []

    def read(store: Distant) -> int:
        if not readers:
            readers.append(CachedReader(store, GroupCache(store, 64 << 20), FooterCache()))
        found = read_range([shard], readers[0], EVER, [records_of(TABLE)], deletes=True)
        return sum(map(len, found))

    cold, warm = waits(world.objects, read, read)
    assert (cold.gets, cold.depth) == (10, depth)
    assert (warm.gets, warm.depth) == (0, 0)
    assert cold.found == warm.found == len(world.at(1 << 60, [TABLE]))


def run_of(world: VersionsWorld, first: int) -> RunRef:
    """A run of 30 rows in three row groups."""
    rows = [
        {"table_id": TABLE, "key": int_key(TABLE, first + at), "commit_ts": 5, "start_ts": 4, "op": OP_PUT,
         "value": b"a value", "txn_source": None}
        for at in range(30)
    ]  # fmt: skip
    return written_run(world.objects, world.name("run"), rows, None, 9, group_rows=10)


def test_the_parts_of_a_table_are_found_by_footers_that_are_read_at_the_same_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(parquet_objects, "WHOLE_BYTES", 0)
    world = VersionsWorld()
    shard = IndexShard(WHOLE, (), tuple(run_of(world, 30 * number) for number in range(8)), 9, 9)

    def read(store: Distant) -> int:
        reader = CachedReader(store, GroupCache(store, 64 << 20), FooterCache())
        reads = PoolReads(reader, lambda: [shard], lambda: None)
        return sum(mark.rows for mark in row_marks(reads, 9, [records_of(TABLE)]))

    (one,) = waits(world.objects, read)
    assert (one.found, one.gets, one.depth) == (240, 8, 1)


# Attack: compaction deletes a run after the objects of the tenant were listed
def test_the_parts_of_a_table_are_those_of_the_runs_that_are_there() -> None:
    world = VersionsWorld()
    gone, there = (IndexShard(WHOLE, (), (run_of(world, first),), 9, 9) for first in (0, 900))
    world.objects.delete(gone.runs[0].key)
    listed = [gone]
    reader = CachedReader(world.objects, GroupCache(world.objects, 64 << 20), FooterCache())
    with pytest.raises(Unavailable, match="an object was deleted by another program"):
        row_marks(PoolReads(reader, lambda: listed, lambda: None), 9, [records_of(TABLE)])
    marks = row_marks(PoolReads(reader, lambda: listed, lambda: listed.__setitem__(0, there)), 9, [records_of(TABLE)])
    assert sum(mark.rows for mark in marks) == 30
    assert marks[0].at == int_key(TABLE, 909)


def test_a_damaged_row_group_does_not_hide_another_of_its_segment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parquet_objects, "WHOLE_BYTES", 0)  # as of a large segment, the footer is read alone
    monkeypatch.setattr(parquet_objects, "TAIL_BYTES", 512)
    world = VersionsWorld()
    rows = [
        {"table_id": table, "key": int_key(table, at), "commit_ts": 5, "start_ts": 4, "op": OP_PUT, "value": b"a value",
         "old_value": None, "txn_source": None}
        for table in (TABLE, TABLE + 1)
        for at in range(30)
    ]  # fmt: skip
    body, segment = write_segment(pa.Table.from_pylist(rows, SCHEMA), world.name("segment"), packed_rows=30)
    assert len(segment.row_groups) == 2
    world.objects.put(segment.key, bytes(body))
    start, length = next(iter(open_segment(world.objects, segment).footer.groups[1].ranges(["value"])))
    damaged, spoilt = MemoryObjectStore(), bytearray(body)
    spoilt[start + length - 1] ^= 4
    damaged.put(segment.key, bytes(spoilt))
    reader = CachedReader(damaged, GroupCache(damaged, 64 << 20), FooterCache())
    groups = reader.open_segments([(segment, 0), (segment, 1)])
    assert len(next(groups).read(["key", "value"])) == 30
    with pytest.raises(CorruptObject, match=segment.key):
        next(groups).read(["key", "value"])
