"""A task that writes a segment a second, for as long as one likes, on a virtual clock: what is there afterwards.

`make space HOURS=24` prints a line an hour.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from support.split_world import SplitWorld
from support.tiny_tenant import TinyTenant, watermark, whole
from tistream.model.ts import from_physical_ms
from tistream.schema import log_format
from tistream.schema.log_format import LogObject
from tistream.storage import layout
from tistream.storage.manifest_follow import TaskObjects
from tistream.storage.measured import MeasuredObjectStore
from tistream_sorter.upkeep.gc_plan import CollectRules

TINY = TinyTenant()
HOUR_S = 3_600
COLLECT_S = 60


@dataclass(frozen=True)
class Sample:
    """What is in the store, and what it takes to begin reading."""

    second: int
    objects: Counter[str]  # by kind: manifest, segment, pending, floor
    segments: int  # live
    checkpoint_bytes: int
    reads: int  # requests of a reader that begins

    @property
    def total(self) -> int:
        return sum(self.objects.values())


class Space:
    """Call `second` for each second."""

    def __init__(self, keep_ms: int | None, grace_ms: int = 600_000) -> None:
        self.world = SplitWorld(TINY, collect=CollectRules(grace_ms, every_ms=0), checkpoint_every=64)
        self.world.keep_ms = keep_ms
        self.world.assign()
        self._push(TINY.file(1, 200, 0, [], watermark(6, 5, 150, base_ts=100)))
        # The schema registry is assumed to keep up.
        registry = LogObject(TINY.tenant, 1, 0, from_physical_ms(1 << 40), "00", ())
        self.world.objects.put(layout.schema_log(TINY.tenant, 1), log_format.encode(registry))
        self.now_s, self._prev_ts, self._index = 0, 200, 6

    def _push(self, file) -> None:  # type: ignore[no-untyped-def]
        """A file comes, is taken, and goes, as dispatchers see to it."""
        self.world.push(file)
        self.world.node.tick()
        self.world.objects.delete(file.key)
        self.world._arrived.clear()

    def second(self) -> None:
        self.now_s += 1
        ts = from_physical_ms(self.now_s * 1_000)
        self.world.clock.advance(self.now_s * 1_000 - self.world.clock.now_ms())
        row = whole(b"%d" % (self.now_s % 97), ts - 2, ts - 1, self._index)
        self._push(TINY.file(1, ts + 1, self._prev_ts, [row], watermark(self._index, self._index, ts)))
        self._prev_ts, self._index = ts + 1, self._index + 1
        self.world.node.compact()
        if self.now_s % COLLECT_S == 0:
            self.world.node.collect()

    def sample(self) -> Sample:
        counted = MeasuredObjectStore(self.world.objects)
        view = TaskObjects(counted, TINY.tenant, 1).follow()
        assert self.world.stopped() == []
        prefix = layout.task_prefix(TINY.tenant, 1)
        kinds = Counter(info.key.removeprefix(prefix).split("/")[0] for info in self.world.objects.list_after(prefix))
        assert view.last is not None
        checkpoint = self.world.objects.head(layout.manifest(TINY.tenant, 1, view.last.checkpoint)).size
        reads = sum(done.requests for done in counted.traffic().values())
        return Sample(self.now_s, kinds, len(view.segments), checkpoint, reads)


def samples(seconds: int, every_s: int, keep_ms: int | None, grace_ms: int = 600_000) -> Iterator[Sample]:
    """Take one sample each `every_s` seconds."""
    space = Space(keep_ms, grace_ms)
    for _ in range(seconds):
        space.second()
        if space.now_s % every_s == 0:
            yield space.sample()


def main() -> None:
    """See the module."""
    parser = argparse.ArgumentParser(prog="make space")
    parser.add_argument("--hours", type=int, default=24)
    parser.add_argument("--keep-hours", type=int, default=0, help="retention; 0: for ever")
    asked = parser.parse_args()
    keep_ms = asked.keep_hours * HOUR_S * 1_000 or None
    print("hour  objects  manifests  segments  pending  live segments  checkpoint bytes  requests to begin")
    for one in samples(asked.hours * HOUR_S, HOUR_S, keep_ms):
        kinds = one.objects
        print(
            f"{one.second // HOUR_S:4}  {one.total:7}  {kinds['manifest']:9}  {kinds['segment']:8}"
            f"  {kinds['pending']:7}  {one.segments:13}  {one.checkpoint_bytes:16}  {one.reads:17}",
            flush=True,
        )


if __name__ == "__main__":
    main()
