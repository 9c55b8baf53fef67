"""The usage of tenants in the meta database (docs/adr/0014). Each write is a transaction of its own, and any meta
server may execute it.

For each counter of a process start, the highest reported value is kept. For the stored bytes of a task, the value of
the newest manifest is kept. So reports may arrive twice, late and in any order, at any meta server.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from sqlalchemy import (
    BindParameter,
    ColumnElement,
    Connection,
    and_,
    bindparam,
    case,
    delete,
    func,
    insert,
    select,
    tuple_,
    update,
)

from tistream.errors import UnknownName
from tistream.model.ids import TenantKey
from tistream.storage.measured import KINDS
from tistream.wire.usage import (
    HOUR_MS,
    Amounts,
    HourOfUsage,
    StoredUsage,
    Usage,
    UsageReport,
    hour_text,
)
from tistream_meta.database import tables
from tistream_meta.database.transactions import Transactions

_NAMES = ("cluster_id", "tenant_id", "hour_ms", "node_id", "instance")
_TASK = ("cluster_id", "tenant_id", "hour_ms", "task_id")
NEWEST_MS = 2 * HOUR_MS  # stored bytes that were reported longer ago count as unknown

Counts = Mapping[str, int]


class UsageBook:
    """Reads and writes the usage of tenants. Thread-safe: each call is a transaction of its own. Every method raises
    Unavailable if the database does not answer."""

    def __init__(self, transactions: Transactions) -> None:
        self._transactions = transactions

    def take(self, report: UsageReport) -> None:
        """Store a usage report. Idempotent."""
        rows = [*_counted(report), *_intake(report)]

        def body(connection: Connection) -> None:
            _keep_greatest(connection, rows)
            _keep_newest(connection, report.stored)

        self._transactions.run(body)

    def of_tenant(self, key: TenantKey, from_ms: int, to_ms: int) -> Usage:
        """The usage of a tenant in the hours that begin at or after `from_ms` and before `to_ms` (Unix ms). Raises
        UnknownName."""

        def body(connection: Connection) -> Usage:
            _check_known(connection, key)
            counted = _counts_of(connection, key, from_ms, to_ms)
            return _usage(key, from_ms, to_ms, counted, _stored_of(connection, key, from_ms, to_ms))

        return self._transactions.run(body)

    def stored_now(self, key: TenantKey, now_ms: int) -> int | None:
        """Bytes that a tenant has in the pool, as last reported for each of its tasks, a task that has ended included;
        None if there was no report for an hour that began in the last NEWEST_MS. `now_ms`: Unix ms."""

        def body(connection: Connection) -> int | None:
            return _stored_now(connection, key, now_ms - NEWEST_MS, now_ms + HOUR_MS)

        return self._transactions.run(body)

    def limited(self) -> dict[TenantKey, int]:
        """The tenants with a quota of stored bytes, each with this quota in bytes."""
        quotas = tables.quotas

        def body(connection: Connection) -> dict[TenantKey, int]:
            found = connection.execute(select(quotas).where(quotas.c.stored_bytes > 0))
            return {TenantKey(row.cluster_id, row.tenant_id): row.stored_bytes for row in found}

        return self._transactions.run(body)

    def forget(self, before_ms: int) -> int:
        """Delete the usage of hours that began before `before_ms` (Unix ms). Returns the number of deleted rows."""
        every = (tables.tenant_usage, tables.tenant_stored)

        def body(connection: Connection) -> int:
            return sum(connection.execute(delete(one).where(one.c.hour_ms < before_ms)).rowcount for one in every)

        return self._transactions.run(body)


def _counted(report: UsageReport) -> Iterable[dict[str, Any]]:
    for one in report.counted:
        amounts = {"bytes_served": one.bytes_served, "rows_served": one.rows_served}
        amounts |= {tables.REQUESTS + kind: count for kind, count in one.requests.items() if kind in KINDS}
        yield _row(one.cluster_id, one.tenant_id, one.hour_ms, report.node_id, report.instance, amounts)


def _intake(report: UsageReport) -> Iterable[dict[str, Any]]:
    """The rows for the bytes of change files in a report. They name no node and no instance, because the numbers come
    from manifests: every process that reads the manifests reports the same numbers."""
    for one in report.intake:
        yield _row(one.cluster_id, one.tenant_id, one.hour_ms, "", "", {"bytes_in": one.bytes_in})


def _row(cluster_id: str, tenant_id: str, hour_ms: int, node_id: str, instance: str, amounts: Counts) -> dict[str, Any]:
    names = dict(zip(_NAMES, (cluster_id, tenant_id, hour_ms, node_id, instance), strict=True))
    return {**names, **dict.fromkeys(tables.COUNTED, 0), **amounts}


def _keep_greatest(connection: Connection, rows: Sequence[dict[str, Any]]) -> None:
    """Store the reported values of counters that are above the stored ones. The first statement is a write, because
    SQLite does not wait for another connection's lock once a transaction has read."""
    if not rows:
        return
    table = tables.tenant_usage
    new = insert(table).prefix_with("OR IGNORE", dialect="sqlite").prefix_with("IGNORE", dialect="mysql")
    connection.execute(new, [{**row, **dict.fromkeys(tables.COUNTED, 0)} for row in rows])
    given: dict[str, BindParameter[Any]] = {name: bindparam(f"told_{name}") for name in (*_NAMES, *tables.COUNTED)}
    raised = {name: case((table.c[name] < given[name], given[name]), else_=table.c[name]) for name in tables.COUNTED}
    same = and_(*(table.c[name] == given[name] for name in _NAMES))
    connection.execute(
        update(table).where(same).values(raised),
        [{f"told_{name}": value for name, value in row.items()} for row in rows],
    )


