"""What a task lets go of what it has committed, and when."""

from __future__ import annotations

from dataclasses import replace

import pytest

from support.split_world import SplitWorld
from support.tiny_tenant import Row, TinyTenant, key, watermark, whole
from tistream.format.manifest import Manifest
from tistream.format.segment import RowGroupInfo, SegmentRef
from tistream.model.span import WHOLE
from tistream.model.ts import MAX_TS, from_physical_ms
from tistream.schema import log_format
from tistream.schema.log_format import LogObject
from tistream.storage import layout
from tistream.storage.backends.memory import MemoryObjectStore
from tistream.storage.manifest_follow import TaskObjects
from tistream.storage.measured import MeasuredObjectStore
from tistream.storage.object_store import ObjectStore
from tistream_sorter.state.task_state import Retention, TaskIdentity, TaskState, first_state
from tistream_sorter.upkeep.gc_plan import CollectRules
from tistream_sorter.upkeep.retention import retained

TINY = TinyTenant()
KEEP_MS = 1_000


def at(ms: int) -> int:
    return from_physical_ms(ms)


def segment(name: str, low: int, high: int) -> SegmentRef:
    return SegmentRef(name, 1, "00000000", 2, (RowGroupInfo(2, 1, 1, low, high),))


def state(flushed_ms: int, **more: object) -> TaskState:
    live = tuple(segment(str(ms), at(ms - 100) + 1, at(ms)) for ms in range(100, flushed_ms + 1, 100))
    begun = first_state(TaskIdentity(TINY.tenant, 1, WHOLE, 100, 1), 1)
    return replace(begun, flushed_ts=at(flushed_ms), live_segments=live, retention=Retention(KEEP_MS), **more)


def kept(found: TaskState) -> list[int]:
    return [int(one.key) for one in found.live_segments]


def test_segments_go_once_all_of_their_rows_are_old_enough() -> None:
    found = retained(state(2_000), 2_050)
    assert found.retained_ts == at(1_000)
    assert kept(found) == list(range(1_100, 2_001, 100)), "the one that ends at 1,000 has gone"
    found = retained(state(2_000), 1_999)
    assert found.retained_ts == at(999)
    assert kept(found) == list(range(1_000, 2_001, 100)), "of the one that ends at 1,000 a row is kept still"


def test_without_a_retention_everything_stays() -> None:
    forever = state(2_000, retained_ts=7, schema_retained_ts=7)
    forever = replace(forever, retention=Retention())
    assert retained(forever, 1 << 50) is forever


@pytest.mark.parametrize(("flushed_ms", "now_ms"), [(2_000, 1 << 40), (2_000, 2_000)])
def test_a_node_whose_clock_is_years_ahead_deletes_no_more_than_others(flushed_ms: int, now_ms: int) -> None:
    assert retained(state(flushed_ms), now_ms).retained_ts == at(1_000)


def test_nor_does_an_upstream_whose_clock_is_years_ahead() -> None:
    ahead = replace(state(2_000), flushed_ts=at(1 << 40))
    assert retained(ahead, 2_000).retained_ts == at(1_000)


def test_what_is_retained_never_goes_down() -> None:
    """A longer retention does not bring back what may have gone."""
    found = replace(retained(state(2_000), 2_000), retention=Retention(1_500))
    assert retained(found, 2_000).retained_ts == at(1_000)
    found = replace(found, retention=Retention())
    assert retained(found, 9_000).retained_ts == at(1_000)


def test_what_the_registry_has_not_read_stays() -> None:
    unread = replace(state(2_000), retention=Retention(KEEP_MS, read_ts=at(300)))
    assert retained(unread, 2_000).retained_ts == at(300)
    assert kept(retained(unread, 2_000))[0] == 400
    assert Retention(KEEP_MS).read_ts == MAX_TS


# -- a task at work ---------------------------------------------------------------------------------------------------


