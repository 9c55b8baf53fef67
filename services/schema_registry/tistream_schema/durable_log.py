"""The registry's log in object storage: numbered objects, each created by one conditional put.

Several incarnations of the registry may work at once (a paused one, and its successor): all read the same committed
pool, and whoever puts a number first decides what it holds. The others take that object and go on behind it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from tistream.errors import CommitConflict, CommitStateUnknown, CorruptObject, NotFoundYet, Unavailable
from tistream.model.ids import TenantKey
from tistream.schema import log_format
from tistream.schema.log_format import LogObject
from tistream.schema.records import Record
from tistream.schema.snapshot import parse_snapshot
from tistream.storage import layout
from tistream.storage.object_store import ObjectStore

log = logging.getLogger(__name__)

_PUT_ATTEMPTS = 5
_PUT_PAUSE_S = 0.2


@dataclass(slots=True)
class DurableLog:
    """One tenant's log. `number` is the last object read or written, `high_ts` its end; 0 before the first."""

    objects: ObjectStore
    tenant: TenantKey
    nonce: str
    sleep: Callable[[float], None]
    number: int = field(default=0, init=False)
    high_ts: int = field(default=0, init=False)

    def catch_up(self) -> Iterator[LogObject]:
        """Objects behind the last one known, until there are no more. Raises CorruptObject."""
        while True:
            try:
                yield self._read(self.number + 1)
            except NotFoundYet:
                return

    def begin(self) -> LogObject:
        """Object 1 from the tenant's schema_snap. Raises NotFoundYet, CorruptObject (of schema_snap)."""
        assert self.number == 0
        key = layout.schema_snap(self.tenant)
        snapshot = parse_snapshot(key, self.objects.get(key))
        low_ts, high_ts = snapshot.snapshot_ts - 1, snapshot.snapshot_ts
        return self._put(LogObject(self.tenant, 1, low_ts, high_ts, self.nonce, snapshot.records))

    def append(self, high_ts: int, records: tuple[Record, ...]) -> LogObject:
        """Commit every record of (self.high_ts, high_ts].

        Returns what now stands behind the last object: this, or, if another incarnation was first, its object.
        Raises Unavailable if that stays unknown; the same records may then be appended again.
        """
        assert self.number > 0
        assert high_ts > self.high_ts
        return self._put(LogObject(self.tenant, self.number + 1, self.high_ts, high_ts, self.nonce, records))

    def _put(self, log_object: LogObject) -> LogObject:
        key = layout.schema_log(self.tenant, log_object.number)
        body = log_format.encode(log_object)
        for attempt in range(_PUT_ATTEMPTS):
            if attempt:
                self.sleep(_PUT_PAUSE_S)
            try:
                self.objects.put_new(key, body)
            except CommitStateUnknown:
                continue
            except CommitConflict:
                # Ours, if an earlier attempt came through after all; else another's. Either way it is the truth.
                return self._read(log_object.number)
            self.number, self.high_ts = log_object.number, log_object.high_ts
            return log_object
        raise Unavailable(f"{key}: unknown whether it was written, {_PUT_ATTEMPTS} times")

    def _read(self, number: int) -> LogObject:
        key = layout.schema_log(self.tenant, number)
        found = log_format.decode(key, self.objects.get(key))
        if (found.tenant, found.number) != (self.tenant, number):
            raise CorruptObject(key, f"belongs to {found.tenant}, number {found.number}")
        if number > 1 and found.low_ts != self.high_ts:
            raise CorruptObject(key, f"begins at {found.low_ts}; the object before it ends at {self.high_ts}")
        self.number, self.high_ts = number, found.high_ts
        return found
