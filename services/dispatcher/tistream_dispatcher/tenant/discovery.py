"""Finds a tenant's stores that no route names yet, and reports them until the meta server has assigned them.

Only the tenant's discoverer looks for stores. Each of its heartbeats contains the stores that it has found.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from itertools import islice

from tistream.concurrency import new_lock
from tistream.errors import InvalidRequest, NotFoundYet, RetryableError
from tistream.model.ids import TenantKey
from tistream.storage import layout
from tistream.storage.object_store import ObjectStore
from tistream.wire.sorter import Hold
from tistream_dispatcher.tenant.share import Share

log = logging.getLogger(__name__)

LOOKS_MAX = 8  # LISTs in one pass of prefixes that have a store's name and no change file
NAMES_MAX = 1_000  # names that each of these LISTs looks at
STORES_MAX = 8_192  # limit for a tenant; a writer of its files can create any number of objects that look like stores
TOO_MANY = (
    f"there are more than {STORES_MAX} stores; no more are read: a program writes names that look like stores below "
    "the push prefix; stop it, and retire them (`tistream store retire`)"
)
UNREAD = "the store was found, and the meta server has not said yet which dispatcher reads it"


class Discovery:
    """The stores of one tenant that were found and that no dispatcher reads yet. Only the tenant's thread may use it,
    except for `found`. `report_now` is called when a new store was found."""

    def __init__(self, tenant: TenantKey, objects: ObjectStore, report_now: Callable[[], None]) -> None:
        self.problem: str | None = None  # the reason if the LIST of the stores failed
        self._tenant = tenant
        self._objects = objects
        self._report_now = report_now
        self._lock = new_lock()
        self._found: frozenset[int] = frozenset()
        self._named: frozenset[int] = frozenset()
        self._with_files: set[int] = set()
        self._troubles: dict[int, str] = {}  # stores that could not be examined, with the reasons
        self._looked = -1  # the last store that was examined and had no file
        self._too_many = False

    def apply(self, share: Share) -> None:
        """Use a new route table: forget the stores that it names. If another dispatcher discovers from now on, forget
        all."""
        if not share.discovers:
            self.problem = None
            self._troubles.clear()
        with self._lock:
            self._named = share.named
            self._found = self._found - share.named if share.discovers else frozenset()

    @property
    def incomplete(self) -> bool:
        """Whether there may be stores that were not found, because a LIST failed."""
        return self.problem is not None or bool(self._troubles)

    def found(self) -> frozenset[int]:
        """Stores that no dispatcher reads yet. Thread-safe."""
        with self._lock:
            return self._found

    def note(self, store_ids: Iterable[int]) -> None:
        """Add stores that the routes do not name, up to STORES_MAX in all, and call `report_now` if one of them is new.
        The limit exists because every store is read in each pass, sent in every heartbeat, and stored by the meta
        server."""
        with self._lock:
            unknown = frozenset(store_ids) - self._found
            new = frozenset(sorted(unknown)[: max(0, STORES_MAX - len(self._named) - len(self._found))])
            self._too_many |= len(new) < len(unknown)
            self._found |= new
        for store_id in sorted(new):
            log.info("store found", extra={"tenant": str(self._tenant), "store": store_id})
        if new:
            self._report_now()

    def listed(self) -> set[int]:
        """LIST the tenant's stores. Returns those that the routes name, or that have a change file. If the LIST fails,
        it returns an empty set and sets `problem` to the reason.

        A prefix with a store's name and no change file does not count, because a store that counts is LISTed for ever,
        at a cost. A few of these prefixes are examined in each call, in turn.
        """
        try:
            entries = list(self._objects.list_after(layout.push_prefix(self._tenant), delimiter="/"))
        except RetryableError as error:
            self.problem = str(error)
            return set()
        self.problem, self._too_many = None, False
        names = (layout.parse_store_prefix(self._tenant, entry.key) for entry in entries)
        stores = {name for name in names if name is not None}
        self._with_files &= stores
        unknown = stores - self._named - self._with_files
        self._troubles = {one: why for one, why in self._troubles.items() if one in unknown}
        self._look(unknown)
        return stores & (self._named | self._with_files)

    def _look(self, stores: set[int]) -> None:
        """Find out which of these stores have a change file, and remember them. An error of one store does not affect
        the others. If the object store does not answer, the remaining stores are left to the next call, so that the
        caller waits for only one timeout."""
        in_vain = 0
        for store_id in sorted(stores, key=lambda one: (one <= self._looked, one)):
            self._troubles.pop(store_id, None)
            try:
                if self._has_files(store_id):
                    self._with_files.add(store_id)
                    continue
                in_vain += 1
            except InvalidRequest as error:  # a link leads out of the store's directory
                self._troubles[store_id] = str(error)
                in_vain += 1
            except RetryableError as error:
                self._troubles[store_id] = str(error)
                in_vain = LOOKS_MAX
            self._looked = store_id
            if in_vain >= LOOKS_MAX:
                return

    def _has_files(self, store_id: int) -> bool:
        objects = self._objects.list_after(layout.change_file_prefix(self._tenant, store_id))
        return any(layout.parse_change_file(one.key) is not None for one in islice(objects, NAMES_MAX))

    def file_exists(self, store_id: int, ts: int) -> bool | None:
        """Ask the object store whether it has the announced file of a store. Returns None if it did not answer, with
        the reason in `problem`. Returns False if a link leads out of the store's directory; LIST finds such a store,
        and names it. Without this check a caller could announce stores that do not exist, and each would be LISTed for
        ever, at a cost."""
        try:
            self._objects.head(layout.change_file(self._tenant, store_id, ts))
        except (NotFoundYet, InvalidRequest):
            return False
        except RetryableError as error:
            self.problem = str(error)
            return None
        return True

    def holds(self) -> list[Hold]:
        """The holds (see glossary) for stores that wait for a dispatcher, and for errors because of which other stores
        may not be known."""
        holds = [Hold(stage="dispatch", store_id=str(one), reason=UNREAD) for one in sorted(self.found())]
        holds += [Hold(stage="dispatch", store_id=str(one), reason=why) for one, why in sorted(self._troubles.items())]
        holds += [Hold(stage="dispatch", reason=TOO_MANY)] if self._too_many else []
        return holds if self.problem is None else [*holds, Hold(stage="dispatch", reason=self.problem)]