class Kept:
    """A tenant whose rows are kept for a second; a file each 100 ms with one row of key a, then a watermark."""

    def __init__(self, seconds: int = 0, objects: ObjectStore | None = None, grace_ms: int = 0) -> None:
        self.world = SplitWorld(TINY, objects=objects, collect=CollectRules(grace_ms, every_ms=0), idle_manifest_ms=100)
        self.world.keep_ms = KEEP_MS
        self.world.assign()
        self.world.push(TINY.file(1, 200, 0, [], watermark(6, 5, 150, base_ts=100)))
        self.world.tick()
        self.ms, self.prev_ts, self.index = 0, 200, 6
        self.schema_read(1 << 40)
        self.world.node.collect()
        for _ in range(10 * seconds):
            self.file()

    def file(self, *more: Row) -> None:
        self.ms += 100
        ts = at(self.ms)
        row = whole(b"a", ts - 2, ts - 1, self.index)
        self.world.push(TINY.file(1, ts + 1, self.prev_ts, [row, *more], watermark(self.index, self.index, ts)))
        self.prev_ts, self.index = ts + 1, self.index + 1
        self.world.clock.advance(self.ms - self.world.clock.now_ms())
        self.world.tick()

    def schema_read(self, ms: int, number: int = 1) -> None:
        log = LogObject(TINY.tenant, number, 0, at(ms), "00", ())
        self.world.objects.put(layout.schema_log(TINY.tenant, number), log_format.encode(log))

    def manifest(self, task_id: int = 1) -> Manifest:
        found = TaskObjects(self.world.objects, TINY.tenant, task_id).follow()
        assert found.state is not None
        return found.state

    def live(self, task_id: int = 1) -> list[int]:
        """The highest commit_ts of each segment, as the time in ms."""
        view = TaskObjects(self.world.objects, TINY.tenant, task_id).follow()
        return [(one.commit_ts_max + 1) >> 18 for one in view.segments]


def test_a_task_at_work_tells_what_it_keeps_and_names_nothing_else() -> None:
    kept = Kept(seconds=3)
    manifest = kept.manifest()
    oldest = kept.live()[0]
    assert 0 < manifest.retained_ts <= at(3_000 - KEEP_MS)
    assert manifest.retained_ts > at(3_000 - KEEP_MS - 100 * 10), "one in five manifests lets go"
    assert at(oldest) - 1 > manifest.retained_ts, "its last row is kept"
    assert len(kept.live()) < 20


def test_objects_of_segments_that_went_are_deleted() -> None:
    kept = Kept(seconds=3)
    kept.world.node.collect()
    prefix = layout.data_prefixes(TINY.tenant, 1)[0]
    there = {info.key for info in kept.world.objects.list_after(prefix)}
    named = {one.key for one in TaskObjects(kept.world.objects, TINY.tenant, 1).follow().segments}
    assert there == named


def test_nothing_goes_before_the_registry_has_read_it() -> None:
    kept = Kept()
    kept.world.crash()
    kept.schema_read(500)
    kept.world.assign()
    for _ in range(30):
        kept.file()
    assert kept.manifest().retained_ts == 0, "nobody has asked how far the registry is"
    kept.world.node.collect()
    for _ in range(6):
        kept.file()
    assert kept.manifest().retained_ts == at(500)
    kept.schema_read(1_200, number=2)
    kept.world.node.collect()
    for _ in range(6):
        kept.file()
    assert kept.manifest().retained_ts == at(1_200)


def test_a_row_that_went_may_come_again() -> None:
    """A scan repeats it: it is not in the pool any more, and that is no loss."""
    kept = Kept(seconds=3)
    gone = whole(b"a", at(100) - 2, at(100) - 1, kept.index + 1)
    rows = kept.manifest().counters["committed_rows"]
    kept.file(gone)
    assert kept.world.stopped() == []
    assert kept.manifest().counters["committed_rows"] == rows + 1


def test_what_a_task_keeps_is_what_its_heirs_keep() -> None:
    kept = Kept(seconds=3)
    before = kept.manifest()
    kept.world.split(1, key(b"m"))
    kept.world.tick()
    for task_id in (2, 3):
        assert kept.manifest(task_id).retained_ts >= before.retained_ts
        assert kept.manifest(task_id).heritage == (1,)
    gone = whole(b"a", at(100) - 2, at(100) - 1, kept.index + 1)
    kept.file(gone)
    assert kept.world.stopped() == []


