"""Runs DDL jobs as TiDB does: rows in `mysql.tidb_ddl_job`, schema versions, history, and metadata locks. No I/O.

One job runs at a time (upstream-formats 5.2, 7). It is queued first. Each step takes a schema version in one
transaction. In another transaction it stores its changes, its SchemaDiff and the job's row. A last transaction moves
the job to the history. A step waits for transactions that use the schema before the last one.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

from tistream.format.change_file import OP_DELETE, OP_PUT
from tistream.schema.tidb.meta_key import encode_key
from tistream_upstream.config import ClusterConfig
from tistream_upstream.schema import codec, ddl_steps, system_tables
from tistream_upstream.schema.catalog import STAMP, Catalog, Table, dump
from tistream_upstream.schema.ddl_steps import DdlPlan, DdlStep
from tistream_upstream.schema.schema_change import SchemaChange
from tistream_upstream.schema.table_info import schema_diff
from tistream_upstream.tikv.kv import Kv, Mutation, Txn
from tistream_upstream.work.session import Session
from tistream_upstream.world import World

_RUNNING, _ROLLED_BACK, _DONE, _SYNCED, _QUEUEING = 1, 3, 4, 6, 8
_TICK_MS = 100
_SQL_MODE = 1436549152
Json = dict[str, Any]
Puts = Sequence[tuple[bytes, bytes | None]]


class Ddl:
    """The DDL owner of the simulated TiDB: it runs DDL jobs, one schema state after the other."""

    def __init__(self, config: ClusterConfig, world: World, kv: Kv, catalog: Catalog, session: Session) -> None:
        self._config = config
        self._world = world
        self._kv = kv
        self._catalog = catalog
        self._session = session
        self._rng: random.Random = world.rng("ddl")
        self.busy = False
        self.stopped = False
        self.jobs = 0
        self.cancelled = 0  # jobs that took back what they had shown

    def start(self) -> None:
        """Begin to run jobs, `ddl_per_min` a minute."""
        if self._config.ddl_per_min:
            self._world.after(_TICK_MS, self._tick)

    def _tick(self) -> None:
        if self.stopped:
            return
        if not self.busy and self._rng.random() < self._config.ddl_per_min * _TICK_MS / 60_000:
            plan = self.choose()
            if plan is not None:
                self.submit(plan)
        self._world.after(_TICK_MS, self._tick)

    def choose(self) -> DdlPlan | None:
        """Choose a random job that is possible with the present catalog; None if the chosen kind is not possible."""
        catalog, rng, config = self._catalog, self._rng, self._config
        tables = catalog.usable()
        wanted = ["add", "add", "drop column", "rename", "truncate", "create", "drop table", "schema"]
        what = rng.choice(wanted)
        if what == "schema" and len(catalog.databases) < 3 * config.databases:
            return ddl_steps.create_schema(catalog)
        if (what == "create" and len(tables) < 2 * config.tables) or len(tables) < 1 + config.tables // 2:
            database = rng.choice(list(catalog.databases.values()))
            handle = rng.choice(config.handles)
            return ddl_steps.create_table(
                catalog, database, handle, config.columns, indexed=rng.random() < config.indexed
            )
        return self._alter(what, rng.choice(tables))

    def _alter(self, what: str, table: Table) -> DdlPlan | None:
        catalog, rng = self._catalog, self._rng
        indexed = table.layout.index.column_id if table.layout.index else None
        spare = [c for c in table.layout.columns if not c.primary and c.name != STAMP and c.id != indexed]
        if what == "drop column" and len(spare) > 1:
            return ddl_steps.drop_column(catalog, table, rng.choice(spare))
        if what == "rename":
            own = catalog.databases[table.database_id]
            other = rng.choice(list(catalog.databases.values()))
            cancelled = bool(self._config.ddl_cancelled) and rng.random() < self._config.ddl_cancelled
            return ddl_steps.rename_table(catalog, table, rng.choice([own, other]), cancelled=cancelled)
        if what == "truncate":
            return ddl_steps.truncate_table(catalog, table)
        if what == "drop table":
            return ddl_steps.drop_table(catalog, table)
        if len(table.layout.columns) < 2 * self._config.columns + 4:
            return ddl_steps.add_column(catalog, table)
        return None

    # -- a job ----------------------------------------------------------------------------------------------------

    def submit(self, plan: DdlPlan) -> None:
        """Queue a job, which starts at once. No other job may be running."""
        self.busy = True
        self.jobs += 1
        job_id = self._catalog.new_id()
        ids = plan.ids or ((plan.table_id,) if plan.table_id else ())
        self._job = _Job(plan, job_id, self._world.ts(), ids)
        puts = [(encode_key(b"NextGlobalID"), b"%d" % self._catalog.last_id), self._job.row(_QUEUEING, NONE_STATE)]
        self._commit(puts, SchemaChange(), lambda: self._version_for(0))

    def _version_for(self, number: int) -> None:
        plan = self._job.plan
        users = set() if plan.table is None or number == 0 else set(plan.table.users)

        def go_on() -> None:
            if plan.table is not None and users & plan.table.users:
                self._world.after(5, go_on)
                return
            version = self._catalog.version = self._catalog.version + 1
            puts = [(encode_key(b"SchemaVersionKey"), b"%d" % version)]
            self._commit(puts, SchemaChange(), lambda: self._step(number, version))

        self._world.after(self._rng.randint(1, 30), go_on)

    def _step(self, number: int, version: int) -> None:
        job, step = self._job, self._job.plan.steps[number]
        ts = self._world.ts()
        plan = job.plan
        diff = schema_diff(
            version, plan.action, plan.schema_id, plan.diff.get("table_id", plan.table_id),
            **{name: value for name, value in plan.diff.items() if name != "table_id"},
        )  # fmt: skip
        stored = list(step.puts(ts))
        job.last_version = version
        job.real_start_ts = job.real_start_ts or ts
        if step.done:
            job.finish(version, step.info(ts) if step.info else {})
        puts = [
            *stored,
            (encode_key(b"Diff:%d" % version), dump(diff)),
            system_tables.mdl_info(job.id, version, job.ids),
            job.row(_ended(step, _DONE) if step.done else _RUNNING, step.schema_state),
        ]
        change = SchemaChange(version, step.shapes, step.event)

        def then() -> None:
            self._commit([system_tables.mdl_gone(job.id)], SchemaChange(), lambda: self._after(number, step))

        self._commit(puts, change, then, step.enact)

    def _after(self, number: int, step: DdlStep) -> None:
        if not step.done:
            self._version_for(number + 1)
            return
        self.cancelled += step.undone
        job = self._job
        text = job.text(_ended(step, _SYNCED), step.schema_state, finished_ts=self._world.ts())
        puts = [
            (encode_key(b"DDLJobHistory", job.id.to_bytes(8, "big")), text),
            system_tables.history(job.id, text, job.plan.schema_name, job.plan.table_name, job.ids),
            (job.key, None),
        ]
        self._commit(puts, SchemaChange(), self._end)

    def _end(self) -> None:
        self.busy = False

    def _commit(
        self,
        puts: Puts,
        change: SchemaChange,
        then: Callable[[], None],
        enact: Callable[[], None] | None = None,
    ) -> None:
        """Run one transaction. `enact` is called when it is decided, `then` shortly after it has ended. Deletes of keys
        that do not exist are left out; if no change remains, only `then` is called, at once."""
        mutations = [Mutation(key, OP_DELETE if value is None else OP_PUT, value) for key, value in puts]
        mutations = [one for one in mutations if one.op == OP_PUT or self._kv.value(one.key) is not None]
        if not mutations:
            then()
            return

        def decided(_: Txn) -> None:
            if enact is not None:
                enact()

        txn = Txn(self._world.ts(), mutations, on_decided=decided, schema=change)
        self._session.run(txn, lambda: self._world.after(self._rng.randint(1, 10), then))


def _ended(step: DdlStep, state: int) -> int:
    """The state of a job that ends with `step`. A cancelled job stays in the state rolled back, also in the history."""
    return _ROLLED_BACK if step.undone else state


NONE_STATE = 0


class _Job:
    """The running job, and the JSON that is stored for it."""

    def __init__(self, plan: DdlPlan, job_id: int, start_ts: int, ids: Sequence[int]) -> None:
        self.plan = plan
        self.id = job_id
        self.ids = ids
        self.start_ts = start_ts
        self.real_start_ts = 0
        self.last_version = 0
        self._binlog: Json = {
            "SchemaVersion": 0, "DBInfo": None, "TableInfo": None, "FinishedTS": 0, "MultipleTableInfos": None
        }  # fmt: skip

    @property
    def key(self) -> bytes:
        return codec.record_key(system_tables.DDL_JOB, self.id)

    def finish(self, version: int, info: Json) -> None:
        """Record the job's result, the schema version and the TableInfo or DBInfo of its last step, in its JSON."""
        name = "DBInfo" if "db_name" in info else "TableInfo"
        self._binlog = {**self._binlog, "SchemaVersion": version, name: info or None}

    def row(self, state: int, schema_state: int) -> tuple[bytes, bytes]:
        """The key and the value of the job's row in `mysql.tidb_ddl_job`."""
        text = self.text(state, schema_state)
        return self.key, system_tables.ddl_job(text, self.plan.schema_id, self.ids, self.plan.action)

    def text(self, state: int, schema_state: int, finished_ts: int = 0) -> bytes:
        """The job as JSON text."""
        plan = self.plan
        return dump(
            {
                "id": self.id,
                "type": plan.action,
                "schema_id": plan.schema_id,
                "table_id": plan.table_id,
                "schema_name": plan.schema_name,
                "table_name": plan.table_name,
                "state": state,
                "warning": None,
                "err": None,
                "err_count": 0,
                "row_count": 0,
                "raw_args": {},
                "schema_state": schema_state,
                "snapshot_ver": 0,
                "real_start_ts": self.real_start_ts,
                "start_ts": self.start_ts,
                "dependency_id": 0,
                "query": plan.query,
                "binlog": {**self._binlog, "FinishedTS": finished_ts},
                "version": 2,
                "reorg_meta": None,
                "multi_schema_info": None,
                "priority": 0,
                "seq_num": 0,
                "charset": "",
                "collate": "",
                "admin_operator": 0,
                "trace_info": None,
                "bdr_role": "",
                "cdc_write_source": 0,
                "local_mode": False,
                "sql_mode": _SQL_MODE,
                "last_schema_version": self.last_version,
            }
        )
