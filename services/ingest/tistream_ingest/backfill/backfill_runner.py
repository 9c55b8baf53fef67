"""Runs backfills step by step: the plan, the base chunks (all rows of a span of keys as of one ts), the end. Several
processes may run the same backfill, and each may die at any point.

Every object is created by a conditional put from the same input, and all state is in the objects. So two processes
produce the same objects, and a new process continues with the missing ones.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from tistream.clock import Clock
from tistream.errors import CorruptObject, InvalidRequest, NotFoundYet, TiStreamError
from tistream.format.backfill import refused_chunk
from tistream.format.backfill.chunk_plan import ChunkPlan, encode_done, encode_plan
from tistream.model.base_cover import Cover
from tistream.model.ids import TenantKey
from tistream.schema.history import History
from tistream.schema.tidb.snapshot import parse_snapshot
from tistream.storage import layout
from tistream.storage.backups.backup_reader import open_backup, read_pairs, read_schema_snap
from tistream.storage.chunk_reader import read_plan
from tistream.storage.object_store import ObjectStore
from tistream.targets.mysql_url import MySqlUrl
from tistream.wire.bulk.backfills import REASON_MAX, BackfillRow, EndBackfill
from tistream_ingest.backfill.chunk_job import BackupWork
from tistream_ingest.backfill.chunk_units import BackupPlan, plan_backup
from tistream_ingest.backfill.next_step import BackfillEnd, ended, first_missing, missing_units, overdue, too_old
from tistream_ingest.jobs.chunk_put import ChunksWritten, put_once
from tistream_ingest.metrics import IngestMetrics
from tistream_ingest.plan.requested_tables import requested_tables
from tistream_ingest.sqlread.chunk_reading import SqlWork
from tistream_ingest.sqlread.sql_backfills import SqlBackfills

log = logging.getLogger(__name__)

WAVE_UNITS = 32  # of one job; after it the state of the backfill is looked at again


class ChunkWriter(Protocol):
    """Writes chunks, which it reads from the files of a backup or by SQL, as one Spark job."""

    def write(self, backup_url: str, works: Sequence[BackupWork]) -> list[ChunksWritten]: ...

    def write_sql(self, server: MySqlUrl, works: Sequence[SqlWork]) -> list[ChunksWritten]: ...


class Backfills(Protocol):
    """The interface to the meta server's list of backfills: finds the running ones, and reports the end of one."""

    def running(self) -> Sequence[BackfillRow]: ...

    def end(self, row: BackfillRow, end: EndBackfill) -> None: ...


