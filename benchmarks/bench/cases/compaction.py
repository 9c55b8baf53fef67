"""What it costs to put segments together, and what a pull of one table of many reads without and with it."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from bench.inputs.changes import TENANT, Load, seconds
from bench.inputs.mixed_rows import STEP, committed
from bench.inputs.pulled_pool import SNAPSHOT_TS, PulledPool
from bench.measure import Bench
from tistream.decode import warm
from tistream.format.segment import SegmentRef
from tistream.model.span import WHOLE
from tistream.pool.writer import write_segment
from tistream.storage import layout
from tistream.storage.backends.memory import MemoryObjectStore
from tistream_sorter.jobs.compact import rewrite_guarded
from tistream_sorter.state.task_state import TaskIdentity, first_state
from tistream_sorter.upkeep.compaction_plan import CompactRules, replaced, rewrite

WHAT = (
    "a task whose ticks write a segment a second, 1,024 in all, each with one row of each of 500 tables, in memory: as "
    "they are, and put together as the sorter does by its usual rules as soon as there is something to do; then a "
    "PullTable of one of the tables from the first ts to the last, by the API's own reader with nothing in memory "
    "before. A byte pushed is one of the change files that hold these rows as prewrites and commits, one file a second"
)
FILES, TABLES = 1_024, 500
SAMPLE_FILES = 16  # of which the size of a pushed file is taken
IDENTITY = TaskIdentity(TENANT, 1, WHOLE, SNAPSHOT_TS, 1)
RULES = CompactRules()


def run(bench: Bench) -> None:
    """See WHAT."""
    warm()
    objects = MemoryObjectStore()
    ticks = _ticks(objects)
    together = _Together(objects)
    for segment in ticks:
        together.add(segment)
    answers = {}
    for name, segments in (("ticks' segments", ticks), ("put together", together.live)):
        pool = PulledPool(objects, segments, SNAPSHOT_TS + STEP * 1_000 * (FILES + 1), TABLES, 256 << 20)
        began = time.process_time()
        answer = b"".join(bytes(piece) for piece in pool.pull("bench", "mixed_0"))
        took = time.process_time() - began
        answers[name] = hashlib.sha256(answer).hexdigest()
        requests = sum(done.requests for done in pool.store.traffic().values())
        bench.figure(f"{name}: live segments", len(segments), "segments")
        bench.figure(f"{name}: requests of the pull", requests, "requests")
        bench.figure(f"{name}: bytes read by it", pool.read_bytes / (1 << 20), "MiB")
        bench.figure(f"{name}: bytes read for each byte sent", pool.read_bytes / len(answer), "bytes")
        bench.figure(f"{name}: processor time of the pull", 1_000 * took, "ms")
    bench.agree(answers)
    size, pushed = sum(segment.size for segment in ticks), _pushed()
    live = sum(segment.size for segment in together.live)
    bench.figure("ticks' segments for each byte pushed", size / pushed, "bytes")
    bench.figure("put together: bytes written again for each byte pushed", together.written / pushed, "bytes")
    left = {segment.key for segment in together.live}
    again = together.written / sum(segment.size for segment in ticks if segment.key not in left)
    bench.figure("put together: bytes written again for each byte that was put together", again, "bytes")
    bench.figure(
        "written in all for each byte pushed, when all is put together", size / pushed * (1 + again), "bytes", 1.3
    )
    bench.figure("put together: bytes live for each byte of ticks' segments", live / size, "bytes")
    bench.figure("put together: processor time for each GiB pushed", together.took_s / (pushed / (1 << 30)), "s")


def _ticks(objects: MemoryObjectStore) -> list[SegmentRef]:
    found = []
    for number in range(FILES):
        rows = committed(TABLES, SNAPSHOT_TS + STEP * 1_000 * number, tables=TABLES, seed=number)
        body, segment = write_segment(rows, layout.segment(TENANT, 1, 1, f"{number:016x}", 0))
        objects.put(segment.key, body)
        found.append(segment)
    return found


def _pushed() -> int:
    """About the bytes of the change files."""
    load = Load(SAMPLE_FILES * TABLES, SAMPLE_FILES, stores=1, regions=4, tables=TABLES, rows=True)
    sample = sum(len(body) for second in seconds(load) for _, body in second.files)
    return sample * FILES // SAMPLE_FILES


@dataclass
class _Together:
    """The task's segments, put together as they come."""

    objects: MemoryObjectStore
    live: Sequence[SegmentRef] = ()
    written: int = 0
    took_s: float = 0.0
    _jobs: int = field(default=0, init=False)

    def add(self, segment: SegmentRef) -> None:
        """One more; and what follows from it."""
        self.live = (*self.live, segment)
        while (unit := rewrite(IDENTITY, self.live, frozenset(), f"{self._jobs:08x}", RULES)) is not None:
            began = time.process_time()
            done = rewrite_guarded(self.objects, unit)
            self.took_s += time.process_time() - began
            assert done.output is not None, done.failed
            self.written += done.output.size
            self._jobs += 1
            after = replaced(replace(first_state(IDENTITY, 1), live_segments=tuple(self.live)), done)
            assert after is not None
            self.live = after.live_segments
