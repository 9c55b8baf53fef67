"""A tenant's stores that no route names yet: finds them, and keeps them until the meta server has said who reads them.

Only the dispatcher that discovers the tenant looks; what it has found goes with each of its heartbeats.
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
from tistream_dispatcher.share import Share

log = logging.getLogger(__name__)

LOOKS_MAX = 8  # LISTs at a time of what is called like a store and has no change file
NAMES_MAX = 1_000  # looked at for that, of each
STORES_MAX = 8_192  # of a tenant; whoever may write its files may write such that look like another store's each
TOO_MANY = f"there are more than {STORES_MAX} stores; no more are read"
UNREAD = "the store was found, and the meta server has not said yet which dispatcher reads it"


class Discovery:
    """Owned by the tenant's thread, but for `found`. `tell` is called when there is a new store."""

    def __init__(self, tenant: TenantKey, objects: ObjectStore, tell: Callable[[], None]) -> None:
        self.problem: str | None = None  # why stores could not be looked for
        self._tenant = tenant
        self._objects = objects
        self._tell = tell
        self._lock = new_lock()
        self._found: frozenset[int] = frozenset()
        self._named: frozenset[int] = frozenset()
        self._with_files: set[int] = set()
        self._troubles: dict[int, str] = {}  # stores that could not be looked at
        self._looked = -1  # the store that was last looked at in vain
        self._too_many = False

    def take(self, share: Share) -> None:
        """A new route table: forget what it names, and all if another dispatcher looks from now on."""
        if not share.discovers:
            self.problem = None
            self._troubles.clear()
        with self._lock:
            self._named = share.named
            self._found = self._found - share.named if share.discovers else frozenset()

    @property
    def troubled(self) -> bool:
        """Whether there may be stores that could not be seen."""
        return self.problem is not None or bool(self._troubles)

    def found(self) -> frozenset[int]:
        """Stores that nobody reads yet. By any thread."""
        with self._lock:
            return self._found

    def note(self, store_ids: Iterable[int]) -> None:
        """Stores are there that the routes do not name: all that are read at every turn, told with every heartbeat and
        kept by the meta server, so no more of them than there may be."""
        with self._lock:
            unknown = frozenset(store_ids) - self._found
            new = frozenset(sorted(unknown)[: max(0, STORES_MAX - len(self._named) - len(self._found))])
            self._too_many |= len(new) < len(unknown)
            self._found |= new
        for store_id in sorted(new):
            log.info("store found", extra={"tenant": str(self._tenant), "store": store_id})
        if new:
            self._tell()

    def listed(self) -> set[int]:
        """LIST the stores; none where that failed: `problem` says why.

        What has only the name of a store is none: each that is read is LISTed for ever. Such are looked at in turn, a
        few at a time.
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
        """Which of them have a change file. Trouble with one leaves the others alone; where the object store does not
        answer, the others are asked for next time, and who waits for an answer waits once."""
        in_vain = 0
        for store_id in sorted(stores, key=lambda one: (one <= self._looked, one)):
            self._troubles.pop(store_id, None)
            try:
                if self._has_files(store_id):
                    self._with_files.add(store_id)
                    continue
                in_vain += 1
            except InvalidRequest as error:  # a link out of the store
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

    def has(self, store_id: int, ts: int) -> bool | None:
        """Whether a store has that file, which was announced; None where that is not known: `problem` says why.

        Anybody may announce any store, and each that is known is LISTed for ever.
        """
        try:
            self._objects.head(layout.change_file(self._tenant, store_id, ts))
        except NotFoundYet:
            return False
        except RetryableError as error:
            self.problem = str(error)
            return None
        return True

    def holds(self) -> list[Hold]:
        """Stores that wait for a dispatcher, and why others may not be known."""
        holds = [Hold(stage="dispatch", store_id=str(one), reason=UNREAD) for one in sorted(self.found())]
        holds += [Hold(stage="dispatch", store_id=str(one), reason=why) for one, why in sorted(self._troubles.items())]
        holds += [Hold(stage="dispatch", reason=TOO_MANY)] if self._too_many else []
        return holds if self.problem is None else [*holds, Hold(stage="dispatch", reason=self.problem)]
