"""The registry's log in object storage: numbered objects, each created by one conditional put, and their floor.

Several incarnations of the registry may work at once (a paused one, and its successor). All read the same committed
pool, and the one that puts a number first decides its content. The others take that object and continue after it.

The floor names a base, at which readers begin. It only rises, and objects below it may be deleted at any moment. As
with manifests, it is read again after each object that the reader relies on. An object below the floor proves nothing,
because a put that was under way for long can bring a deleted object back.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from tistream.errors import (
    CommitConflict,
    CommitStateUnknown,
    CorruptObject,
    NotFoundYet,
    TiStreamError,
    Unavailable,
)
from tistream.format import floor as floor_format
from tistream.model.ids import TenantKey
from tistream.schema import log_format
from tistream.schema.log_format import BaseHead, LogObject
from tistream.schema.records import Record
from tistream.schema.tidb.snapshot import parse_snapshot
from tistream.storage import layout
from tistream.storage.in_pieces import PIECE_BYTES, in_pieces
from tistream.storage.object_store import ObjectStore

log = logging.getLogger(__name__)

# limit of a schema_snap: 120,000 tables. Four times as much may be held, of the registry's 3 GiB.
SNAPSHOT_BYTES = 640 << 20
_ATTEMPTS = 5
_PAUSE_S = 0.2
_PLANS = 10  # times that the floor may overtake one call


@dataclass(slots=True)
class DurableLog:
    """The log of one tenant. `number`: the last object read or written; `high_ts`: its end; 0 before the first. `base`:
    the newest base among them. `floor`: the floor as last seen; 0: there was no floor.
    """

    objects: ObjectStore
    tenant: TenantKey
    nonce: str
    sleep: Callable[[float], None]
    snapshot_bytes: int = SNAPSHOT_BYTES
    number: int = field(default=0, init=False)
    high_ts: int = field(default=0, init=False)
    base: int = field(default=0, init=False)
    floor: int = field(default=0, init=False)

    def catch_up(self) -> list[LogObject]:
        """Read the objects after the last known one, until there are no more. If they have been collected meanwhile,
        the first returned object is a base, which replaces all before it.

        Raises:
            CorruptObject: an object is damaged, or the floor does not name a base.
            Unavailable: no answer came; the position in the log is unchanged.
        """
        position = self.number, self.high_ts, self.base
        try:
            return self._catch_up()
        except TiStreamError:
            self.number, self.high_ts, self.base = position
            raise

    def begin(self) -> list[LogObject]:
        """Write object 1 from the tenant's schema_snap. Raises NotFoundYet, CorruptObject (of schema_snap)."""
        assert self.number == 0
        key = layout.schema_snap(self.tenant)
        snapshot = parse_snapshot(key, self._snapshot(key))
        low_ts, high_ts = snapshot.snapshot_ts - 1, snapshot.snapshot_ts
        return self._put(LogObject(self.tenant, 1, low_ts, high_ts, self.nonce, snapshot.records))

    def _snapshot(self, key: str) -> Iterator[bytes]:
        """The object, piece by piece. Raises NotFoundYet, and CorruptObject if it is too large or changes meanwhile."""
        data, size = self.objects.get_tail(key, PIECE_BYTES)
        if size == len(data):
            yield data
            return
        info = self.objects.head(key)
        if info.size > self.snapshot_bytes:
            raise CorruptObject(
                key,
                f"schema_snap has {info.size} bytes; no more than {self.snapshot_bytes} are read. If it is to be so"
                " large: TISTREAM_SCHEMA__SNAPSHOT_BYTES, and four times that as memory for the registry",
            )
        yield from in_pieces(self.objects, info)

    def append(self, high_ts: int, records: tuple[Record, ...]) -> list[LogObject]:
        """Commit every record of (self.high_ts, high_ts].

        Returns the objects after the last known one: this one, or those of other incarnations that were first (a base,
        if their objects were collected already). Raises Unavailable if the outcome stays unknown; the same records may
        then be appended again.
        """
        assert self.number > 0
        assert high_ts > self.high_ts
        return self._put(LogObject(self.tenant, self.number + 1, self.high_ts, high_ts, self.nonce, records))

    def append_base(self, high_ts: int, head: BaseHead, records: tuple[Record, ...]) -> list[LogObject]:
        """Commit a base that restates everything up to self.high_ts, with nothing new up to high_ts; as `append`."""
        assert self.number > 0
        assert head.base_ts <= self.high_ts <= high_ts
        return self._put(LogObject(self.tenant, self.number + 1, self.high_ts, high_ts, self.nonce, records, head))

    def raise_floor(self) -> None:
        """Let readers begin at the newest base. Once this returns, objects below it may be deleted. Raises
        Unavailable.
        """
        problem: TiStreamError = Unavailable(f"floor of the schema log of {self.tenant}: lost every race")
        for attempt in range(_ATTEMPTS):
            if attempt:
                self.sleep(_PAUSE_S)
            try:
                self._raise_floor_once()
            except (CommitConflict, CommitStateUnknown, Unavailable) as error:
                problem = error
            else:
                return
        raise problem

    def collect(self, below: int) -> int:
        """Delete every object with a number below `below`, a present or former floor; returns their number."""
        assert below <= self.floor
        end, keys = layout.schema_log(self.tenant, below), list[str]()
        for info in self.objects.list_after(layout.schema_log_prefix(self.tenant)):
            if info.key >= end:
                break
            keys.append(info.key)
        for key in keys:
            self.objects.delete(key)
        return len(keys)

    def _raise_floor_once(self) -> None:
        key, body = layout.schema_floor(self.tenant), floor_format.encode(self.base)
        try:
            version = self.objects.head(key).version  # before the body: a change between shows in put_if
            current = floor_format.decode(key, self.objects.get(key))
        except NotFoundYet:
            self.objects.put_new(key, body)
            self.floor = self.base
            return
        if current < self.base:
            self.objects.put_if(key, body, version)
        self.floor = max(current, self.base)

    def _catch_up(self) -> list[LogObject]:
        for _ in range(_PLANS):
            first = self.number + 1 if self.number else max(1, self._read_floor())
            try:
                found = self._from(first)
            except CorruptObject:
                if self._read_floor() <= first:
                    raise  # else it is below the floor and not a part of the log any more
            else:
                if self._read_floor() <= first:
                    return found
            self.number = self.high_ts = self.base = 0
        raise Unavailable(f"the floor of the schema log of {self.tenant} moves faster than it can be read")

    def _from(self, first: int) -> list[LogObject]:
        if self.number or first == 1:
            return list(self._run())
        key = layout.schema_floor(self.tenant)
        try:
            base = self._read(first)
        except NotFoundYet as error:
            raise CorruptObject(key, f"names object {first}, which is not there") from error
        if base.base is None:
            raise CorruptObject(key, f"names object {first}, which is no base")
        return [base, *self._run()]

    def _run(self) -> Iterator[LogObject]:
        while True:
            try:
                yield self._read(self.number + 1)
            except NotFoundYet:
                return

    def _put(self, log_object: LogObject) -> list[LogObject]:
        key = layout.schema_log(self.tenant, log_object.number)
        body = log_format.encode(log_object)
        for attempt in range(_ATTEMPTS):
            if attempt:
                self.sleep(_PAUSE_S)
            try:
                self.objects.put_new(key, body)
            except CommitStateUnknown:
                continue
            except CommitConflict:
                # Our own object, if an earlier attempt succeeded after all; else another's. Either way it counts.
                if found := self.catch_up():
                    return found
                continue  # it was another conflict: put again
            if self._read_floor() > log_object.number:
                return self.catch_up()  # others have passed this number long ago, so the object that was put is garbage
            self._take(log_object)
            return [log_object]
        raise Unavailable(f"{key}: unknown whether it was written, {_ATTEMPTS} times")

    def _read_floor(self) -> int:
        key = layout.schema_floor(self.tenant)
        try:
            self.floor = max(self.floor, floor_format.decode(key, self.objects.get(key)))
        except NotFoundYet:
            return self.floor
        return self.floor

    def _read(self, number: int) -> LogObject:
        key = layout.schema_log(self.tenant, number)
        found = log_format.decode(key, self.objects.get(key))
        if (found.tenant, found.number) != (self.tenant, number):
            raise CorruptObject(key, f"belongs to {found.tenant}, number {found.number}")
        if self.number and found.low_ts != self.high_ts:
            raise CorruptObject(key, f"begins at {found.low_ts}; the object before it ends at {self.high_ts}")
        self._take(found)
        return found

    def _take(self, found: LogObject) -> None:
        self.number, self.high_ts = found.number, found.high_ts
        if found.base is not None:
            self.base = found.number