@dataclass(slots=True)
class BackfillRunner:
    """Runs the backfills of this process: call `step` repeatedly. open_backup_store: opens the backup's object store by
    its URL. cover: the spans of a tenant whose rows are all known already, according to its tasks' manifests.
    plan_wait_ms: how long to wait for the plan of a backfill whose chunks a program pushes."""

    objects: ObjectStore
    backfills: Backfills
    writer: ChunkWriter
    open_backup_store: Callable[[str], ObjectStore]
    cover: Callable[[TenantKey], Cover]
    sql: SqlBackfills
    metrics: IngestMetrics
    clock: Clock
    plan_wait_ms: int
    idle: bool = False  # whether the last step found no running backfill
    _plans: dict[tuple[TenantKey, str], BackupPlan] = field(default_factory=dict)
    _seen: dict[tuple[TenantKey, str], set[int]] = field(default_factory=dict)  # chunks that exist

    def step(self) -> bool:
        """Run one job for each running backfill. Returns whether any chunk was written. Errors of one backfill do not
        stop the others: a permanent error ends its backfill, and after a temporary error the work is repeated by the
        next step. Raises Unavailable if the list of backfills cannot be read."""
        worked = False
        rows = self.backfills.running()
        self.idle = not rows
        keys = {(_tenant(row), row.backfill_id) for row in rows}
        self._plans = {key: plan for key, plan in self._plans.items() if key in keys}
        self._seen = {key: seen for key, seen in self._seen.items() if key in keys}
        for row in rows:
            try:
                worked |= self._guarded(row)
            except TiStreamError as error:
                log.warning("backfill waits", extra={**_fields(row), "error": str(error)})
            except Exception as error:  # whatever Spark raises: no chunk that it wrote is lost
                log.error("job of a backfill failed", exc_info=error, extra=_fields(row))
        return worked

    def _guarded(self, row: BackfillRow) -> bool:
        try:
            return self._one(row)
        except (InvalidRequest, CorruptObject) as error:
            self._end(row, BackfillEnd(str(error)))
            return False

    def _one(self, row: BackfillRow) -> bool:
        if row.snapshot_ts is None:
            return False  # the tenant has not begun
        worked = False
        if row.source.kind == "sql":
            worked = self._write_sql(row)
        if row.source.kind == "br-full":
            worked = self._write(row)
        try:
            plan = read_plan(self.objects, _tenant(row), row.backfill_id)
        except NotFoundYet:  # it is pushed later
            late = overdue(row.created_ms, self.clock.now_ms(), self.plan_wait_ms)
            if late is not None:
                self._end(row, late)
            return worked
        there = self._there(row)
        refused = self._refused(row)
        found = ended(plan, there, refused, self.cover(_tenant(row)) if len(there) == len(plan.spans) else ())
        if found is not None and found.reason is None and row.source.kind == "sql":
            found = BackfillEnd(self.sql.refused(row, plan))
        if found is not None:
            self._end(row, found)
        return worked

    def _write(self, row: BackfillRow) -> bool:
        """Write the next chunks of a backfill from a BR full backup; if all chunks exist, create the object that says
        so. Returns whether any chunk was written."""
        planned = self._planned(row)
        tenant = _tenant(row)
        units = missing_units(planned.units, self._there(row), WAVE_UNITS)
        if not units:
            put_once(self.objects, layout.backfill_done(tenant, row.backfill_id), encode_done(len(planned.plan.spans)))
            return False
        assert row.source.url is not None, "the meta server has checked the order"
        works = [BackupWork(tenant, row.backfill_id, planned.plan.min_ts, unit) for unit in units]
        return self._counted(row, self.writer.write(row.source.url, works))

    def _write_sql(self, row: BackfillRow) -> bool:
        """Read and write the next chunks of a backfill by SQL, at most as many as its request has threads. The first
        call stores the plan; if all chunks exist, the object that says so is created. Returns whether any chunk was
        written."""
        tenant = _tenant(row)
        try:
            plan = read_plan(self.objects, tenant, row.backfill_id)
        except NotFoundYet:
            put_once(self.objects, layout.backfill_plan(tenant, row.backfill_id), encode_plan(self.sql.plan(row)))
            plan = read_plan(self.objects, tenant, row.backfill_id)  # of the first process that had one
        there = self._there(row)
        missing = [number for number in range(len(plan.spans)) if number not in there][: row.source.threads]
        if not missing:
            put_once(self.objects, layout.backfill_done(tenant, row.backfill_id), encode_done(len(plan.spans)))
            return False
        return self._counted(row, self.writer.write_sql(self.sql.url(row), self.sql.works(row, plan, missing)))

    def _counted(self, row: BackfillRow, results: Sequence[ChunksWritten]) -> bool:
        """Count the written chunks in the metrics. Returns whether there were any. Raises InvalidRequest for a failure
        that a retry does not change."""
        for result in results:
            self.metrics.chunks.inc(result.written)
            self.metrics.chunk_bytes.inc(result.bytes)
            if result.failed is not None and not result.retry:
                raise InvalidRequest(result.failed)
            if result.failed is not None:
                log.warning("chunks not written", extra={**_fields(row), "error": result.failed})
        return any(result.written for result in results)

    def _planned(self, row: BackfillRow) -> BackupPlan:
        """The plan of a backfill from a BR full backup. Every process computes the same plan, and the first one stores
        it. Raises InvalidRequest if the backup is older than the tenant's snapshot or if a pattern of the request
        matches no table, CorruptObject if another plan is stored."""
        key = _tenant(row), row.backfill_id
        if key not in self._plans:
            assert row.source.url is not None
            assert row.snapshot_ts is not None
            backup = self.open_backup_store(row.source.url)
            found = open_backup(backup)
            reason = too_old(found.end_version, row.snapshot_ts)
            if reason is not None:
                raise InvalidRequest(reason)
            snapshot = parse_snapshot(row.source.url, read_schema_snap(backup, found))
            history, ts = History(snapshot.snapshot_ts), snapshot.snapshot_ts
            history.apply(snapshot.records)
            visible = [one for name in history.databases(ts) for one in history.visible_tables(ts, name)]
            requested = requested_tables(row.tables, visible)
            planned = plan_backup((span for table in requested for span in table.spans), read_pairs(backup, found), ts)
            self._create(row, planned.plan)
            self._plans[key] = planned
        return self._plans[key]

    def _create(self, row: BackfillRow, plan: ChunkPlan) -> None:
        tenant = _tenant(row)
        key = layout.backfill_plan(tenant, row.backfill_id)
        if (
            not put_once(self.objects, key, encode_plan(plan))
            and read_plan(self.objects, tenant, row.backfill_id) != plan
        ):
            raise CorruptObject(
                key, "is not the plan of this backup: another program has created it; order the backfill again"
            )

    def _there(self, row: BackfillRow) -> set[int]:
        """The numbers of the chunks that exist in the object store. The LIST begins after those that are known to
        exist."""
        tenant = _tenant(row)
        seen = self._seen.setdefault((tenant, row.backfill_id), set())
        begun = first_missing(seen)
        after = "" if not begun else layout.base_chunk(tenant, row.backfill_id, begun - 1)
        for info in self.objects.list_after(layout.chunk_prefix(tenant, row.backfill_id), after):
            number = layout.parse_base_chunk(tenant, row.backfill_id, info.key)
            if number is not None:
                seen.add(number)
        return seen

    def _refused(self, row: BackfillRow) -> dict[int, str]:
        tenant = _tenant(row)
        found = {}
        for info in self.objects.list_after(layout.refused_prefix(tenant, row.backfill_id)):
            number = layout.parse_refused_chunk(tenant, row.backfill_id, info.key)
            if number is not None:
                found[number] = refused_chunk.decode(info.key, self.objects.get(info.key))
        return found

    def _end(self, row: BackfillRow, found: BackfillEnd) -> None:
        reason = None if found.reason is None else found.reason[:REASON_MAX]
        end = EndBackfill(state=found.state, reason=reason)
        log.info("backfill ended", extra={**_fields(row), "state": end.state, "reason": reason})
        self.backfills.end(row, end)


def _tenant(row: BackfillRow) -> TenantKey:
    return TenantKey(row.cluster_id, row.tenant_id)


def _fields(row: BackfillRow) -> dict[str, str]:
    return {"tenant": str(_tenant(row)), "backfill": row.backfill_id}
