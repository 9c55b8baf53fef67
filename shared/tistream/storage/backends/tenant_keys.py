"""Chooses the KMS key that encrypts an object: the key of the tenant to which the object's name belongs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Protocol, runtime_checkable

from tistream.concurrency import new_lock
from tistream.errors import Unavailable
from tistream.model.ids import TenantKey
from tistream.storage import layout

KeyIds = dict[TenantKey, str | None]  # None: the tenant has no key of its own


class TenantKeys:
    """The KMS key ids of the tenants that this process knows (ids or ARNs, as the store's key management names them).

    A process that has received no key ids writes without encryption keys. Services receive key ids with the route
    table. A process that has received key ids does not write an object of a tenant until it knows the tenant's key id,
    because an object that was once stored without the tenant's key stays unencrypted. Thread-safe.
    """

    def __init__(self) -> None:
        self._lock = new_lock()
        self._ids: KeyIds = {}

    def update(self, keys: Mapping[TenantKey, str | None]) -> None:
        """Set the KMS key ids of some tenants; those of other tenants stay."""
        with self._lock:
            self._ids.update(keys)

    def ids_of(self, tenants: Iterable[TenantKey]) -> KeyIds:
        """The known KMS key ids of these tenants, to be sent to another process that will write for them."""
        with self._lock:
            return {tenant: self._ids[tenant] for tenant in tenants if tenant in self._ids}

    def of_object(self, key: str) -> str | None:
        """The id of the KMS key that encrypts an object; None: the bucket's default. Raises Unavailable if the tenant's
        key is unknown."""
        tenant = layout.tenant_of(key)
        with self._lock:
            if tenant is None or not self._ids:
                return None
            if tenant in self._ids:
                return self._ids[tenant]
        raise Unavailable(f"cannot write {key}: whether tenant {tenant} has a key of its own is not known here")

    def known(self, tenant: TenantKey | None) -> str | None:
        """The id of a tenant's KMS key; None if the tenant has no key of its own, or if it is unknown."""
        with self._lock:
            return None if tenant is None else self._ids.get(tenant)


@runtime_checkable
class EncryptingStore(Protocol):
    """A store that can encrypt each object with a given key."""

    keys: TenantKeys


def keys_of(objects: object) -> TenantKeys:
    """The TenantKeys that a store uses. For a store without encryption, a new object that the store never reads."""
    return objects.keys if isinstance(objects, EncryptingStore) else TenantKeys()
