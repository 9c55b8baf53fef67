"""Watches every write to the object store, as it happens, and holds the manifests against the invariants.

It knows nothing of how sorters work: what it reads are the bytes that they leave, in the order in which they became
visible. Numbers are those of the design's section 7.
"""

from __future__ import annotations

import re
import zlib
from dataclasses import dataclass, field
from pathlib import Path

from support.sim.index_audit import IndexAudit
from support.sim.sources import Sources
from tistream.clock import Clock
from tistream.format import floor as floor_format
from tistream.format import manifest as manifest_format
from tistream.format import served as served_format
from tistream.format.manifest import KIND_CLAIM, KIND_SEAL, SEALED, Manifest
from tistream.format.run import runs_of
from tistream.format.source_file import SourceFile
from tistream.storage import layout
from tistream.storage.backends.memory import MemoryObjectStore
from tistream.storage.object_store import ObjectStore

MANY_CHAINS = 8
_MANIFEST = re.compile(r"committed/.*/task-(\d+)/manifest/(\d{20})$")


def of_directory(objects: Path) -> Audit:
    """An audit of all that processes have left in a directory: tasks after those that they descend from, in order."""
    audit = Audit(None)
    found = [(match, path) for path in objects.rglob("manifest/*") if (match := _MANIFEST.search(str(path)))]
    for match, path in sorted(found, key=lambda one: (int(one[0][1]), int(one[0][2]))):
        floor = path.parent.parent / "floor"
        if floor.exists() and int(match[2]) < floor_format.decode(str(floor), floor.read_bytes()):
            continue  # about to be collected
        audit.wrote(str(path.relative_to(objects)), path.read_bytes())
    return audit


def of_store(objects: ObjectStore) -> Audit:
    """An audit of all objects in an object store."""
    audit = Audit(None)
    found = [(match, info.key) for info in objects.list_after("committed/") if (match := _MANIFEST.search(info.key))]
    for _, key in sorted(found, key=lambda one: (int(one[0][1]), int(one[0][2]))):
        audit.wrote(key, objects.get(key))
    return audit


class ObservedStore(MemoryObjectStore):
    """Tells an audit of each object written, at the moment at which everybody can see it."""

    def __init__(self, clock: Clock | None = None) -> None:
        super().__init__(clock)
        self.audit = Audit(self)
        self.writes = 0

    def _write(self, key: str, body: bytes) -> None:
        super()._write(key, body)
        self.writes += 1
        self.audit.wrote(key, body)

    def delete(self, key: str) -> None:
        if self.peek(key) is not None:
            self.audit.deleted(key)
        super().delete(key)

    def names(self) -> list[str]:
        """The keys of all objects that are there."""
        return list(self._objects)

    def peek(self, key: str) -> bytes | None:
        """An object's bytes, if it is there; also while a write is under way."""
        found = self._objects.get(key)
        return found[0] if found else None


