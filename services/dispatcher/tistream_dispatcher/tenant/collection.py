"""Deletes consumed files: change files that no task needs any more, of the stores that this dispatcher reads. The
tenants' feeds decide which files these are. A store is LISTed only when one of its files may have reached its age, so a
store without new files causes no requests."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from tistream.clock import Clock
from tistream.concurrency import new_lock
from tistream.errors import TiStreamError
from tistream.model.ids import TenantKey
from tistream.storage import layout
from tistream.storage.deleting import Deleter
from tistream.storage.object_store import ObjectInfo, ObjectStore
from tistream_dispatcher.delivery.consumed import TaskNeeds, chain_begins, consumed
from tistream_dispatcher.metrics import DispatcherMetrics
from tistream_dispatcher.settings import CollectSettings
from tistream_dispatcher.stores.chain import ReadFiles, StoreChains

log = logging.getLogger(__name__)

DELETES_MAX = 1_000  # deletions in one pass
YOUNG_MAX = 1_000  # a LIST ends after this number of files that are too young: one page

Store = tuple[TenantKey, int]


@dataclass(slots=True)
class DeletionBounds:
    """What is known about a store's files, so that it is not LISTed in vain. No file with a ts below `first_ts` may be
    deleted, and no file at all before `age_ms` (wall clock). The bounds do not hold for files that arrive late; the
    next LIST finds those. The store is not LISTed before `next_ms` (monotonic)."""

    first_ts: int = 0
    age_ms: int = 0
    next_ms: int = 0


@dataclass(slots=True)
class ListResult:
    """What a LIST of a store has found: the files to delete, oldest first, and whether there are `more`. If there are
    no more, no file with a ts below `first_ts` can be deleted later, and none before `age_ms` (wall clock)."""

    files: list[ObjectInfo] = field(default_factory=list)
    more: bool = False
    first_ts: int = 0
    age_ms: int = 0


class ConsumedFiles:
    """The files of a tenant's stores that no task needs any more (consumed files). The tenant's thread computes them;
    another thread reads them."""

    def __init__(self, clock: Clock, every_ms: int | None) -> None:
        """`every_ms`: pause between two computations; None: never."""
        self._clock, self._every_ms = clock, every_ms
        self._due_ms = 0
        self._lock = new_lock()
        self._files: dict[int, ReadFiles] = {}

    def due(self) -> bool:
        """Whether `note` must be called again."""
        return self._every_ms is not None and self._clock.monotonic_ms() >= self._due_ms

    def note(self, stores: Mapping[int, StoreChains], needs: Sequence[TaskNeeds | None]) -> None:
        """Compute the files that no task needs, from the stores' chains and from the needs of each task of the tenant
        (None for a task of which nothing is known: then no file is deleted). `files` returns the result."""
        self._due_ms = self._clock.monotonic_ms() + (self._every_ms or 0)
        marks = {store_id: consumed(needs, store_id) for store_id in stores}
        read = {
            store_id: stores[store_id].read(mark.chain_ts, mark.through)
            for store_id, mark in marks.items()
            if mark is not None
        }
        with self._lock:
            self._files = {
                store_id: replace(files, begins=tuple(sorted({*files.begins, *chain_begins(needs, store_id)})))
                for store_id, files in read.items()
                if files is not None
            }

    def files(self) -> dict[int, ReadFiles]:
        """The files that `note` computed last, by store. Thread-safe."""
        with self._lock:
            return self._files


class FileCollector:
    """Deletes files that no task needs. A background loop calls `step`. `consumed` returns these files, by tenant and
    store."""

    def __init__(
        self,
        consumed: Callable[[], Mapping[TenantKey, Mapping[int, ReadFiles]]],
        objects: ObjectStore,
        clock: Clock,
        settings: CollectSettings,
        metrics: DispatcherMetrics,
    ) -> None:
        self._consumed, self._objects, self._clock = consumed, objects, clock
        self._settings, self._metrics = settings, metrics
        self._shelves: dict[Store, DeletionBounds] = {}
        self._deleter = Deleter(objects)

    def close(self) -> None:
        """Stop the threads that delete."""
        self._deleter.close()

    def step(self) -> int:
        """Delete what may be deleted now. Returns the ms until the next call."""
        stores = {(tenant, store_id): read for tenant, of in self._consumed().items() for store_id, read in of.items()}
        self._shelves = {store: self._shelves.get(store, DeletionBounds()) for store in stores}
        left = DELETES_MAX
        deleted: dict[Store, list[ObjectInfo]] = {}
        for store, read in stores.items():
            shelf = self._shelves[store]
            of_age = read.through >= shelf.first_ts and self._clock.now_ms() >= shelf.age_ms
            if left and of_age and self._clock.monotonic_ms() >= shelf.next_ms:
                gone = self._collect(store, read, left)
                left -= len(gone)
                if gone:
                    deleted[store] = gone
        self._log_deleted(deleted)
        return 0 if not left else self._settings.every_ms

    def _collect(self, store: Store, read: ReadFiles, most: int) -> list[ObjectInfo]:
        """Delete at most `most` of a store's files. Returns the files that were deleted."""
        shelf, gone = self._shelves[store], list[ObjectInfo]()
        shelf.next_ms = self._clock.monotonic_ms() + self._settings.every_ms
        try:
            listed = self._listed(store, read, most)
            keys, problem = self._deleter.delete(info.key for info in listed.files)
            went = set(keys)
            gone = [info for info in listed.files if info.key in went]
            if problem is not None:
                raise problem
        except TiStreamError as error:
            self._metrics.collect_failures.inc()
            fields = {"tenant": str(store[0]), "store": store[1], "reason": str(error)}
            log.warning("consumed files cannot be deleted yet", extra=fields)
            return gone
        if listed.more:
            shelf.next_ms = 0
        else:
            shelf.first_ts, shelf.age_ms = listed.first_ts, listed.age_ms
        return gone

    def _listed(self, store: Store, read: ReadFiles, most: int) -> ListResult:
        """LIST those of a store's files that may be deleted. The result has at most `most` of them.

        A file may be deleted once a later file of its chain was seen, so the newest one stays. Its age counts from its
        modification time, because its name gives only its place in the chain. Files mostly arrive in the order of their
        names, so the LIST ends after YOUNG_MAX files that are too young.
        """
        tenant, store_id = store
        found, young = ListResult(first_ts=read.through + 1), 0
        before: tuple[int, ObjectInfo] | None = None
        for info in self._objects.list_after(layout.change_file_prefix(tenant, store_id)):
            name = layout.parse_change_file(info.key)
            if name is None:
                continue
            ts = name[2]
            if before is not None and read.same_chain(before[0], ts):
                age_ms = before[1].modified_ms + self._settings.keep_ms
                if age_ms > self._clock.now_ms():
                    found.age_ms = min(age_ms, found.age_ms) if young else age_ms
                    found.first_ts = found.first_ts if young else before[0]
                    young += 1
                elif len(found.files) == most:
                    found.more = True
                    return found
                else:
                    found.files.append(before[1])
            if ts > read.through or young == YOUNG_MAX:
                found.first_ts = found.first_ts if young else ts
                return found
            before = (ts, info) if ts in read else None
        return found

    def _log_deleted(self, deleted: Mapping[Store, list[ObjectInfo]]) -> None:
        files = [info for gone in deleted.values() for info in gone]
        self._metrics.collected_files.inc(len(files))
        self._metrics.collected_bytes.inc(sum(info.size for info in files))
        for tenant in {tenant for tenant, _ in deleted}:
            mine = {store_id: gone for (of, store_id), gone in deleted.items() if of == tenant}
            fields = {
                "tenant": str(tenant),
                "stores": sorted(mine),
                "files": sum(map(len, mine.values())),
                "bytes": sum(info.size for gone in mine.values() for info in gone),
            }
            log.info("consumed files deleted", extra=fields)
