"""The secrets of tenants in the meta database. They are encrypted, and this process cannot decrypt them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sqlalchemy import ColumnElement, Connection

from tistream.errors import AlreadyDiffers, UnknownName
from tistream.model.ids import TenantKey
from tistream.wire.bulk.secrets import SecretInfo
from tistream_meta.database import tenant_rows
from tistream_meta.database.audit_log import Write
from tistream_meta.database.transactions import Transactions
from tistream_meta.feeds import secret_rows


class SecretBook:
    """Reads and writes secrets. Each call is a transaction of its own, and raises the errors of the repository's
    calls."""

    def __init__(self, transactions: Transactions, write: Write, now_ms: ColumnElement[int]) -> None:
        self._transactions, self._write, self._now_ms = transactions, write, now_ms

    def put(self, key: TenantKey, name: str, sealed: str) -> SecretInfo:
        """Store an encrypted secret; it replaces one of the same name. Raises UnknownName if the tenant does not exist,
        and LimitReached if it has SECRETS_MAX others."""

        def body(connection: Connection) -> SecretInfo:
            tenant_rows.one(connection, key)
            secret_rows.put(connection, self._now_ms, key, name, sealed)
            return secret_rows.infos(connection, key, name)[0]

        return self._write(body)

    def of_tenant(self, key: TenantKey) -> Sequence[SecretInfo]:
        """The secrets of a tenant, by name. Raises UnknownName."""

        def body(connection: Connection) -> Sequence[SecretInfo]:
            tenant_rows.one(connection, key)
            return secret_rows.infos(connection, key)

        return self._transactions.run(body)

    def remove(self, key: TenantKey, name: str) -> SecretInfo:
        """Remove a secret. Raises UnknownName; AlreadyDiffers while a changefeed refers to it."""

        def body(connection: Connection) -> SecretInfo:
            found = secret_rows.infos(connection, key, name)
            if not found:
                raise UnknownName(f"tenant {key} has no secret {name[:63]!r}: `tistream secret list` has the names")
            if found[0].used_by:
                user = found[0].used_by[0]
                raise AlreadyDiffers(
                    f"secret {name} is used by changefeed {user}: remove that first, or put a new value under the name"
                )
            secret_rows.remove(connection, self._now_ms, key, name)
            return found[0]

        return self._write(body)

    def sealed(self, key: TenantKey) -> Mapping[str, str]:
        """The encrypted texts of a tenant's secrets, by name."""

        def body(connection: Connection) -> Mapping[str, str]:
            return secret_rows.sealed(connection, key)

        return self._transactions.run(body)