@dataclass
class Audit:
    """`problems`: what was found, with the invariant's number."""

    objects: ObservedStore | None  # None: long after the writes, when what they named may have been used up
    problems: list[str] = field(default_factory=list)
    last: dict[int, Manifest] = field(default_factory=dict)  # by task
    told: dict[int, dict[int, int]] = field(default_factory=dict)  # task -> manifest -> highest progress told on it
    manifests: int = 0
    ticks: int = 0  # manifests that name new rows
    checkpoints: int = 0
    sources: int = 0  # source files that pending rows were found to point into
    sealed: int = 0  # pending parts that are segments already
    seals: int = 0
    late: int = 0  # manifests put below the floor
    crowded: int = 0  # manifests that know many chains of a store
    deletes: int = 0  # of what tasks have written
    compacted: int = 0  # segments that were replaced by larger ones
    live: dict[int, set[str]] = field(default_factory=dict)  # by task: segments, since its first state
    pending: dict[int, set[str]] = field(default_factory=dict)
    rows_of: dict[str, int] = field(default_factory=dict)  # by segment
    total: dict[int, int] = field(default_factory=dict)  # by task: rows of its live segments
    children: dict[int, int] = field(default_factory=dict)  # of seals: task -> flushed_ts of its parents
    files: Sources = field(default_factory=Sources)
    served_ts: int = 0  # what an API server has recorded that readers were told
    recorded: int = 0  # how often

    def __post_init__(self) -> None:
        self.index = IndexAudit(self._require)

    @property
    def heirs(self) -> int:
        """The number of tasks that began with the state of other tasks."""
        return len(self.children.keys() & self.last.keys())

    def wrote(self, key: str, body: bytes) -> None:
        """Check an object that was written."""
        self.files.pushed(key, body)
        if key.startswith("served/"):
            self._served(served_format.decode(key, body).resolved_ts)
        found = _MANIFEST.match(key)
        if found is not None and int(found[1]) in self.last and self._below_floor(int(found[1]), int(found[2])):
            self.late += 1  # a put long under way, at a number that was collected: nobody reads it
        elif found is not None:
            self._manifest(int(found[1]), int(found[2]), manifest_format.decode(key, body))

    def _served(self, resolved_ts: int) -> None:
        self._require(3, resolved_ts > self.served_ts, f"what was served falls from {self.served_ts} to {resolved_ts}")
        self.served_ts = resolved_ts
        self.recorded += 1

    def deleted(self, key: str) -> None:
        """Check that no live state depends on an object that is about to be deleted."""
        for problem in self.files.gone(key, self.last):
            self._require(12, False, problem)
        if not key.startswith("committed/"):
            return
        self.deletes += 1
        found = _MANIFEST.match(key)
        if found is not None:
            self._require(12, self._below_floor(int(found[1]), int(found[2])), f"{key} is gone, and above the floor")
        for task_id in self.last:
            goes_on = self.last[task_id].kind != KIND_SEAL or not self._heirs_have_begun(task_id)
            named = key in self.live.get(task_id, ()) or key in self.pending.get(task_id, ())
            named |= self.index.names(task_id, key)
            self._require(12, not (goes_on and named), f"{key} is gone, and task {task_id} names it")

    def _below_floor(self, task_id: int, number: int) -> bool:
        if self.objects is None:
            return False
        last = self.last[task_id]
        key = layout.floor(last.tenant, task_id)
        body = self.objects.peek(key)
        return body is not None and number < floor_format.decode(key, body)

    def _heirs_have_begun(self, task_id: int) -> bool:
        return all(child in self.live for child, _ in self.last[task_id].children)

    def progress(self, task_id: int, manifest: int, progress_ts: int) -> None:
        """Record the progress of a task that a sorter has reported, as of a manifest."""
        told = self.told.setdefault(task_id, {})
        told[manifest] = max(told.get(manifest, 0), progress_ts)

    def _manifest(self, task_id: int, number: int, new: Manifest) -> None:
        self.manifests += 1
        self.ticks += bool(new.segments)
        self.checkpoints += new.live_segments is not None
        self.sealed += sum(part.kind == SEALED for part in new.pending)
        self.crowded += any(len(chains) >= MANY_CHAINS for chains in new.positions.values())
        before = self.last.get(task_id)
        expected = before.number + 1 if before else 1
        self._require(11, (new.task_id, new.number) == (task_id, number), f"{task_id}/{number} names another")
        begins = before is None and self.objects is None and number > 1  # what lies before it may be collected
        self._require(11, begins or number == expected, f"task {task_id}: manifest {number} after {expected - 1}")
        epoch = before.task_epoch if before else new.task_epoch if begins and new.kind != KIND_CLAIM else 0
        if new.kind == KIND_CLAIM:
            self._require(11, new.task_epoch > epoch, f"task {task_id}: epoch {new.task_epoch} claims after {epoch}")
        else:
            self._require(11, new.task_epoch == epoch, f"task {task_id}: epoch {new.task_epoch} writes under {epoch}")
        if before is not None:
            self._require(11, before.kind != KIND_SEAL, f"task {task_id}: manifest {new.number} after its seal")
        # The first window begins at the snapshot, or where the task's parents have ended.
        flushed = (before.flushed_ts if before else 0) or self.children.get(task_id) or new.low_ts
        if begins:
            flushed = new.low_ts
        if new.kind == KIND_CLAIM and not new.flushed_ts:
            flushed = 0
        if new.kind == KIND_SEAL:
            self.seals += 1
            for child, _ in new.children:
                ended = self.children.setdefault(child, new.flushed_ts)
                self._require(3, ended == new.flushed_ts, f"task {child}: its parents end at {ended}, {new.flushed_ts}")
        self._require(3, new.low_ts == flushed, f"task {task_id}: window from {new.low_ts}, flushed {flushed}")
        self._require(3, new.flushed_ts >= new.low_ts, f"task {task_id}: flushed_ts falls to {new.flushed_ts}")
        if self.objects is not None:
            self._named_objects(self.objects, task_id, new)
            self.index.manifest(self.objects.peek, new)
        self._windows(task_id, new)
        self.last[task_id] = new
        self.files.noted(new)
        if new.kind != KIND_CLAIM:
            self._named(task_id, new)

    def _named(self, task_id: int, new: Manifest) -> None:
        """What the task's newest state rests on. Where segments are put together, no row is lost or doubled."""
        before = self.live.setdefault(task_id, set())
        live = before | {segment.key for segment in new.segments}
        if new.live_segments is not None:
            self.compacted += len(live - {segment.key for segment in new.live_segments})
            live = {segment.key for segment in new.live_segments}
        self.live[task_id], self.pending[task_id] = live, {part.key for part in new.pending}
        for segment in new.live_segments or new.segments:
            self.rows_of[segment.key] = segment.rows
        late = [segment.key for segment in new.segments if segment.commit_ts_min <= self.served_ts]
        self._require(5, not late, f"task {task_id}: {late} has rows at or below {self.served_ts}, which was served")
        total = sum(self.rows_of[key] for key in live)
        added = sum(segment.rows for segment in new.segments)
        known = self.total.get(task_id)
        if known is not None and not new.retained_ts:
            self._require(7, total == known + added, f"task {task_id}: {total} rows in {new.number}, {known} + {added}")
        self.total[task_id] = total

    def _named_objects(self, objects: ObservedStore, task_id: int, new: Manifest) -> None:
        for named in (*new.segments, *new.pending, *(new.live_segments or ()), *runs_of(new.index or ())):
            body = objects.peek(named.key)
            there = body is not None and len(body) == named.size and f"{zlib.crc32(body):08x}" == named.checksum
            self._require(10, there, f"task {task_id}: manifest {new.number} names {named.key}, which is not so")
        for source in {source for part in new.pending for source in part.sources}:
            self._require(
                12, self._source_is_there(objects, source), f"task {task_id}: {new.number} points into {source.key}"
            )

    def _source_is_there(self, objects: ObservedStore, source: SourceFile) -> bool:
        """Whether the row groups that are pointed into are what the manifest says."""
        self.sources += 1
        body = objects.peek(source.key)
        return (
            body is not None
            and len(body) == source.size
            and all(zlib.crc32(body[g.offset : g.offset + g.length]) == g.crc32 for g in source.groups)
        )

    def _windows(self, task_id: int, new: Manifest) -> None:
        told = max((ts for number, ts in self.told.get(task_id, {}).items() if number < new.number), default=0)
        for segment in new.segments:
            for group in segment.row_groups:
                low, high = group.commit_ts_min, group.commit_ts_max
                inside = new.low_ts < low and high <= new.flushed_ts
                self._require(5, inside, f"task {task_id}: rows of {low}..{high} in ({new.low_ts}, {new.flushed_ts}]")
                self._require(5, low > told, f"task {task_id}: a row of {low} after progress {told} had been told")

    def _require(self, invariant: int, holds: bool, what: str) -> None:
        if not holds:
            self.problems.append(f"invariant {invariant}: {what}")
