"""The registry's log in object storage: a numbered log (tistream/storage/numbered_log.py) of schema records.

Several processes of the registry may work at once, such as a paused one and its successor. All read the same committed
pool, and the one that puts a number first decides its content. The others read that object and continue after it, so no
process needs to be fenced.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from tistream.errors import CommitStateUnknown, CorruptObject, Unavailable
from tistream.model.ids import TenantKey
from tistream.schema import log_format
from tistream.schema.log_format import BaseHead, LogObject
from tistream.schema.records import Record
from tistream.schema.tidb.snapshot import parse_snapshot
from tistream.storage import layout
from tistream.storage.in_pieces import PIECE_BYTES, in_pieces
from tistream.storage.numbered_log import NumberedLog, NumberedObjects, Retries
from tistream.storage.object_store import ObjectStore

# limit of a schema_snap's bytes: 120,000 tables. In memory it may need four times that, of the registry's 3 GiB.
SNAPSHOT_BYTES = 640 << 20
_ATTEMPTS = 5
_PAUSES = (0.2,)
# The kinds of errors that end an append at once: the object store does not answer, and the tenant's loop has a backoff
# of its own.
_PUTS = Retries(_ATTEMPTS, _PAUSES, ends_on=(Unavailable,))
_FLOORS = Retries(_ATTEMPTS, _PAUSES, ends_on=())


@dataclass(frozen=True, slots=True)
class SchemaPayload:
    """Says how one tenant's schema log is stored as a numbered log: the key of each object, and how it is decoded. A
    floor must name a base, an object that restates all before it."""

    tenant: TenantKey
    noun = "schema log object"

    @property
    def what(self) -> str:
        return f"the schema log of {self.tenant}"

    @property
    def floor_key(self) -> str:
        return layout.schema_floor(self.tenant)

    def key(self, number: int) -> str:
        return layout.schema_log(self.tenant, number)

    def decode(self, number: int, body: bytes) -> LogObject:
        key = self.key(number)
        found = log_format.decode(key, body)
        if (found.tenant, found.number) != (self.tenant, number):
            raise CorruptObject(key, f"belongs to {found.tenant}, number {found.number}")
        return found

    def why_not_base(self, number: int, entry: LogObject | None) -> str | None:
        if entry is None:
            return f"names object {number}, which is not there"
        return f"names object {number}, which is no base" if entry.base is None else None


@dataclass(slots=True)
class DurableLog:
    """The schema log of one tenant. `number`: the last object that was read or written. `high_ts`: the ts up to which
    the log has the history with that object; 0 before the first. `base`: the newest base (an object that restates all
    before it) among the objects that were read or written."""

    objects: ObjectStore
    tenant: TenantKey
    nonce: str
    sleep: Callable[[float], None]
    snapshot_bytes: int = SNAPSHOT_BYTES
    number: int = field(default=0, init=False)
    high_ts: int = field(default=0, init=False)
    base: int = field(default=0, init=False)
    _entries: NumberedObjects[LogObject] = field(init=False)
    _log: NumberedLog[LogObject] = field(init=False)

    def __post_init__(self) -> None:
        self._entries = NumberedObjects(self.objects, SchemaPayload(self.tenant))
        self._log = NumberedLog(self._entries, self.sleep, puts=_PUTS, floors=_FLOORS)

    @property
    def floor(self) -> int:
        """The number of the base at which readers begin, as last read; 0 if there was none."""
        return self._entries.floor_seen

    def catch_up(self) -> list[LogObject]:
        """Read the objects after the last known one, until there are no more. If garbage collection has deleted some of
        them, the first returned object is a base, which replaces all before it.

        Raises:
            CorruptObject: an object is damaged, or the floor does not name a base.
            Unavailable: no answer came; the position in the log is unchanged.
        """
        run = self._entries.follow(self.number)
        self._check_windows(run.entries, 0 if run.restarted else self.high_ts)
        if run.restarted:
            self.number = self.high_ts = self.base = 0
        for found in run.entries:
            self._apply(found)
        return run.entries

    def begin(self) -> list[LogObject]:
        """Write object 1 from the tenant's schema_snap. Returns and raises the same as `append`; also raises
        NotFoundYet if there is no schema_snap, and CorruptObject if it is damaged or too large."""
        assert self.number == 0
        key = layout.schema_snap(self.tenant)
        snapshot = parse_snapshot(key, self._snapshot(key))
        low_ts, high_ts = snapshot.snapshot_ts - 1, snapshot.snapshot_ts
        return self._put(LogObject(self.tenant, 1, low_ts, high_ts, self.nonce, snapshot.records))

    def _snapshot(self, key: str) -> Iterator[bytes]:
        """Read schema_snap in pieces. Raises NotFoundYet, Unavailable; CorruptObject if it is too large, or changes
        while it is read."""
        data, size = self.objects.get_tail(key, PIECE_BYTES)
        if size == len(data):
            yield data
            return
        info = self.objects.head(key)
        if info.size > self.snapshot_bytes:
            raise CorruptObject(
                key,
                f"schema_snap has {info.size} bytes; no more than {self.snapshot_bytes} are read. If it must be so"
                " large: TISTREAM_SCHEMA__SNAPSHOT_BYTES, and four times that as memory for the registry",
            )
        yield from in_pieces(self.objects, info)

    def append(self, high_ts: int, records: tuple[Record, ...]) -> list[LogObject]:
        """Write one object with all records of the window (self.high_ts, high_ts].

        Returns the objects after the last known one: the new object, or those that another process has put first
        (beginning with a base, if older objects were deleted already). Raises Unavailable if it stays unknown whether
        the object was written; the same records may then be appended again. Raises CorruptObject if an object that
        another process has put, or the floor, is damaged.
        """
        assert self.number > 0
        assert high_ts > self.high_ts
        return self._put(LogObject(self.tenant, self.number + 1, self.high_ts, high_ts, self.nonce, records))

    def append_base(self, high_ts: int, head: BaseHead, records: tuple[Record, ...]) -> list[LogObject]:
        """Write a base that restates everything up to self.high_ts, and has no new records up to high_ts. `head` and
        `records` are the result of TenantSchema.rebased. Returns and raises the same as `append`."""
        assert self.number > 0
        assert head.base_ts <= self.high_ts <= high_ts
        return self._put(LogObject(self.tenant, self.number + 1, self.high_ts, high_ts, self.nonce, records, head))

    def raise_floor(self) -> None:
        """Set the floor to the newest base, at which readers begin from now on. Once this returns, objects below it may
        be deleted. Raises CommitConflict, CommitStateUnknown or Unavailable: the caller may try again. Raises
        CorruptObject if the stored floor is damaged."""
        self._log.raise_floor(self.base)

    def collect(self, below: int) -> int:
        """Delete every object with a number below `below`, which must be a present or former floor. Returns the number
        of deleted objects. Raises Unavailable; some objects may have been deleted then."""
        assert below <= self.floor
        end, keys = layout.schema_log(self.tenant, below), list[str]()
        for info in self.objects.list_after(layout.schema_log_prefix(self.tenant)):
            if info.key >= end:
                break
            keys.append(info.key)
        for key in keys:
            self.objects.delete(key)
        return len(keys)

    def _put(self, log_object: LogObject) -> list[LogObject]:
        try:
            counts = self._log.append(log_object.number, log_format.encode(log_object))
        except CommitStateUnknown as error:
            if isinstance(error.__cause__, Unavailable):
                raise error.__cause__ from None  # if the object exists, it counts: the next append reads it
            raise Unavailable(f"{error.key}: unknown whether it was written, {_ATTEMPTS} times") from error
        if not counts:
            return self.catch_up()
        self._apply(log_object)
        return [log_object]

    def _check_windows(self, entries: Sequence[LogObject], high_ts: int) -> None:
        """Check that the window of each object begins where that of the previous one ends. `high_ts`: where the log
        ended before; 0: the first object may begin anywhere."""
        for found in entries:
            if high_ts and found.low_ts != high_ts:
                key = layout.schema_log(self.tenant, found.number)
                raise CorruptObject(key, f"begins at {found.low_ts}; the object before it ends at {high_ts}")
            high_ts = found.high_ts

    def _apply(self, found: LogObject) -> None:
        self.number, self.high_ts = found.number, found.high_ts
        if found.base is not None:
            self.base = found.number
