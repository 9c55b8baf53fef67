"""The backfills in the meta database. A backfill that has ended keeps its row."""

from __future__ import annotations

import json
from typing import Any

from sqlalchemy import ColumnElement, Connection, Row, and_, func, insert, select, update

from tistream.errors import AlreadyDiffers, LimitReached, UnknownName
from tistream.model.ids import TenantKey
from tistream.wire.bulk.backfills import BackfillRow, BackfillSource, State
from tistream_meta.audit.shown import Subject, Values
from tistream_meta.database import audit_log, tables, tenant_rows
from tistream_meta.database.audit_log import Write
from tistream_meta.database.transactions import Transactions
from tistream_meta.decide.source_policy import EVERY_TABLE

RUNNING: State = "running"
RUNNING_MAX = 16  # of one tenant: each costs the sorters requests
KEPT_MAX = 1_000  # of one tenant
_BACKFILLS = tables.backfills


class BackfillBook:
    """Reads and writes the backfills in the meta database. Each call is a transaction of its own, and raises the errors
    of the repository's calls."""

    def __init__(self, transactions: Transactions, write: Write, now_ms: ColumnElement[int]) -> None:
        self._transactions, self._write, self._now_ms = transactions, write, now_ms

    def running(self) -> list[BackfillRow]:
        """The running backfills of all tenants, except those of tenants that are paused or will be deleted."""

        def body(connection: Connection) -> list[BackfillRow]:
            tenants = {one.key: one for one in tenant_rows.every(connection) if one.accepts_files}
            found = connection.execute(select(_BACKFILLS).where(_BACKFILLS.c.state == RUNNING).order_by(*_ORDER))
            keyed = ((TenantKey(row.cluster_id, row.tenant_id), row) for row in found)
            fed = _fed_by_log_backups(connection)
            return [_info(row, tenants[key].snapshot_ts, fed) for key, row in keyed if key in tenants]

        return self._transactions.run(body)

    def of_tenants(self) -> dict[TenantKey, list[BackfillRow]]:
        """The backfills of each tenant, including those that have ended."""

        def body(connection: Connection) -> dict[TenantKey, list[BackfillRow]]:
            tenants = {one.key: one for one in tenant_rows.every(connection)}
            found: dict[TenantKey, list[BackfillRow]] = {}
            fed = _fed_by_log_backups(connection)
            for row in connection.execute(select(_BACKFILLS).order_by(*_ORDER)):
                key = TenantKey(row.cluster_id, row.tenant_id)
                if key in tenants:
                    found.setdefault(key, []).append(_info(row, tenants[key].snapshot_ts, fed))
            return found

        return self._transactions.run(body)

    def ended(self) -> list[BackfillRow]:
        """The backfills of all tenants that have ended."""
        return [one for found in self.of_tenants().values() for one in found if one.state != RUNNING]

    def of_tenant(self, key: TenantKey) -> list[BackfillRow]:
        """The backfills of a tenant, newest first. Raises UnknownName."""

        def body(connection: Connection) -> list[BackfillRow]:
            tenant = tenant_rows.one(connection, key)
            rows, fed = connection.execute(select(_BACKFILLS).where(_of(key))), _fed_by_log_backups(connection)
            found = [_info(row, tenant.snapshot_ts, fed) for row in rows]
            return sorted(found, key=lambda one: _number(one.backfill_id), reverse=True)

        return self._transactions.run(body)

    def start(self, key: TenantKey, source: BackfillSource, asked: list[str]) -> str:
        """Insert a backfill and return its id. If a backfill with the same source and tables is running, return that
        one's id instead. `asked` are the requested patterns of tables. Raises UnknownName, LimitReached."""
        return self._write(lambda connection: self.start_in(connection, key, source, asked))

    def start_in(self, connection: Connection, key: TenantKey, source: BackfillSource, asked: list[str]) -> str:
        """Insert a backfill like `start`, with its result and errors, but in the caller's transaction."""
        texts = source.model_dump_json(), json.dumps(asked)
        tenant_rows.one(connection, key)
        known = connection.execute(select(_BACKFILLS).where(_of(key))).all()
        running = [row for row in known if row.state == RUNNING]
        for row in running:
            if (row.source, row.asked) == texts:
                return str(row.backfill_id)
        if len(running) >= RUNNING_MAX:
            raise LimitReached(
                f"tenant {key} has {RUNNING_MAX} backfills that run, which is the maximum: cancel one, or wait"
            )
        if len(known) >= KEPT_MAX:
            raise LimitReached(
                f"tenant {key} has had {KEPT_MAX} backfills, which is the maximum for the life of a tenant: create "
                "another tenant"
            )
        backfill_id = f"b{len(known) + 1}"
        values = {
            "cluster_id": key.cluster_id,
            "tenant_id": key.tenant_id,
            "backfill_id": backfill_id,
            "source": texts[0],
            "asked": texts[1],
            "state": RUNNING,
            "created_ms": self._now_ms,
        }
        connection.execute(insert(_BACKFILLS).values(**values))
        became = {"kind": source.kind, "url": source.url, "tables": asked, "state": RUNNING}
        audit_log.note(connection, self._now_ms, _subject(key, backfill_id), None, became)
        return backfill_id

    def start_all(self, connection: Connection, key: TenantKey, url: str) -> str:
        """Start a backfill of all tables from the full backup at `url`, in the caller's transaction. Returns its id, or
        that of a running backfill of the same source and tables. Raises UnknownName and LimitReached."""
        return self.start_in(connection, key, BackfillSource(kind="br-full", url=url), [EVERY_TABLE])

    def end(self, key: TenantKey, backfill_id: str, state: State, reason: str | None = None) -> BackfillRow:
        """Record that a running backfill has ended, in this state, and return its row. Idempotent. Raises UnknownName,
        and AlreadyDiffers if it has ended in another state."""

        def body(connection: Connection) -> BackfillRow:
            tenant = tenant_rows.one(connection, key)
            known = self._one(connection, key, backfill_id)
            if known.state not in (RUNNING, state):
                raise AlreadyDiffers(
                    f"backfill {backfill_id} of tenant {key} is {known.state} already: there is nothing to cancel"
                )
            if known.state == RUNNING:
                at = and_(_of(key), _BACKFILLS.c.backfill_id == backfill_id)
                ended = update(_BACKFILLS).where(at).values(state=state, reason=reason, ended_ms=self._now_ms)
                connection.execute(ended)
                became: Values = {"state": state, "reason": reason}
                subject = _subject(key, backfill_id)
                audit_log.note(connection, self._now_ms, subject, {"state": RUNNING, "reason": None}, became)
            fed = _fed_by_log_backups(connection)
            return _info(self._one(connection, key, backfill_id), tenant.snapshot_ts, fed)

        return self._write(body)

    def _one(self, connection: Connection, key: TenantKey, backfill_id: str) -> Row[Any]:
        at = and_(_of(key), _BACKFILLS.c.backfill_id == backfill_id)
        found = connection.execute(select(_BACKFILLS).where(at)).one_or_none()
        if found is None:
            count = connection.execute(select(func.count()).select_from(_BACKFILLS).where(_of(key))).scalar_one()
            raise UnknownName(
                f"tenant {key} has no backfill {backfill_id[:80]!r}; it has had {count} (`tistream backfill list`)"
            )
        return found


