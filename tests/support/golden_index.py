"""A recorded cluster in tasks whose version index is built, and that are split, while its files arrive."""

from __future__ import annotations

import bisect
import functools
import random
from collections.abc import Callable
from dataclasses import dataclass, field

from support import golden as golden_sets
from support.golden import GoldenSet
from support.index_reader import Versions, part_versions, parts_of
from support.sim.audit import ObservedStore
from support.split_world import SplitWorld
from tistream.model.ts import physical_ms
from tistream.pool.lineage import Lineage, LogSpan
from tistream.schema import log_format
from tistream.schema.log_format import LogObject
from tistream.storage import layout
from tistream_sorter.upkeep.gc_plan import CollectRules
from tistream_sorter.upkeep.index_plan import IndexRules

RULES = IndexRules(age_ms=500, run_bytes=32 << 10, unpacked_max=1 << 20)
Change = tuple[bytes, int, bytes | None, bytes | None]  # key, op, value, old value


@functools.cache
def changes(name: str) -> dict[int, list[Change]]:
    """What was committed, by commit_ts."""
    out: dict[int, list[Change]] = {}
    rows = golden_sets.committed_rows(name).select("commit_ts", "key", "op", "value", "old_value")
    for commit_ts, *change in rows.iter_rows():
        out.setdefault(commit_ts, []).append(tuple(change))
    return out


@dataclass
class GoldenIndex:
    """A golden set in `tasks` tasks: one at first, split while files arrive. `keep_ms`: the tenant's retention.
    `watch`: called after each turn, with the world."""

    golden: GoldenSet
    tasks: int
    keep_ms: int | None = None
    objects: ObservedStore = field(default_factory=ObservedStore)
    watch: Callable[[SplitWorld], None] = lambda _: None

    def run(self) -> None:
        world = SplitWorld(self.golden, objects=self.objects, index=RULES, collect=CollectRules(0, 0))
        if self.keep_ms is not None:
            log = LogObject(self.golden.tenant, 1, 0, 1 << 61, "00", ())
            self.objects.put(layout.schema_log(self.golden.tenant, 1), log_format.encode(log))
            world.keep_ms = self.keep_ms
            world.assign()
        keys = sorted({key for rows in changes(self.golden.name).values() for key, *_ in rows})
        bounds = random.Random(self.tasks).sample(keys, self.tasks - 1)
        every = len(self.golden.files) // (len(bounds) + 1)
        for number, file in enumerate(self.golden.files):
            world.push(file)
            world.clock.advance(max(0, physical_ms(file.store_and_ts[1]) - world.clock.now_ms()))
            if number % 50 == 0:
                self._turn(world)
            if number % every == 0 and bounds:
                bound = bounds.pop()
                world.split(next(row.task_id for row in world.rows.values() if bound in row.span), bound)
                self._turn(world)
        for _ in range(100):
            world.clock.advance(11_000)
            if not self._turn(world):
                break
        assert world.stopped() == []
        assert self.objects.audit.problems == []
        assert len(world.rows) == self.tasks
        self.covers = self.covers_of(world)

    def covers_of(self, world: SplitWorld) -> list[LogSpan]:
        """What the tasks have now, by their manifests."""
        lineage = Lineage(self.objects, self.golden.tenant)
        return [cover for row in world.rows.values() for cover in lineage.covers(row, None)]

    def _turn(self, world: SplitWorld) -> bool:
        world.tick()
        worked = world.node.compact()
        world.tick()
        world.node.collect()
        self.watch(world)
        return worked

    def check(self) -> int:
        """Compare all states from the base on; return their number."""
        history, base_ts = self._histories(self.covers)
        checked = 0
        below = {key: [value for ts, value in versions if ts <= base_ts] for key, versions in history.items()}
        truth = _state(changes(self.golden.name), base_ts)
        assert {key: values[-1] for key, values in below.items() if values and values[-1] is not None} == truth
        for commit_ts, rows in sorted(changes(self.golden.name).items()):
            if commit_ts <= base_ts:
                continue
            for key, op, value, old_value in rows:
                versions = history[key]
                at = bisect.bisect_right(versions, commit_ts, key=lambda one: one[0]) - 1
                assert versions[at] == (commit_ts, value if op == 1 else None)
                if at:  # below the first one may be a row from before the snapshot
                    assert versions[at - 1][1] == old_value, "the version below a change is its old value"
                truth[key] = value
            checked += 1
        assert sum(len(rows) for ts, rows in changes(self.golden.name).items() if ts > base_ts) == sum(
            sum(ts > base_ts for ts, _ in versions) for versions in history.values()
        ), "the index has no version that was not committed"
        return checked

    def _histories(self, covers: list[LogSpan]) -> tuple[dict[bytes, list[tuple[int, bytes | None]]], int]:
        """The versions of each key, oldest first, as (commit_ts, value or None for a delete); and the base_ts."""
        versions: Versions = {}
        base_ts = max([self.golden.snapshot_ts, *(cover.log.view.base_ts for cover in covers)])
        for cover in covers:
            for part in parts_of(cover.log.view):
                versions |= part_versions(self.objects, part, cover.log.segments, cover.span)
        history: dict[bytes, list[tuple[int, bytes | None]]] = {}
        for (key, commit_ts), version in sorted(versions.items()):
            history.setdefault(key, []).append((commit_ts, version.value if version.op == 1 else None))
        return history, base_ts


def _state(by_ts: dict[int, list[Change]], ts: int) -> dict[bytes, bytes | None]:
    state: dict[bytes, bytes | None] = {}
    for commit_ts, rows in sorted(by_ts.items()):
        for key, op, value, _ in rows if commit_ts <= ts else ():
            if op == 1:
                state[key] = value
            else:
                state.pop(key, None)
    return state
