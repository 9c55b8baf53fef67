"""Reserves the ids of territories in the object store. reservation.py decides."""

from __future__ import annotations

from collections.abc import Iterator

from tistream.errors import CommitConflict, CommitStateUnknown, CorruptObject
from tistream.model.ids import TenantKey
from tistream.storage import layout
from tistream.storage.object_store import ObjectStore
from tistream_agent import reservation
from tistream_agent.reservation import Reservation


class ReservedIds:
    """The reserved territory ids of one tenant. A reservation is never deleted: one that no process uses costs its id
    only."""

    def __init__(self, objects: ObjectStore, tenant: TenantKey) -> None:
        self._objects, self._tenant = objects, tenant

    def reserve(self, wanted: Reservation) -> str | None:
        """Reserve an id, unless it is reserved. Returns None if the id has the reservation `wanted` now; otherwise the
        reason why the caller may not begin its chain. Raises CorruptObject, NotFoundYet, Unavailable, and
        CommitStateUnknown if no answer came twice."""
        key, body = layout.reserved_territory(self._tenant, wanted.store_id), reservation.encode(wanted)
        try:
            self._create(key, body)
        except CommitConflict:
            return reservation.refusal(self._read(key, wanted.store_id), wanted)
        return None

    def name(self, store_id: int) -> None:
        """Reserve an id by name, in place of any other reservation. Only for an id whose chain no division has to begin
        any more: `tistream disconnect` has sealed it, or its division has given it up. Raises Unavailable."""
        key = layout.reserved_territory(self._tenant, store_id)
        self._objects.put(key, reservation.encode(Reservation(store_id)))

    def by_divisions(self) -> Iterator[Reservation]:
        """The reservations of divisions, by id. Damaged ones are left out. Raises Unavailable."""
        for info in self._objects.list_after(layout.reserved_prefix(self._tenant)):
            store_id = layout.parse_reserved_territory(self._tenant, info.key)
            if store_id is None:
                continue
            try:
                found = self._read(info.key, store_id)
            except CorruptObject:
                continue  # its id stays reserved, and no process begins its chain
            if found.division:
                yield found

    def _read(self, key: str, store_id: int) -> Reservation:
        data = self._objects.get_range(key, 0, reservation.BYTES_MAX + 1)
        return reservation.decode(key, data, store_id)

    def _create(self, key: str, body: bytes) -> None:
        """Create the object. If no answer comes, put the same bytes once more: a conflict then shows that an object
        exists, which may be this one."""
        try:
            self._objects.put_new(key, body)
        except CommitStateUnknown:
            self._objects.put_new(key, body)
