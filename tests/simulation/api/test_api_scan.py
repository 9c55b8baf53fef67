"""Going through a window: bounded memory, segments that are compacted away, answers that are cut."""

from __future__ import annotations

import threading

import pyarrow as pa
import pytest

from support.effort import cases
from support.pull_world import World, golden_world
from tistream.errors import CorruptObject, Unavailable
from tistream.format.segment import SegmentRef
from tistream.model.ts import Window
from tistream.pool.rows import read_rows
from tistream.pool.writer import write_segment
from tistream.read.cursor import Position, Scope
from tistream.read.group_cache import GroupCache
from tistream.read.scan import REPLANS, Budget, Scan
from tistream.read.source import TenantSource
from tistream.storage.backends.memory import MemoryObjectStore
from tistream_api.encode.ndjson import NdjsonEncoder
from tistream_api.pull.admitted import Answer
from tistream_api.pull.dropped_answers import DroppedAnswers


@pytest.mark.parametrize(
    ("name", "rows"), cases([("everything", 20), ("large", 500)], [("everything", 500), ("large", 20)])
)
def test_no_batch_holds_more_than_the_budget(name: str, rows: int) -> None:
    one = golden_world(name, tasks=4)
    budget = Budget(rows, rows, 1 << 20, rows)
    sizes, ddl = [], 0
    for batch in Scan(one.source, Scope(one.tenant), Position(one.snapshot_ts), one.end_ts, budget).batches():
        sizes.append(len(batch.events))
        ddl += int(batch.events.place.sum())
    assert max(sizes) <= 2 * rows + ddl
    assert sum(sizes) == len(one.pull(start=Position(one.snapshot_ts)).splitlines()) - 1


class Compacting:
    """A pool whose segments become one per task, and vanish, at a moment chosen by the test."""

    def __init__(self, one: World) -> None:
        self.replans = 0
        self._objects, self._indexes = one.objects, one.indexes
        self._whole = Window(one.snapshot_ts, one.end_ts)
        self._next: list[tuple[SegmentRef, ...]] = []
        cache = GroupCache(one.objects, 1)  # nothing is kept: every row group is read from the store
        self.source = TenantSource(threading.RLock(), lambda: one.history, lambda: one.indexes, cache, self.replan)

    def compact(self) -> None:
        for task, index in enumerate(self._indexes):
            old = index.overlapping(self._whole)
            merged = _merged(self._objects, old, self._whole)
            body, ref = write_segment(merged, f"compacted-{task}")
            self._objects.put(ref.key, body)
            self._next.append((ref,))
            for gone in old:
                self._objects.delete(gone.key)

    def replan(self) -> None:
        self.replans += 1
        for index, refs in zip(self._indexes, self._next, strict=False):
            index.update(refs)
        self._next = []


def _merged(objects: MemoryObjectStore, refs: list[SegmentRef], window: Window) -> pa.Table:
    table = pa.concat_tables([read_rows(objects, ref, window) for ref in refs])
    order = [(name, "ascending") for name in ("table_id", "commit_ts", "start_ts", "key")]
    return table.sort_by(order)


@pytest.fixture
def compacting() -> Compacting:
    return Compacting(golden_world("everything", tasks=3))


def test_segments_compacted_during_a_pull_make_no_difference(compacting: Compacting) -> None:
    one = golden_world("everything", tasks=3)
    want = one.pull(start=Position(one.snapshot_ts)).splitlines()[:-1]
    got: list[bytes] = []
    scope = Scope(one.tenant)
    budget = Budget(2_000, 500, 1 << 20, 2_000)
    scan = Scan(compacting.source, scope, Position(one.snapshot_ts), one.end_ts, budget)
    for number, batch in enumerate(scan.batches()):
        got += b"".join(NdjsonEncoder().events(batch.events)).splitlines()
        if number == 2:
            compacting.compact()
    assert compacting.replans == 1
    assert got == want


def test_a_segment_that_stays_lost_is_unavailable_and_never_a_gap(compacting: Compacting) -> None:
    one = golden_world("everything", tasks=3)
    compacting.compact()
    compacting._next = []
    with pytest.raises(Unavailable):
        list(Scan(compacting.source, Scope(one.tenant), Position(one.snapshot_ts), one.end_ts, Budget()).batches())
    assert compacting.replans == REPLANS


def test_an_answer_that_fails_in_its_middle_is_cut() -> None:
    one = golden_world("everything", tasks=1, budget=Budget(500, 100, 1 << 20, 500))
    late = sorted(info.key for info in one.objects.list_after("committed"))[-1]
    one.objects.put(late, one.objects.get(late)[:-9] + bytes(9))
    answer = one.answer(start=Position(one.snapshot_ts))
    got = [next(answer)]
    with pytest.raises(CorruptObject, match=late):
        got.extend(answer)
    assert b'"type":"resolved"' not in b"".join(got)


def test_an_answer_gives_its_slot_back_once_however_it_ends() -> None:
    released: list[int] = []
    dropped = DroppedAnswers()
    whole = Answer(iter([b"a", b"b"]), lambda: released.append(1), dropped)
    whole.begin()
    assert b"".join(whole) == b"ab"
    whole.close()
    assert released == [1]
    left = Answer(iter([b"a", b"b"]), lambda: released.append(2), dropped)
    left.begin()
    assert next(left) == b"a"
    left.close()
    assert list(left) == []
    assert released == [1, 2]
    never_read = Answer(iter([b"a"]), lambda: released.append(3), dropped)
    never_read.begin()
    del never_read
    dropped.release()
    assert released == [1, 2, 3]
