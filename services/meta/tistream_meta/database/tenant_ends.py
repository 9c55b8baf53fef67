"""Pauses, deletes and erases tenants, and retires stores, in the meta database. The states of a tenant that ends are:

* paused: no more files are read; what is in the pool is served;
* with a delete_at: the same until that time; until then an operator may withdraw the deletion;
* erasing: it has no task and no store, and is not served; its objects in object storage are being deleted (erasing.py);
* gone: no row names it except those of the audit log; its tokens and usage are deleted too. Its name may be registered
  again.

A store is read, or it is retired: then no dispatcher reads it and its files are being deleted; after that no row names
it.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Protocol, TypeVar

from sqlalchemy import ColumnElement, Connection, Table, delete, select, update

from tistream.errors import InvalidRequest
from tistream.model.ids import TenantKey
from tistream_meta.audit import shown
from tistream_meta.audit.audited_action import audited_as
from tistream_meta.audit.shown import Subject
from tistream_meta.database import audit_log, counter_rows, store_rows, tables, task_rows, tenant_rows
from tistream_meta.decide.model import Change, Tenant

T = TypeVar("T")
_OF_TENANT = (
    tables.tasks,
    tables.stores,
    tables.sources,
    tables.backfills,
    tables.restores,
    tables.changefeeds,
    tables.feed_shards,
    tables.feed_events,
    tables.kept_feeds,
    tables.secrets,
    tables.territories,
    tables.tenant_usage,
    tables.tenant_stored,
    tables.feed_usage,
    tables.quotas,
    tables.tenants,
)


class Write(Protocol):
    """A function that runs `body` in a transaction, which commits only if this process is still the owner. Raises
    Fenced, Unavailable."""

    def __call__(self, body: Callable[[Connection], T]) -> T: ...


class TenantEnds:
    """Pauses, deletes and erases tenants and stores in the meta database. Each call is a transaction of its own, and
    raises the errors of the repository's writes."""

    def __init__(self, write: Write, now_ms: ColumnElement[int]) -> None:
        self._write, self._now_ms = write, now_ms

    def pause(self, key: TenantKey, *, paused: bool) -> tuple[Tenant, Change | None]:
        """Stop reading a tenant's files; with `paused` false, begin again. Idempotent. Returns (the tenant, the change;
        None if nothing changed). Raises UnknownName, and InvalidRequest if the tenant is being erased."""
        return self._write(lambda connection: self._set(connection, key, paused=int(paused)))

    def delete_in(self, key: TenantKey, grace_ms: int) -> tuple[Tenant, Change | None]:
        """Schedule a tenant to be erased in `grace_ms` ms. This replaces an earlier schedule. Returns (the tenant, the
        change). Raises UnknownName, and InvalidRequest if the tenant is being erased already."""

        def body(connection: Connection) -> tuple[Tenant, Change | None]:
            now_ms: int = connection.execute(select(self._now_ms)).scalar_one()
            return self._set(connection, key, delete_at_ms=int(now_ms) + grace_ms)

        return self._write(body)

    def keep(self, key: TenantKey) -> tuple[Tenant, Change | None]:
        """Cancel the deletion of a tenant. Idempotent. Returns (the tenant, the change; None if no deletion was
        scheduled). Raises UnknownName, and InvalidRequest if the tenant is being erased."""
        return self._write(lambda connection: self._set(connection, key, delete_at_ms=None))

    def begin_erasing(self, key: TenantKey) -> Change | None:
        """If the deletion of a tenant is due, mark it as being erased, and delete the rows of its tasks and stores.
        Returns None if the deletion is not due, or if this was done before."""

        def body(connection: Connection) -> Change | None:
            tenants = tables.tenants
            begun = connection.execute(
                update(tenants)
                .where(tenant_rows.is_key(key), tenants.c.delete_at_ms <= self._now_ms, tenants.c.erasing == 0)
                .values(erasing=1)
            )
            if begun.rowcount != 1:
                return None
            known = tenant_rows.one(connection, key)
            audit_log.note_tenant(connection, self._now_ms, key, replace(known, erasing=False), known)
            gone = tuple(task.task_id for task in task_rows.all_tasks(connection) if task.tenant == key)
            for table in (tables.tasks, tables.stores):
                connection.execute(_delete(table, key))
            version = counter_rows.next_version(connection)
            return Change(version, tenants=(known,), gone=gone)

        with audited_as("BeginErasing"):
            return self._write(body)

    def retire_store(self, key: TenantKey, store_id: int, through_ts: int) -> Change | None:
        """Retire a store: no dispatcher reads it any more, and its files up to `through_ts` will be deleted. Returns
        None if it was retired before. Raises UnknownName."""

        def body(connection: Connection) -> Change | None:
            store = store_rows.retire(connection, key, store_id, through_ts)
            if store is None:
                return None
            subject = shown.store(key, store_id)
            audit_log.note(connection, self._now_ms, subject, shown.READ, shown.retired(through_ts))
            return Change(counter_rows.next_version(connection), stores=(store,))

        return self._write(body)

    def forget_store(self, key: TenantKey, store_id: int) -> Change:
        """Delete the row of a retired store. If the store pushes again, it is found as a new one."""

        def body(connection: Connection) -> Change:
            store_rows.forget(connection, key, store_id)
            audit_log.note(connection, self._now_ms, shown.store(key, store_id), shown.RETIRED, None)
            return Change(counter_rows.next_version(connection), left=((key, store_id),))

        with audited_as("ForgetStore"):
            return self._write(body)

    def forget(self, key: TenantKey) -> Change:
        """Delete every row of a tenant that is being erased, and the grants for it. The audit log is kept. Raises
        UnknownName, and InvalidRequest if the tenant is not being erased."""

        def body(connection: Connection) -> Change:
            known = tenant_rows.one(connection, key)
            if not known.erasing:
                raise InvalidRequest(f"tenant {key} is not being erased")
            self._forget_grants(connection, key)
            for table in _OF_TENANT:
                connection.execute(_delete(table, key))
            audit_log.note_tenant(connection, self._now_ms, key, known, None)
            return Change(counter_rows.next_version(connection), erased=(key,))

        with audited_as("ForgetTenant"):
            return self._write(body)

    def _set(self, connection: Connection, key: TenantKey, **values: Any) -> tuple[Tenant, Change | None]:
        known = tenant_rows.one(connection, key)
        if known.erasing:
            raise InvalidRequest(
                f"tenant {key} is being deleted, and its grace period has passed: this cannot be undone"
            )
        if all(getattr(known, name) == value for name, value in values.items()):
            return known, None
        connection.execute(update(tables.tenants).where(tenant_rows.is_key(key)).values(**values))
        tenant = tenant_rows.one(connection, key)
        audit_log.note_tenant(connection, self._now_ms, key, known, tenant)
        return tenant, Change(counter_rows.next_version(connection), tenants=(tenant,))

    def _forget_grants(self, connection: Connection, key: TenantKey) -> None:
        """Delete the grants for a tenant. A tenant that is registered under this name later belongs to another user,
        and old tokens must not give access to it.
        """
        tokens, changed = tables.tokens, False
        for row in connection.execute(select(tokens.c.token_id, tokens.c.grants)).all():
            grants = json.loads(row.grants)
            kept = [one for one in grants if (one["cluster"], one["tenant"]) != (key.cluster_id, key.tenant_id)]
            if len(kept) == len(grants):
                continue
            changed, subject = True, Subject(f"token {row.token_id}", key)
            audit_log.note(connection, self._now_ms, subject, {"grants": grants}, {"grants": kept} if kept else None)
            mine = tokens.c.token_id == row.token_id
            if kept:
                connection.execute(update(tokens).where(mine).values(grants=json.dumps(kept)))
            else:
                connection.execute(delete(tokens).where(mine))
        if changed:
            counter_rows.raise_by(connection, tables.TOKENS_VERSION, 1)


def _delete(table: Table, key: TenantKey) -> Any:
    return delete(table).where(table.c.cluster_id == key.cluster_id, table.c.tenant_id == key.tenant_id)
