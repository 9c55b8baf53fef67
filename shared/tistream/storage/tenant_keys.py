"""Which customer's key the objects of each tenant are to be encrypted with: one decision, by the object's key."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Protocol, runtime_checkable

from tistream.concurrency import new_lock
from tistream.errors import Unavailable
from tistream.model.ids import TenantKey
from tistream.storage import layout

KeyIds = dict[TenantKey, str | None]  # None: the tenant has no key of its own


class TenantKeys:
    """What a process has been told of tenants' keys (ids or ARNs, as the store's key management knows them).

    A process that is never told anything writes without them. One that is (every service, by the route table) writes
    nothing of a tenant before it has heard of it: an object that is stored without its customer's key stays so.
    Thread-safe.
    """

    def __init__(self) -> None:
        self._lock = new_lock()
        self._told: KeyIds = {}

    def tell(self, keys: Mapping[TenantKey, str | None]) -> None:
        """From now on; of other tenants what was told before holds."""
        with self._lock:
            self._told.update(keys)

    def told(self, tenants: Iterable[TenantKey]) -> KeyIds:
        """What is known of these, for another process that is to write for them."""
        with self._lock:
            return {tenant: self._told[tenant] for tenant in tenants if tenant in self._told}

    def of_object(self, key: str) -> str | None:
        """What an object is to be encrypted with; None: as the bucket has it. Raises Unavailable."""
        tenant = layout.tenant_of(key)
        with self._lock:
            if tenant is None or not self._told:
                return None
            if tenant in self._told:
                return self._told[tenant]
        raise Unavailable(f"cannot write {key}: whether tenant {tenant} has a key of its own is not known here")

    def known(self, tenant: TenantKey | None) -> str | None:
        """A tenant's key as far as it is known, for messages."""
        with self._lock:
            return None if tenant is None else self._told.get(tenant)


@runtime_checkable
class Encrypts(Protocol):
    """A store that can encrypt each object with a key that it is told."""

    keys: TenantKeys


def keys_of(objects: object) -> TenantKeys:
    """What to tell a store of tenants' keys; one that can not encrypt does not read it."""
    return objects.keys if isinstance(objects, Encrypts) else TenantKeys()
