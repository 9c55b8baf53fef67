"""Who pulls a tenant stands where the slowest of its tasks stands: until then the others keep what is above."""

from __future__ import annotations

from support.split_world import SplitWorld
from support.tiny_tenant import TinyTenant, key, watermark, whole
from tistream.model.ts import from_physical_ms, physical_ms
from tistream.schema import log_format
from tistream.schema.log_format import LogObject
from tistream.storage import layout
from tistream_sorter.upkeep.gc_plan import CollectRules

TINY = TinyTenant()
KEEP_MS, GRACE_MS = 10_000, 3_000
A, Z = 2, 3  # the tasks of what lies below and above M


class Tenant:
    """A row of each of two tasks in every second."""

    def __init__(self) -> None:
        self.world = SplitWorld(TINY, collect=CollectRules(GRACE_MS, every_ms=0), checkpoint_every=4)
        self.world.keep_ms = KEEP_MS
        self.world.push(TINY.file(1, 200, 0, [], watermark(6, 5, 150, base_ts=100)))
        self.world.tick()
        self.world.split(1, key(b"m"))
        self.world.tick()
        registry = LogObject(TINY.tenant, 1, 0, from_physical_ms(1 << 40), "00", ())  # it has read everything
        self.world.objects.put(layout.schema_log(TINY.tenant, 1), log_format.encode(registry))
        self.now_s, self._prev_ts, self._index = 0, 200, 6

    def seconds(self, count: int) -> None:
        for _ in range(count):
            self.now_s += 1
            ts, index = from_physical_ms(self.now_s * 1_000), self._index
            self.world.clock.advance(self.now_s * 1_000 - self.world.clock.now_ms())
            rows = [whole(b"a", ts - 5, ts - 4, index), whole(b"z", ts - 3, ts - 2, index + 1)]
            self.world.push(TINY.file(1, ts, self._prev_ts, rows, watermark(index, index + 1, ts - 1)))
            self._prev_ts, self._index = ts, index + 2
            self.world.tick()
            self.world.node.collect()
        assert self.world.stopped() == []

    def kept_s(self, task_id: int) -> float:
        """How far back the task's rows go, in seconds."""
        return self.now_s - physical_ms(self.world.task(task_id).durable.retained_ts) / 1_000


def test_what_nobody_can_have_read_stays_however_old_it_is_and_goes_when_they_can() -> None:
    tenant = Tenant()
    tenant.seconds(22)
    assert [10 <= tenant.kept_s(task) < 20 for task in (A, Z)] == [True, True]
    tenant.world.withheld.add((Z, 1))
    stood_s = physical_ms(tenant.world.task(Z).durable.flushed_ts) / 1_000
    tenant.seconds(25)
    assert physical_ms(tenant.world.task(A).durable.flushed_ts) / 1_000 >= tenant.now_s - 1
    assert physical_ms(tenant.world.task(A).durable.retained_ts) / 1_000 <= stood_s
    tenant.world.withheld.clear()
    tenant.seconds(15)
    assert [10 <= tenant.kept_s(task) < 20 for task in (A, Z)] == [True, True]


def test_after_a_restart_nothing_goes_before_all_have_told_again() -> None:
    tenant = Tenant()
    tenant.seconds(22)
    before = tenant.world.task(A).durable.retained_ts
    tenant.world.withheld.add((Z, 1))
    tenant.world.crash()
    tenant.seconds(25)
    assert tenant.world.task(A).durable.retained_ts >= before
    assert physical_ms(tenant.world.task(A).durable.retained_ts) <= physical_ms(tenant.world.task(Z).durable.flushed_ts)
