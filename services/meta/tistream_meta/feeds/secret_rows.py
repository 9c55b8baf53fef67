"""Reads and writes the rows of secrets in the meta database."""

from __future__ import annotations

import json
from collections.abc import Mapping

from sqlalchemy import ColumnElement, Connection, and_, delete, func, insert, select

from tistream.errors import AlreadyDiffers, LimitReached
from tistream.model.ids import TenantKey
from tistream.secrets.references import names_in, of_feed
from tistream.wire.bulk.secrets import SECRETS_MAX, SecretInfo
from tistream_meta.audit import shown
from tistream_meta.database import audit_log, tables

_SECRETS, _FEEDS = tables.secrets, tables.changefeeds


def put(connection: Connection, now_ms: ColumnElement[int], key: TenantKey, name: str, sealed: str) -> None:
    """Store a secret; it replaces one of the same name. Raises LimitReached."""
    known = connection.execute(
        select(func.count()).select_from(_SECRETS).where(_of(key), _SECRETS.c.name != name)
    ).scalar_one()
    if known >= SECRETS_MAX:
        raise LimitReached(f"tenant {key} has {known} secrets, and {SECRETS_MAX} is the maximum: remove some")
    connection.execute(delete(_SECRETS).where(_is(key, name)))
    connection.execute(
        insert(_SECRETS).values(
            cluster_id=key.cluster_id, tenant_id=key.tenant_id, name=name, sealed=sealed, put_ms=now_ms
        )
    )
    audit_log.note(connection, now_ms, shown.secret(key, name), None, {"put": True})


def put_of_feed(
    connection: Connection, now_ms: ColumnElement[int], key: TenantKey, feed_id: str, taken: Mapping[str, str]
) -> None:
    """Store the encrypted secrets that replace the passwords in a feed's sink URI. Raises LimitReached, and
    AlreadyDiffers if another feed refers to a secret of the same name."""
    for name, text in taken.items():
        users = [user for info in infos(connection, key, name) for user in info.used_by if user != feed_id]
        if users:
            raise AlreadyDiffers(
                f"changefeed {users[0]} uses the secret {name}, under which the one in the sink URI would be stored: "
                f"store it with `tistream secret put`, and refer to that"
            )
        put(connection, now_ms, key, name, text)


def remove_of_feed(connection: Connection, now_ms: ColumnElement[int], key: TenantKey, feed_id: str) -> None:
    """Remove the secrets that were made from a feed's sink URI, after the feed was removed. A secret that another feed
    uses is kept."""
    mine = f"{of_feed(feed_id)}."
    for one in infos(connection, key):
        if one.name.startswith(mine) and not one.used_by:
            remove(connection, now_ms, key, one.name)


def remove(connection: Connection, now_ms: ColumnElement[int], key: TenantKey, name: str) -> None:
    """Remove a secret."""
    connection.execute(delete(_SECRETS).where(_is(key, name)))
    audit_log.note(connection, now_ms, shown.secret(key, name), {"put": True}, None)


def sealed(connection: Connection, key: TenantKey) -> Mapping[str, str]:
    """The encrypted texts of a tenant's secrets, by name."""
    rows = connection.execute(select(_SECRETS.c.name, _SECRETS.c.sealed).where(_of(key)))
    return {row.name: row.sealed for row in rows}


def infos(connection: Connection, key: TenantKey, name: str | None = None) -> list[SecretInfo]:
    """The secrets of a tenant, or only the one of this name, each with the changefeeds that refer to it."""
    feeds = connection.execute(
        select(_FEEDS.c.changefeed_id, _FEEDS.c.sink_uri, _FEEDS.c.config)
        .where(_FEEDS.c.cluster_id == key.cluster_id, _FEEDS.c.tenant_id == key.tenant_id)
        .order_by(_FEEDS.c.changefeed_id)
    ).all()
    users = [(feed.changefeed_id, names_in(json.loads(feed.sink_uri), json.loads(feed.config))) for feed in feeds]
    where = _of(key) if name is None else _is(key, name)
    rows = connection.execute(select(_SECRETS.c.name, _SECRETS.c.put_ms).where(where).order_by(_SECRETS.c.name))
    return [
        SecretInfo(name=row.name, put_ms=str(row.put_ms), used_by=[feed for feed, names in users if row.name in names])
        for row in rows
    ]


def _of(key: TenantKey) -> ColumnElement[bool]:
    return and_(_SECRETS.c.cluster_id == key.cluster_id, _SECRETS.c.tenant_id == key.tenant_id)


def _is(key: TenantKey, name: str) -> ColumnElement[bool]:
    return and_(_of(key), _SECRETS.c.name == name)
