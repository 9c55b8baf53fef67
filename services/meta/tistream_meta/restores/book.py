"""Restores in the meta database, one row each.

restore_policy.py decides; this module reads and writes the rows. Names of tables may contain any character, so they are
stored as JSON in ASCII.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, TypeVar

from sqlalchemy import ColumnElement, Connection, Row, and_, delete, insert, select, update

from tistream.errors import UnknownName
from tistream.model.ids import TenantKey
from tistream.wire.bulk.restores import NewRestore, RestoreReport, RestoreTable
from tistream_meta.audit import shown
from tistream_meta.database import audit_log, tables, tenant_rows
from tistream_meta.database.audit_log import Write
from tistream_meta.database.transactions import Transactions
from tistream_meta.decide import restore_policy
from tistream_meta.decide.restore_policy import LEASE_MS, UNFINISHED, Restore

T = TypeVar("T")

_RESTORES = tables.restores


class RestoreBook:
    """Reads and writes the restores in the meta database. Each call is a transaction of its own, and raises the errors
    of the repository's calls."""

    def __init__(self, transactions: Transactions, write: Write, now_ms: ColumnElement[int]) -> None:
        self._transactions, self._write, self._now_ms = transactions, write, now_ms

    def add(self, key: TenantKey, wanted: NewRestore) -> Restore:
        """Queue a restore and return it. If one of the same id exists, return that one unchanged. Also deletes the
        oldest ended restores of the tenant above the limit. Raises UnknownName if the tenant does not exist, and
        LimitReached if too many of its restores are queued or running."""

        def body(connection: Connection) -> Restore:
            tenant_rows.one(connection, key)
            known = _of_tenant(connection, key)
            for one in known:
                if one.restore_id == wanted.restore_id:
                    return one
            restore_policy.check_room(known, key)
            for one in restore_policy.surplus(known):
                connection.execute(delete(_RESTORES).where(_is(key, one.restore_id)))
            begun = [RestoreTable(database=one.database, table=one.table) for one in wanted.tables]
            connection.execute(
                insert(_RESTORES).values(
                    cluster_id=key.cluster_id,
                    tenant_id=key.tenant_id,
                    restore_id=wanted.restore_id,
                    state="queued",
                    epoch=0,
                    lease_until_ms=0,
                    created_ms=self._now_ms,
                    wanted=json.dumps(wanted.model_dump()),
                    tables=_text(begun),
                )
            )
            audit_log.note(
                connection, self._now_ms, shown.restore(key, wanted.restore_id), None, shown.of_restore(wanted)
            )
            return _one(connection, key, wanted.restore_id)

        return self._write(body)

    def of_tenant(self, key: TenantKey) -> Sequence[Restore]:
        """The restores of a tenant, newest first. Raises UnknownName."""

        def body(connection: Connection) -> Sequence[Restore]:
            tenant_rows.one(connection, key)
            return sorted(_of_tenant(connection, key), key=lambda one: (one.created_ms, one.restore_id), reverse=True)

        return self._transactions.run(body)

    def one(self, key: TenantKey, restore_id: str) -> Restore:
        """Read one restore. Raises UnknownName if it does not exist."""
        return self._transactions.run(lambda connection: _one(connection, key, restore_id))

    def cancel(self, key: TenantKey, restore_id: str) -> Restore:
        """Cancel a restore that is queued or running. The rows that it has written stay. Idempotent. Raises
        UnknownName."""

        def body(connection: Connection) -> Restore:
            one = _one(connection, key, restore_id)
            if not one.unfinished:
                return one
            connection.execute(update(_RESTORES).where(_is(key, restore_id)).values(state="cancelled"))
            audit_log.note(
                connection,
                self._now_ms,
                shown.restore(key, restore_id),
                {"state": one.state},
                {"state": "cancelled"},
            )
            return _one(connection, key, restore_id)

        return self._write(body)

    def unfinished(self) -> Sequence[Restore]:
        """The restores of all tenants that are queued or running."""
        return self._transactions.run(_unfinished)

    def claim(self, node_id: str) -> Restore | None:
        """Claim the oldest restore that is queued, or whose claim has expired, for a process, under a new epoch.
        Restores of tenants that will be deleted are left out. Returns None if there is no such restore."""

        def next_one(connection: Connection) -> tuple[Restore | None, int]:
            now_ms = int(connection.execute(select(self._now_ms)).scalar_one())
            unfinished = _unfinished(connection)
            every = tenant_rows.every(connection) if unfinished else ()
            ending = {one.key for one in every if one.erasing or one.delete_at_ms is not None}
            return restore_policy.next_claim((one for one in unfinished if one.tenant not in ending), now_ms), now_ms

        def body(connection: Connection) -> Restore | None:
            found, now_ms = next_one(connection)
            if found is None:
                return None
            connection.execute(
                update(_RESTORES)
                .where(_is(found.tenant, found.restore_id))
                .values(state="running", epoch=found.epoch + 1, node_id=node_id, lease_until_ms=now_ms + LEASE_MS)
            )
            return _one(connection, found.tenant, found.restore_id)

        if self._transactions.run(next_one)[0] is None:
            return None  # the usual case: nothing is written
        return self._write(body)

    def report(self, key: TenantKey, restore_id: str, report: RestoreReport) -> Restore:
        """Store a process's progress, and renew its claim. Raises UnknownName, and ClaimEnded if another process has
        claimed the restore since, or if the restore has ended."""

        def body(connection: Connection) -> Restore:
            restore_policy.check_report(_one(connection, key, restore_id), report.epoch)
            connection.execute(
                update(_RESTORES)
                .where(_is(key, restore_id))
                .values(
                    state=report.state,
                    tables=_text(report.tables),
                    reason=json.dumps(report.reason),
                    lease_until_ms=self._now_ms + LEASE_MS,
                )
            )
            return _one(connection, key, restore_id)

        return self._write(body)


def _one(connection: Connection, key: TenantKey, restore_id: str) -> Restore:
    row = connection.execute(select(_RESTORES).where(_is(key, restore_id))).one_or_none()
    if row is None:
        raise UnknownName(f"tenant {key} has no restore {restore_id[:80]!r}: ListRestores has the ids")
    return _restore(row)


def _unfinished(connection: Connection) -> list[Restore]:
    return [_restore(row) for row in connection.execute(select(_RESTORES).where(_RESTORES.c.state.in_(UNFINISHED)))]


def _of_tenant(connection: Connection, key: TenantKey) -> list[Restore]:
    return [_restore(row) for row in connection.execute(select(_RESTORES).where(_of(key)))]


def _of(key: TenantKey) -> ColumnElement[bool]:
    return and_(_RESTORES.c.cluster_id == key.cluster_id, _RESTORES.c.tenant_id == key.tenant_id)


def _is(key: TenantKey, restore_id: str) -> ColumnElement[bool]:
    return and_(_of(key), _RESTORES.c.restore_id == restore_id)


def _text(found: Sequence[RestoreTable]) -> str:
    return json.dumps([one.model_dump() for one in found])


def _restore(row: Row[Any]) -> Restore:
    return Restore(
        TenantKey(row.cluster_id, row.tenant_id),
        row.restore_id,
        row.state,
        row.epoch,
        row.node_id,
        row.lease_until_ms,
        row.created_ms,
        row.wanted,
        row.tables,
        None if row.reason is None else json.loads(row.reason),
    )
