"""The records of a tenant's releases: each says which part of a log backup is taken next (docs/log-backup.md). Records
are numbered objects, each created by one conditional put.

Numbers have no gaps, because a writer puts number n + 1 only after it has read n. So the newest record is found by
bisection. Records are never deleted while the tenant exists, because a deleted number could be written again with other
content.
"""

from __future__ import annotations

from dataclasses import dataclass

from tistream.errors import CommitConflict, CommitStateUnknown, CorruptObject, NotFoundYet
from tistream.logbackup import release as records
from tistream.logbackup.release import Release
from tistream.model.ids import TenantKey
from tistream.storage import layout
from tistream.storage.object_store import ObjectStore


@dataclass(frozen=True, slots=True)
class ReleaseLog:
    """The release records of one tenant."""

    objects: ObjectStore
    tenant: TenantKey

    def newest(self, known: int = 0) -> Release | None:
        """Find the newest record by bisection. `known` is the number of a record that is known to exist; 0: none is
        known. Returns None if the tenant has no record. Raises Unavailable; CorruptObject if the record is damaged."""
        low, step = known, 1
        while self._is_there(low + step):
            low += step
            step *= 2
        high = low + step  # record `low` exists (or low is 0), record `high` does not
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if self._is_there(middle) else (low, middle)
        return self.read(low) if low else None

    def read(self, number: int) -> Release:
        """The record of release `number`. Raises NotFoundYet; CorruptObject if it is damaged or has another number;
        Unavailable."""
        key = layout.log_release(self.tenant, number)
        found = records.decode(key, self.objects.get(key))
        if found.number != number:
            raise CorruptObject(key, f"is release {found.number}")
        return found

    def decide(self, release: Release) -> Release:
        """Put the record unless another record has its number. Returns the record that has the number.

        Raises:
            CommitStateUnknown: two attempts got no answer; call it again with the same record.
            CorruptObject: the record that has the number is damaged.
            Unavailable: nothing happened, or the record that has the number could not be read.
        """
        key, body = layout.log_release(self.tenant, release.number), records.encode(release)
        try:
            self.objects.put_new(key, body)
        except CommitConflict:
            return self.read(release.number)
        except CommitStateUnknown:
            return self._read_back(key, body, release)
        return release

    def _read_back(self, key: str, body: bytes, release: Release) -> Release:
        """Settle a put without an answer: put the same bytes once more. If that fails because the number has a record,
        read and return it. Raises the errors of `decide`."""
        try:
            self.objects.put_new(key, body)
        except CommitConflict:
            return self.read(release.number)
        return release

    def _is_there(self, number: int) -> bool:
        try:
            self.objects.head(layout.log_release(self.tenant, number))
        except NotFoundYet:
            return False
        return True
