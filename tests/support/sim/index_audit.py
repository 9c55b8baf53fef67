"""Holds the version index of each manifest against all rows that were ever committed (invariants 25 to 28)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from support.index_reader import Versions, inside, newest, run_versions, versions_of
from tistream.errors import TiStreamError
from tistream.format.manifest import Manifest
from tistream.format.run import Index, IndexPart, RunRef, check_index, runs_of
from tistream.format.segment import SegmentRef
from tistream.model.ids import TenantKey
from tistream.model.ts import MAX_TS, Window
from tistream.pool.rows import read_rows
from tistream.storage.backends.memory import MemoryObjectStore
from tistream.storage.object_store import ObjectStore

Require = Callable[[int, bool, str], None]


@dataclass
class IndexAudit:
    """`runs`: run objects whose content was checked; `folds`: base runs; `parts`: the most parts of one index."""

    require: Require
    runs: int = 0
    folds: int = 0
    parts: int = 0
    _committed: dict[TenantKey, Versions] = field(default_factory=dict)
    bases: int = 0  # objects of backfills
    _older: dict[TenantKey, Versions] = field(default_factory=dict)  # rows of backfills
    _seen: set[str] = field(default_factory=set)  # segments
    _index: dict[int, Index] = field(default_factory=dict)  # by task
    _checked: set[tuple[RunRef, bytes, bytes]] = field(default_factory=set)

    def manifest(self, peek: Callable[[str], bytes | None], new: Manifest) -> None:
        """A manifest is about to count; all that it names is there. `peek`: an object's bytes, while its store is
        locked by the write of the manifest."""
        objects = MemoryObjectStore()
        segments = [one for one in (*new.segments, *(new.live_segments or ())) if one.key not in self._seen]
        for key in {*(one.key for one in segments), *(run.key for run in runs_of(new.index or ()))}:
            if (body := peek(key)) is not None:
                objects.put(key, body)
        committed = self._committed.setdefault(new.tenant, {})
        for segment in (*new.segments, *(new.live_segments or ())):
            self._commit(objects, committed, segment)
        if new.index is None:
            return
        before = self._index.get(new.task_id, ())
        try:
            check_index(new.index, new.span, new.flushed_ts, before)
        except TiStreamError as error:
            self.require(25, False, f"task {new.task_id}: manifest {new.number}: {error}")
        self._index[new.task_id] = new.index
        self.parts = max(self.parts, len(new.index))
        for part in new.index:
            where = f"task {new.task_id}: manifest {new.number}"
            older = self._older.setdefault(new.tenant, {})
            self._basis(objects, committed, older, part, where)
            self._part(objects, committed, older, part, where)
        self._covered(new, committed)

    def names(self, task_id: int, key: str) -> bool:
        """Whether the newest index of a task names an object."""
        return any(run.key == key for run in runs_of(self._index.get(task_id, ())))

    def _commit(self, objects: ObjectStore, committed: Versions, segment: SegmentRef) -> None:
        if segment.key not in self._seen:
            self._seen.add(segment.key)
            committed |= versions_of(read_rows(objects, segment, Window(0, MAX_TS)))

    def _basis(self, objects: ObjectStore, committed: Versions, older: Versions, part: IndexPart, where: str) -> None:
        """A row of a backfill is the oldest version of its key. It is never there twice."""
        fresh = [run for run in part.basis if (run, part.span.start, part.span.end) not in self._checked]
        if not fresh:
            return
        self.bases += len(fresh)
        self._checked |= {(run, part.span.start, part.span.end) for run in fresh}
        older |= run_versions(objects, part.basis, part.span)
        for run in fresh:
            logged = {key for key, _ in inside(committed, part.span, part.begins_ts, run.high_ts)}
            wrong = logged & {key for key, _ in run_versions(objects, [run], part.span)}
            what = f"{where}: {run.key} has rows of which the log has a version: {sorted(wrong)[:3]}"
            self.require(25, not wrong, what)

    def _part(self, objects: ObjectStore, committed: Versions, older: Versions, part: IndexPart, where: str) -> None:
        everything = inside(committed, part.span, part.begins_ts)
        # Windows without a run have no rows; so all windows at once say the same as each by itself.
        fresh = [run for run in part.runs if (run, part.span.start, part.span.end) not in self._checked]
        if not fresh:
            return
        self.runs += len(fresh)
        self.folds += any(run.low_ts is None for run in fresh)
        self._checked |= {(run, part.span.start, part.span.end) for run in fresh}
        base = run_versions(objects, part.base, part.span)
        logged = newest(everything, part.base_ts)
        possible = newest(inside(older, part.span) | everything, part.base_ts)
        right = logged.items() <= base.items() <= possible.items()
        self.require(25, right, f"{where}: the base at {part.base_ts} is wrong")
        above = run_versions(objects, (run for run in part.runs if run.low_ts is not None), part.span)
        wanted = inside(everything, part.span, part.base_ts, part.indexed_ts)
        self.require(25, above == wanted, f"{where}: {len(above)} versions in runs, {len(wanted)} committed")

    def _covered(self, new: Manifest, committed: Versions) -> None:
        """What a reader of the index finds: runs up to indexed_ts, live segments above it."""
        if new.live_segments is None:
            return
        for part in new.index or ():
            above = inside(committed, part.span, part.indexed_ts, new.flushed_ts)
            lowest = {ts for _, ts in above}
            held = [(one.commit_ts_min, one.commit_ts_max) for one in new.live_segments]
            lost = [ts for ts in lowest if not any(low <= ts <= high for low, high in held)]
            what = f"task {new.task_id}: manifest {new.number}: rows at {sorted(lost)[:3]} are in no run and no segment"
            self.require(25, not lost, what)