_ORDER = (_BACKFILLS.c.cluster_id, _BACKFILLS.c.tenant_id, _BACKFILLS.c.created_ms, _BACKFILLS.c.backfill_id)


def _of(key: TenantKey) -> ColumnElement[bool]:
    return and_(_BACKFILLS.c.cluster_id == key.cluster_id, _BACKFILLS.c.tenant_id == key.tenant_id)


def _number(backfill_id: str) -> int:
    return int(backfill_id[1:])


def _subject(key: TenantKey, backfill_id: str) -> Subject:
    return Subject(f"backfill {backfill_id} of tenant {key}", key)


def _fed_by_log_backups(connection: Connection) -> frozenset[TenantKey]:
    """The tenants that have, or once had, a log backup as a source."""
    columns = tables.sources.c.cluster_id, tables.sources.c.tenant_id
    return frozenset(TenantKey(*row) for row in connection.execute(select(*columns).distinct()))


def _info(row: Row[Any], snapshot_ts: int | None, fed: frozenset[TenantKey]) -> BackfillRow:
    return BackfillRow(
        cluster_id=row.cluster_id,
        tenant_id=row.tenant_id,
        backfill_id=row.backfill_id,
        source=BackfillSource.model_validate_json(row.source),
        tables=json.loads(row.asked),
        state=row.state,
        reason=row.reason,
        created_ms=row.created_ms,
        ended_ms=row.ended_ms,
        snapshot_ts=snapshot_ts,
        log_backup=TenantKey(row.cluster_id, row.tenant_id) in fed,
    )