def _keep_newest(connection: Connection, several: Sequence[StoredUsage]) -> None:
    """Store the reported bytes of tasks, unless a newer manifest was reported before. Writes first, as _keep_greatest
    does."""
    if not several:
        return
    table = tables.tenant_stored
    given: dict[str, BindParameter[Any]] = {name: bindparam(f"told_{name}") for name in (*_TASK, "manifest")}
    older = and_(table.c.manifest <= given["manifest"], *(table.c[name] == given[name] for name in _TASK))
    wanted = {_task(one): one for one in sorted(several, key=lambda one: one.manifest)}
    bound = [dict(zip(given, (*task, one.manifest), strict=True)) for task, one in wanted.items()]
    connection.execute(
        delete(table).where(older), [{f"told_{name}": value for name, value in row.items()} for row in bound]
    )
    columns = [table.c[name] for name in _TASK]
    newer = {tuple(row) for row in connection.execute(select(*columns).where(tuple_(*columns).in_(list(wanted))))}
    rows = [row for task, one in wanted.items() if task not in newer for row in _stored(one)]
    if rows:
        connection.execute(insert(table), rows)


def _task(one: StoredUsage) -> tuple[str, str, int, int]:
    return one.cluster_id, one.tenant_id, one.hour_ms, one.task_id


def _stored(one: StoredUsage) -> Iterable[dict[str, Any]]:
    # A task without objects gets a row of 0 bytes, so that it differs from a task that no process reported.
    for of_task, size in (one.bytes_of or {one.task_id: 0}).items():
        yield {**dict(zip(_TASK, _task(one), strict=True)), "of_task": of_task, "manifest": one.manifest, "bytes": size}


def _check_known(connection: Connection, key: TenantKey) -> None:
    tenants = tables.tenants
    same = and_(tenants.c.cluster_id == key.cluster_id, tenants.c.tenant_id == key.tenant_id)
    if connection.execute(select(tenants.c.tenant_id).where(same)).one_or_none() is None:
        raise UnknownName(f"there is no tenant {key}: `tistream tenant list` has the ids")


def _counts_of(connection: Connection, key: TenantKey, from_ms: int, to_ms: int) -> dict[int, Counts]:
    table = tables.tenant_usage
    sums = [func.sum(table.c[name]).label(name) for name in tables.COUNTED]
    query = select(table.c.hour_ms, *sums).where(_hours(table.c, key, from_ms, to_ms)).group_by(table.c.hour_ms)
    return {
        row.hour_ms: {name: int(getattr(row, name)) for name in tables.COUNTED} for row in connection.execute(query)
    }


def _stored_of(connection: Connection, key: TenantKey, from_ms: int, to_ms: int) -> dict[int, int]:
    """A tenant's stored bytes by hour. All children of a sealed task report its objects, which they have inherited, or
    a part of these once retention has dropped some. So the maximum over the children is counted."""
    table = tables.tenant_stored
    most = func.max(table.c.bytes).label("most")
    query = select(table.c.hour_ms, most).where(_hours(table.c, key, from_ms, to_ms))
    found: dict[int, int] = defaultdict(int)
    for row in connection.execute(query.group_by(table.c.hour_ms, table.c.of_task)):
        found[row.hour_ms] += int(row.most)
    return dict(found)


def _stored_now(connection: Connection, key: TenantKey, from_ms: int, to_ms: int) -> int | None:
    """As `_stored_of`, with the newest hour of each task. Each sorter reports the hour of its tasks by itself, so an
    hour that has just begun lacks some tasks."""
    table = tables.tenant_stored
    hours = _hours(table.c, key, from_ms, to_ms)
    newest = select(table.c.task_id, func.max(table.c.hour_ms).label("hour_ms"))
    newest_of = newest.where(hours).group_by(table.c.task_id).subquery()
    same = and_(table.c.task_id == newest_of.c.task_id, table.c.hour_ms == newest_of.c.hour_ms)
    most = select(func.max(table.c.bytes)).where(hours, same).group_by(table.c.of_task)
    found = connection.scalars(most).all()
    return sum(map(int, found)) if found else None


def _hours(columns: Any, key: TenantKey, from_ms: int, to_ms: int) -> ColumnElement[bool]:
    mine = and_(columns.cluster_id == key.cluster_id, columns.tenant_id == key.tenant_id)
    return and_(mine, columns.hour_ms >= from_ms, columns.hour_ms < to_ms)


def _usage(key: TenantKey, from_ms: int, to_ms: int, counted: Mapping[int, Counts], stored: Mapping[int, int]) -> Usage:
    hours = [
        HourOfUsage(
            hour=hour_text(hour_ms),
            hour_ms=str(hour_ms),
            **_amounts(counted.get(hour_ms, {}), stored.get(hour_ms)),
        )
        for hour_ms in sorted(counted.keys() | stored.keys())
    ]
    total = {name: sum(of_hour[name] for of_hour in counted.values()) for name in tables.COUNTED}
    return Usage(
        cluster_id=key.cluster_id,
        tenant_id=key.tenant_id,
        from_ms=str(from_ms),
        to_ms=str(to_ms),
        hours=hours,
        total=Amounts(**_amounts(total, sum(stored.values()) if stored else None)),
    )


def _amounts(counts: Counts, stored: int | None) -> dict[str, Any]:
    return {
        "bytes_in": str(counts.get("bytes_in", 0)),
        "bytes_stored": None if stored is None else str(stored),
        "bytes_served": str(counts.get("bytes_served", 0)),
        "rows_served": str(counts.get("rows_served", 0)),
        "requests": {kind: str(counts.get(tables.REQUESTS + kind, 0)) for kind in KINDS},
    }