def test_a_retention_that_is_taken_back_lets_nothing_more_go() -> None:
    kept = Kept(seconds=2)
    kept.world.keep_ms = None
    kept.world.assign()
    before = kept.manifest().retained_ts
    for _ in range(20):
        kept.file()
    assert kept.manifest().retained_ts == before


def test_after_a_crash_it_goes_on_as_before() -> None:
    kept = Kept(seconds=2)
    before = kept.manifest().retained_ts
    kept.world.crash()
    for _ in range(6):
        kept.file()
    assert kept.manifest().retained_ts == before, "how far the registry is must be asked anew"
    kept.world.node.collect()
    for _ in range(6):
        kept.file()
    assert kept.manifest().retained_ts > before


def test_a_merge_takes_nothing_from_the_registry_that_it_has_not_read() -> None:
    """The schema's keys are quiet, so its log is far behind; the neighbour has let go of as much as it may."""
    kept = Kept()
    kept.schema_read(500, number=2)
    kept.world.split(1, key(b"f"), key(b"s"))  # what comes before f is with the m keys
    kept.world.tick()
    for _ in range(30):
        late = at(kept.ms + 100) - 4
        kept.file(whole(b"k", late, late + 1, kept.index))
        kept.world.node.collect()
    schema, neighbour = kept.manifest(2), kept.manifest(3)
    assert schema.retained_ts <= at(500)
    assert neighbour.retained_ts > at(1_500)
    unread = TaskObjects(kept.world.objects, TINY.tenant, 2).follow().segments
    kept.world.merge(2, 3)
    kept.world.tick()
    (child,) = [one for one in kept.world.rows if one > 4]
    for _ in range(12):
        kept.file()
        kept.world.node.collect()
    view = TaskObjects(kept.world.objects, TINY.tenant, child).follow()
    assert view.state is not None
    assert view.state.retained_ts >= neighbour.retained_ts, "a pull from below is refused"
    assert view.state.schema_retained_ts <= at(500)
    assert {one.key for one in unread} <= {one.key for one in view.segments}
    kept.schema_read(kept.ms - 100, number=3)
    for _ in range(12):
        kept.file()
        kept.world.node.collect()
    view = TaskObjects(kept.world.objects, TINY.tenant, child).follow()
    assert view.state is not None
    assert view.state.schema_retained_ts == view.state.retained_ts
    assert unread[0].key not in {one.key for one in view.segments}


def test_nothing_is_asked_of_the_store_for_a_task_at_rest() -> None:
    store = MeasuredObjectStore(MemoryObjectStore())
    kept = Kept(seconds=2, objects=store)
    kept.world.node.collect()
    before = sum(done.requests for done in store.traffic().values())
    for _ in range(10):
        kept.world.clock.advance(3_600_000)
        kept.world.node.collect()
    assert sum(done.requests for done in store.traffic().values()) == before


def test_what_could_not_be_read_before_is_kept_for_a_while_however_old_it_is() -> None:
    """A store was silent for ten seconds: all that it brings then is flushed at once."""
    kept = Kept(seconds=3, grace_ms=2_000)
    before = kept.manifest()
    assert before.retained_ts > 0
    late = [whole(b"late", at(kept.ms + 1_000 * n), at(kept.ms + 1_000 * n) + 1, kept.index) for n in range(1, 10)]
    oldest_ts = at(kept.ms + 1_000) + 1
    kept.ms += 10_000
    kept.file(*late)
    for _ in range(15):
        kept.file()
        manifest = kept.manifest()
        assert manifest.flushed_ts > at(kept.ms - 200)
        assert manifest.retained_ts < oldest_ts, "nobody could have read it yet"
    for _ in range(15):
        kept.file()
    assert kept.manifest().retained_ts > at(kept.ms - KEEP_MS - 2_000 - 500)
