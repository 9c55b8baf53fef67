"""What is said of tenants: that there is one, how long its rows are kept, what its objects are encrypted with, and what
it may use."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tistream.errors import InvalidRequest
from tistream.model.ids import TenantKey
from tistream.wire.limits import Limits
from tistream_meta.model import Change, Encryption, Retention, Tenant
from tistream_meta.options import Options
from tistream_meta.repository import Repository

Write = Callable[[], tuple[Tenant, Change | None]]


@dataclass(frozen=True, slots=True)
class TenantRules:
    """`write` does it, as the owner, and takes the change into the routes."""

    repository: Repository
    options: Options
    write: Callable[[Write], Tenant]

    def create(
        self, key: TenantKey, retention: Retention | None = None, encryption: Encryption | None = None
    ) -> Tenant:
        """Register a tenant; it is served once its schema_snap was read. `retention` None: as the settings have it;
        `encryption` None: no key of its own. Raises AlreadyDiffers, InvalidRequest."""
        self._check(encryption)
        default = self.options.retention
        return self.write(lambda: self.repository.create_tenant(key, retention, default, encryption))

    def set_retention(self, key: TenantKey, retention: Retention) -> Tenant:
        """Say how long a tenant's rows are kept. Raises UnknownName."""
        return self.write(lambda: self.repository.set_retention(key, retention))

    def set_encryption(self, key: TenantKey, encryption: Encryption) -> Tenant:
        """Say what a tenant's new objects are encrypted with. Raises UnknownName, InvalidRequest."""
        self._check(encryption)
        return self.write(lambda: self.repository.set_encryption(key, encryption))

    def set_limits(self, key: TenantKey, limits: Limits) -> Tenant:
        """Say what a tenant may use. Raises UnknownName."""
        return self.write(lambda: self.repository.set_limits(key, limits))

    def _check(self, encryption: Encryption | None) -> None:
        """A key that is kept and used for nothing would be a promise that is not held."""
        if encryption is not None and encryption.kms_key_id is not None and not self.options.encrypts:
            raise InvalidRequest("this platform's object store is no S3: it encrypts nothing with keys of tenants")
