"""Executes operators' requests about tenants: registration, retention, encryption key, quotas, pause and deletion."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass

from tistream.errors import InvalidRequest
from tistream.model.ids import TenantKey
from tistream.model.tenant_kind import TenantKind
from tistream.wire.limits import Limits
from tistream_meta.database.repository import Repository
from tistream_meta.decide.model import Change, Encryption, Retention, Tenant
from tistream_meta.decide.options import Options

log = logging.getLogger(__name__)

Write = Callable[[], tuple[Tenant, Change | None]]


@dataclass(frozen=True, slots=True)
class TenantRules:
    """Executes the requests of operators about tenants. `write` executes a change as the owner, and publishes it in the
    routes."""

    repository: Repository
    options: Options
    write: Callable[[Callable[[], Change | None]], None]

    def create(
        self,
        key: TenantKey,
        retention: Retention | None = None,
        encryption: Encryption | None = None,
        index_keys: bool | None = None,
        kind: TenantKind | None = None,
    ) -> Tenant:
        """Register a tenant. It is served once its schema_snap has been read.

        `retention` None means the default of the settings. `encryption` None means that the tenant has no key of its
        own. `index_keys` says whether index entries are kept; None means that the sorters' setting applies. It never
        changes, because entries that were dropped would be missing. `kind` None means TiDB for a new tenant; the kind
        never changes either. Raises AlreadyDiffers if the tenant exists with other settings or is being erased, and
        InvalidRequest if the object store cannot encrypt with a key.
        """
        self._check(encryption)
        default = self.options.retention
        return self._done(lambda: self.repository.create_tenant(key, retention, default, encryption, index_keys, kind))

    def set_retention(self, key: TenantKey, retention: Retention) -> Tenant:
        """Set how long a tenant's rows are kept. Raises UnknownName."""
        return self._done(lambda: self.repository.set_rule(key, retention))

    def set_encryption(self, key: TenantKey, encryption: Encryption) -> Tenant:
        """Set the key with which a tenant's new objects are encrypted. Raises UnknownName, and InvalidRequest if the
        object store cannot encrypt with a key."""
        self._check(encryption)
        return self._done(lambda: self.repository.set_rule(key, encryption))

    def set_limits(self, key: TenantKey, limits: Limits) -> Tenant:
        """Set the quotas of a tenant. Raises UnknownName."""
        return self._done(lambda: self.repository.set_rule(key, limits))

    def pause(self, key: TenantKey, *, paused: bool) -> Tenant:
        """Stop reading a tenant's files; with `paused` false, begin again. Raises UnknownName, and InvalidRequest if
        the tenant is being erased."""
        return self._done(lambda: self.repository.ends.pause(key, paused=paused))

    def delete(self, key: TenantKey, confirm: str, grace_ms: int) -> Tenant:
        """Schedule a tenant to be erased in `grace_ms` milliseconds. Raises UnknownName, and InvalidRequest if
        `confirm` is not its tenant id, or if it is being erased already."""
        if confirm != key.tenant_id:
            raise InvalidRequest(
                f"confirm is {confirm[:80]!r}: to delete tenant {key} with all that it has, say {key.tenant_id!r}",
                {"parameter": "confirm"},
            )
        return self._done(lambda: self.repository.ends.delete_in(key, grace_ms))

    def keep(self, key: TenantKey) -> Tenant:
        """Cancel the deletion of a tenant. Raises UnknownName, and InvalidRequest once it is being erased."""
        return self._done(lambda: self.repository.ends.keep(key))

    def _done(self, write: Write) -> Tenant:
        done: list[tuple[Tenant, Change | None]] = []

        def body() -> Change | None:
            done.append(write())
            return done[-1][1]

        self.write(body)
        tenant, change = done[-1]
        if change is not None:
            kept = {name: getattr(tenant, name) for name in ("retention_ms", "kms_key_id", "paused", "delete_at_ms")}
            log.info("tenant changed", extra={"tenant": str(tenant.key), **kept})
        return tenant

    def _check(self, encryption: Encryption | None) -> None:
        """Check that the object store supports encryption with a key. Raises InvalidRequest if it does not, because the
        platform would then accept a key that it does not use."""
        if encryption is not None and encryption.kms_key_id is not None and not self.options.encrypts:
            raise InvalidRequest(
                "kms_key_id: this platform's object store is not S3, so it has no keys of tenants: leave it out"
            )
