"""Secrets of tenants in the meta database, sealed: this process cannot read them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from sqlalchemy import ColumnElement, Connection, and_, delete, func, insert, select

from tistream.errors import AlreadyDiffers, LimitReached, UnknownName
from tistream.model.ids import TenantKey
from tistream.secrets.references import names_in
from tistream.wire.bulk.secrets import SECRETS_MAX, SecretInfo
from tistream_meta.audit import shown
from tistream_meta.database import audit_log, tables, tenant_rows
from tistream_meta.database.audit_log import Write
from tistream_meta.database.transactions import Transactions

_SECRETS, _FEEDS = tables.secrets, tables.changefeeds


class SecretBook:
    """Reads and writes secrets. Each call is a transaction of its own, and raises as the repository's calls do."""

    def __init__(self, transactions: Transactions, write: Write, now_ms: ColumnElement[int]) -> None:
        self._transactions, self._write, self._now_ms = transactions, write, now_ms

    def put(self, key: TenantKey, name: str, sealed: str) -> SecretInfo:
        """Store a secret in place of one of the same name. Raises UnknownName, LimitReached."""

        def body(connection: Connection) -> SecretInfo:
            tenant_rows.one(connection, key)
            known = connection.execute(
                select(func.count()).select_from(_SECRETS).where(_of(key), _SECRETS.c.name != name)
            ).scalar_one()
            if known >= SECRETS_MAX:
                raise LimitReached(f"tenant {key} has {known} secrets, and may have {SECRETS_MAX}: remove some")
            connection.execute(delete(_SECRETS).where(_is(key, name)))
            connection.execute(
                insert(_SECRETS).values(
                    cluster_id=key.cluster_id, tenant_id=key.tenant_id, name=name, sealed=sealed, put_ms=self._now_ms
                )
            )
            audit_log.note(connection, self._now_ms, shown.secret(key, name), None, {"put": True})
            return _infos(connection, key, _is(key, name))[0]

        return self._write(body)

    def of_tenant(self, key: TenantKey) -> Sequence[SecretInfo]:
        """The secrets of a tenant, by name. Raises UnknownName."""

        def body(connection: Connection) -> Sequence[SecretInfo]:
            tenant_rows.one(connection, key)
            return _infos(connection, key, _of(key))

        return self._transactions.run(body)

    def remove(self, key: TenantKey, name: str) -> SecretInfo:
        """Remove a secret. Raises UnknownName; AlreadyDiffers while a changefeed refers to it."""

        def body(connection: Connection) -> SecretInfo:
            found = _infos(connection, key, _is(key, name))
            if not found:
                raise UnknownName(f"tenant {key} has no secret {name[:63]!r}")
            if found[0].used_by:
                user = found[0].used_by[0]
                raise AlreadyDiffers(f"secret {name} is used by changefeed {user}: remove that, or put a new value")
            connection.execute(delete(_SECRETS).where(_is(key, name)))
            audit_log.note(connection, self._now_ms, shown.secret(key, name), {"put": True}, None)
            return found[0]

        return self._write(body)

    def sealed(self, key: TenantKey) -> Mapping[str, str]:
        """The sealed texts of a tenant's secrets, by name."""

        def body(connection: Connection) -> Mapping[str, str]:
            rows = connection.execute(select(_SECRETS.c.name, _SECRETS.c.sealed).where(_of(key)))
            return {row.name: row.sealed for row in rows}

        return self._transactions.run(body)


def _infos(connection: Connection, key: TenantKey, where: ColumnElement[bool]) -> list[SecretInfo]:
    feeds = connection.execute(
        select(_FEEDS.c.changefeed_id, _FEEDS.c.sink_uri, _FEEDS.c.config)
        .where(_FEEDS.c.cluster_id == key.cluster_id, _FEEDS.c.tenant_id == key.tenant_id)
        .order_by(_FEEDS.c.changefeed_id)
    ).all()
    users = [(feed.changefeed_id, names_in(json.loads(feed.sink_uri), json.loads(feed.config))) for feed in feeds]
    rows = connection.execute(select(_SECRETS.c.name, _SECRETS.c.put_ms).where(where).order_by(_SECRETS.c.name))
    return [
        SecretInfo(name=row.name, put_ms=str(row.put_ms), used_by=[feed for feed, names in users if row.name in names])
        for row in rows
    ]


def _of(key: TenantKey) -> ColumnElement[bool]:
    return and_(_SECRETS.c.cluster_id == key.cluster_id, _SECRETS.c.tenant_id == key.tenant_id)


def _is(key: TenantKey, name: str) -> ColumnElement[bool]:
    return and_(_of(key), _SECRETS.c.name == name)
