"""Reads and writes the rows of the audit log. The row of a change is written in the change's transaction, so one never
exists without the other. Reads by signed URLs have rows, too."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from typing import Any, Protocol, TypeVar

from sqlalchemy import ColumnElement, Connection, Row, delete, insert, select

from tistream.model.ids import TenantKey
from tistream.wire.audit import AuditEntry, AuditPage, SignedRead
from tistream_meta.audit import audited_action, shown
from tistream_meta.audit.shown import Subject, Values
from tistream_meta.database import counter_rows, tables
from tistream_meta.database.transactions import Transactions
from tistream_meta.decide.model import Task, Tenant

T = TypeVar("T")
_AUDIT = tables.audit


class Write(Protocol):
    """A function that runs `body` in a transaction, which commits only if this process is still the owner. Raises
    Fenced, Unavailable."""

    def __call__(self, body: Callable[[Connection], T]) -> T: ...


def note(
    connection: Connection, now_ms: ColumnElement[int], subject: Subject, was: Values | None, became: Values | None
) -> None:
    """Record the change of a subject from the values `was` to `became`, unless they are equal. None: the subject did
    not exist before, or does not exist afterwards."""
    was, became = shown.differing(was, became)
    if was == became:
        return
    act, of = audited_action.current(), subject.tenant
    counter_rows.raise_by(connection, tables.LAST_AUDIT, 1)
    values = {
        "seq": counter_rows.read(connection, tables.LAST_AUDIT),
        "at_ms": now_ms,
        "action": act.action,
        "actor": json.dumps(act.actor.name),
        "address": act.actor.address,
        "cause": act.cause,
        "subject": subject.name,
        "cluster_id": None if of is None else of.cluster_id,
        "tenant_id": None if of is None else of.tenant_id,
        "was": None if was is None else json.dumps(was),
        "became": None if became is None else json.dumps(became),
    }
    connection.execute(insert(_AUDIT).values(**values))


def note_tenant(
    connection: Connection, now_ms: ColumnElement[int], key: TenantKey, was: Tenant | None, became: Tenant | None
) -> None:
    """Record the change of a tenant, as `note` does."""
    note(connection, now_ms, shown.tenant(key), shown.of_tenant(was), shown.of_tenant(became))


def note_tasks(connection: Connection, now_ms: ColumnElement[int], was: Iterable[Task], became: Iterable[Task]) -> None:
    """Record the changes of the tasks in `was`, as `note` does. Each of them must be in `became`, too."""
    now = {task.task_id: task for task in became}
    for task in was:
        note(connection, now_ms, shown.task(task), shown.of_task(task), shown.of_task(now[task.task_id]))


class AuditLog:
    """Reads the audit log, and deletes old entries. Each call is a transaction of its own, and raises the errors of the
    repository's calls."""

    def __init__(self, transactions: Transactions, write: Write, now_ms: ColumnElement[int]) -> None:
        self._transactions, self._write, self._now_ms = transactions, write, now_ms

    def page(self, after: int | None, limit: int, tenant: TenantKey | None = None) -> AuditPage:
        """At most `limit` entries, oldest first. These are the first ones whose id is above `after`, or the newest ones
        if `after` is None. With `tenant`, only entries of that tenant."""
        query = select(_AUDIT)
        if tenant is not None:
            query = query.where(_AUDIT.c.cluster_id == tenant.cluster_id, _AUDIT.c.tenant_id == tenant.tenant_id)
        if after is None:
            query = query.order_by(_AUDIT.c.seq.desc()).limit(limit)
        else:
            query = query.where(_AUDIT.c.seq > after).order_by(_AUDIT.c.seq).limit(limit)

        def body(connection: Connection) -> AuditPage:
            newest = counter_rows.read(connection, tables.LAST_AUDIT)
            found = [_entry(row) for row in connection.execute(query)]
            return AuditPage(entries=found[::-1] if after is None else found, newest_seq=newest)

        return self._transactions.run(body)

    def record_signed(self, key: TenantKey, read: SignedRead) -> None:
        """Record, as the owner, that a caller gets URLs of row groups of a tenant. The entry is committed before the
        caller gets them. It may be there twice, because the API server repeats a call whose answer was lost."""

        def body(connection: Connection) -> None:
            note(connection, self._now_ms, shown.tenant(key), shown.NOT_SIGNED, shown.of_signed(read))

        self._write(body)

    def forget(self, keep_ms: int) -> int:
        """Delete the entries older than `keep_ms`, as the owner. Returns the number of deleted entries."""
        old = delete(_AUDIT).where(_AUDIT.c.at_ms < self._now_ms - keep_ms)
        return self._write(lambda connection: connection.execute(old).rowcount)


def _entry(row: Row[Any]) -> AuditEntry:
    return AuditEntry(
        seq=row.seq,
        at_ms=row.at_ms,
        action=row.action,
        actor=json.loads(row.actor),
        address=row.address,
        cause=row.cause,
        subject=row.subject,
        cluster_id=row.cluster_id,
        tenant_id=row.tenant_id,
        was=None if row.was is None else json.loads(row.was),
        became=None if row.became is None else json.loads(row.became),
    )
