"""Reads the rows that a tenant's tasks have committed, and updates the tenant's schema. This module does all I/O;
`expected_tasks` decides what to rely on."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence

from tistream.errors import CorruptObject, InvariantBroken, NotFoundYet, TiStreamError
from tistream.model.ts import Window
from tistream.pool.footers import FooterCache
from tistream.pool.lineage import Lineage, LogSpan, reached
from tistream.pool.task_log import TaskLog
from tistream.schema.log_format import LogObject
from tistream.schema.records import Record
from tistream.schema.tidb.meta_change import MetaDecoder, MetaRow, UndecodableMeta
from tistream.storage import layout
from tistream.storage.object_store import ObjectStore
from tistream.wire.meta import TenantRoute
from tistream.wire.sorter import Hold
from tistream_schema import expected_tasks
from tistream_schema.durable_log import DurableLog
from tistream_schema.expected_tasks import ReportedProgress, SchemaTask, TaskPromise
from tistream_schema.keeping import LogKeeper, LogKeepingRules, newest_base_ts
from tistream_schema.pool_rows import schema_rows
from tistream_schema.tenant_schema import TenantSchema

log = logging.getLogger(__name__)

SNAPSHOT_RETRY_MS = 60_000


class SchemaFollower:
    """Keeps one tenant's schema up to date. Call `step` repeatedly, from one thread."""

    def __init__(
        self,
        objects: ObjectStore,
        schema: TenantSchema,
        durable: DurableLog,
        footers: FooterCache,
        keeping: LogKeepingRules,
        now_ms: Callable[[], int],
    ) -> None:
        """Create the follower of one tenant. now_ms: the monotonic clock."""
        self._objects = objects
        self._schema = schema
        self._durable = durable
        self._footers = footers
        self._now_ms = now_ms
        self._keeper = LogKeeper(keeping, now_ms())
        self._decoder = MetaDecoder()
        self._lineage = Lineage(objects, schema.tenant)
        self._logs: dict[int, TaskLog] = {}  # the logs in which the schema's keys were last found
        self._broken = False
        self._snapshot_ms: int | None = now_ms()  # when to delete schema_snap; None: it has been deleted

    def load(self) -> bool:
        """Read the log, or begin it from schema_snap. Returns whether the history is loaded; if it is not, the tenant's
        `holds` have the reason."""
        key = layout.schema_snap(self._schema.tenant)
        try:
            self._apply(self._durable.catch_up())
            if self._durable.number == 0:
                self._apply(self._durable.begin())
        except NotFoundYet:
            self._hold(key, "schema_snap has not arrived")
            return False
        except CorruptObject as error:
            self._hold(error.key, error.reason)
            return False
        self._schema.set_holds([])
        return True

    def step(self, route: TenantRoute, statuses: Mapping[int, ReportedProgress]) -> bool:
        """Read the newly committed rows, write their records to the log, and apply them. Returns whether resolved_ts
        has risen.

        `statuses`: the sorters' answers by task, requested *before* this call, because a promise counts only once every
        manifest that it rests on has been read. Damaged data becomes a hold of the tenant, and after an InvariantBroken
        all later calls do nothing. Raises Unavailable, KeyUnusable.
        """
        if self._broken or (self._schema.resolved_ts is None and not self.load()):
            return False
        tasks = expected_tasks.schema_tasks(route)
        if not route.tasks:
            self._hold(None, route.problem or "the tenant has not been cut into tasks yet")
            return False
        missing = expected_tasks.uncovered_span(tasks)
        if missing is not None:
            self._hold(None, f"no task serves the schema's keys from {missing.start.hex()}")
            return False
        self._let_go_of_snapshot(route)
        before = self._schema.resolved_ts
        try:
            self._read_to(self._covered(tasks, expected_tasks.promises(tasks, statuses)))
            self._keep_log()
        except UndecodableMeta as error:
            self._hold(error.key.hex(), str(error))
        except CorruptObject as error:
            self._hold(error.key, error.reason)
        except InvariantBroken as error:
            # Memory and the durable log differ: only a restart from the log can continue.
            self._broken = True
            self._hold(None, str(error))
        else:
            self._schema.set_holds([])
        return self._schema.resolved_ts != before

    def _let_go_of_snapshot(self, route: TenantRoute) -> None:
        """Delete schema_snap once the log contains it and the tenant has begun with it, because no process reads it any
        more. If that fails, only space is wasted."""
        if self._snapshot_ms is None or self._now_ms() < self._snapshot_ms:
            return
        if route.snapshot_ts != self._schema.snapshot_ts:
            return
        self._snapshot_ms = self._now_ms() + SNAPSHOT_RETRY_MS
        key = layout.schema_snap(self._schema.tenant)
        try:
            self._objects.delete(key)
        except TiStreamError as error:
            log.warning("schema_snap cannot be deleted yet", extra={"object": key, "reason": str(error)})
        else:
            self._snapshot_ms = None

    def _covered(self, tasks: Sequence[SchemaTask], promises: Mapping[int, TaskPromise]) -> int:
        """Read the tasks' newer manifests, and remember the logs of the tasks that hold schema keys. Returns the ts up
        to which these manifests have every row of the schema's keys."""
        covers: list[LogSpan] = []
        for task in tasks:
            promise = promises.get(task.task_id)
            found = self._lineage.covers(task, promise.manifest if promise else None)
            covers += [cover for cover in found if expected_tasks.overlaps_schema(cover.span)]
        self._lineage.forget_others()
        self._logs = {cover.log.task_id: cover.log for cover in covers}
        return reached(covers, promises)

    def _read_to(self, high_ts: int) -> None:
        low_ts = self._from_where()
        if high_ts <= low_ts:
            return
        try:
            rows, segments = schema_rows(self._objects, self._logs.values(), Window(low_ts, high_ts), self._footers)
        except NotFoundYet:
            for task_log in self._logs.values():
                task_log.refresh()
            low_ts = self._from_where()
            if high_ts <= low_ts:
                return
            rows, segments = schema_rows(self._objects, self._logs.values(), Window(low_ts, high_ts), self._footers)
        self._keeper.segments_read(segments)
        records, bad = self._decode(rows)
        if bad is not None:
            high_ts = bad.commit_ts - 1
        if records:
            self._append(high_ts, tuple(records))
        self._schema.advance(high_ts)
        if bad is not None:
            raise bad

    def _from_where(self) -> int:
        """The ts above which the registry must read the pool. The pool has every row above it, because sorters drop
        rows only once they are in the log. A registry that was paused for long may miss dropped rows; it must find them
        in the log, where another process has written them. Raises InvariantBroken if it does not find them."""
        retained_ts = max(_retained_ts(self._logs.values()))
        if retained_ts > self._resolved_ts():
            self._apply(self._durable.catch_up())
        if retained_ts > self._resolved_ts():
            reason = f"rows up to {retained_ts} may be gone from the pool, the schema is known up to"
            raise InvariantBroken(19, f"{self._schema.tenant}: {reason} {self._resolved_ts()}")
        return self._resolved_ts()

    def _resolved_ts(self) -> int:
        resolved_ts = self._schema.resolved_ts
        assert resolved_ts is not None
        return resolved_ts

    def _keep_log(self) -> None:
        """Do the maintenance of the log that is due although no schema has changed: write the progress, write a base,
        raise the floor, delete old objects."""
        now_ms, resolved_ts = self._now_ms(), self._resolved_ts()
        if resolved_ts > self._durable.high_ts and self._keeper.progress_due(now_ms):
            self._append(resolved_ts, ())
        base_ts = newest_base_ts(_retained_ts(self._logs.values()), self._durable.high_ts)
        known_from_ts = self._schema.base_ts
        assert known_from_ts is not None
        if self._keeper.base_due(base_ts, known_from_ts):
            head, records = self._schema.rebased(base_ts)
            self._apply(self._durable.append_base(self._resolved_ts(), head, records))
        if self._durable.base > self._durable.floor:
            self._durable.raise_floor()
        if below := self._keeper.collection_due(self._durable.floor, now_ms):
            count = self._durable.collect(below)
            self._keeper.collected(below)
            log.info("schema log collected", extra={"tenant": str(self._schema.tenant), "objects": count})

    def _decode(self, rows: Sequence[MetaRow]) -> tuple[list[Record], UndecodableMeta | None]:
        """Decode the rows to records. If a row cannot be decoded, returns the records of the commits before it, and the
        error."""
        records: list[Record] = []
        for row in rows:
            try:
                record = self._decoder.decode(row)
            except UndecodableMeta as error:
                return [kept for kept in records if kept.commit_ts < error.commit_ts], error
            if record is not None:
                records.append(record)
        return records, None

    def _append(self, high_ts: int, records: tuple[Record, ...]) -> None:
        """Write records to the log, after those that another process has written since."""
        while True:
            self._apply(self._durable.append(high_ts, records))
            records = tuple(record for record in records if record.commit_ts > self._durable.high_ts)
            if not records:
                return

    def _apply(self, log_objects: Iterable[LogObject]) -> None:
        for log_object in log_objects:
            self._schema.apply(log_object)
            self._keeper.wrote(self._now_ms(), base=log_object.base is not None)
            for record in log_object.records:
                self._decoder.learn(record)

    def _hold(self, name: str | None, reason: str) -> None:
        hold = Hold(stage="schema", object=name, reason=reason)
        if self._schema.holds != [hold]:
            log.warning("schema is held", extra={"tenant": str(self._schema.tenant), "object": name, "reason": reason})
        self._schema.set_holds([hold])


def _retained_ts(logs: Iterable[TaskLog]) -> list[int]:
    """For each task that holds schema keys, the ts at or below which rows of these keys may be gone."""
    return [log.view.state.schema_retained_ts if log.view.state is not None else 0 for log in logs]
