"""Runs one attempt at a restore that this process has claimed.

All state is in the target and in the stored plan. So an attempt may end at any point: the next attempt, in this process
or another, writes the missing chunks.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from tistream.errors import (
    ClaimEnded,
    CommitConflict,
    CommitStateUnknown,
    FatalError,
    Gone,
    NotFoundYet,
    RetryableError,
    Unavailable,
)
from tistream.model.ids import TenantKey
from tistream.pool.versions.plan import IndexShard, records_of
from tistream.restore.fingerprint import Fingerprint
from tistream.restore.linked_info import linked_info
from tistream.schema.tidb.create_table import Dialect, UnsupportedTable, table_statements
from tistream.schema.tidb.table import parse_table
from tistream.storage import layout
from tistream.storage.object_store import ObjectStore
from tistream.targets.mysql import MySqlTarget, TargetFailed
from tistream.targets.mysql_url import MySqlUrl
from tistream.targets.restored_table import Name, RestoredTable, TableExists, TargetRefused
from tistream.wire.bulk.restores import MySqlPlace, RestoreReport, RestoreTable, RestoreWork, SqlFilesPlace
from tistream_ingest.restore import restore_plan
from tistream_ingest.restore.allowed import AllowedTargets
from tistream_ingest.restore.chunk_io import ChunkWork, CountWork, ReadBackWork, ReadWork, WorkFailed, guarded, opened
from tistream_ingest.restore.chunk_target import NumberedTable, TargetSpec
from tistream_ingest.restore.restore_plan import Chunk, PlannedTable

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class TableAtTs:
    """A table as of the restore's ts: its (database, table) name, its TableInfo and its physical ids."""

    name: Name
    info: dict[str, Any]
    physical_ids: tuple[int, ...]


class Tenants(Protocol):
    """The interface through which a restore reads the schema and the committed rows of tenants."""

    def tables(self, tenant: TenantKey, ts: int, names: Sequence[Name]) -> list[TableAtTs]:
        """The tables with these names at the ts, in the order of `names`. Raises UnknownName, Gone, Unavailable."""

    def shards(self, tenant: TenantKey, ts: int) -> Sequence[IndexShard]:
        """The shards of the tenant's pool, in key order; they have every row committed up to `ts`. Raises
        Unavailable."""


class Runner(Protocol):
    """Runs work items on executors, such as those of Spark."""

    @property
    def slots(self) -> int: ...

    def each(self, tenant: TenantKey, work: Callable[[ObjectStore, Any], Any], things: Sequence[Any]) -> list[Any]: ...


class RestoreRefused(Exception):
    """Raised if the restore fails, because a retry could not succeed. The text is the reason."""


class RestoreRetry(Exception):
    """Raised if this attempt has failed for a temporary reason, so a later attempt may succeed."""


@dataclass(slots=True)
class RestoreAttempt:
    """One attempt at a restore. `report` sends progress, and raises ClaimEnded once another process has claimed the
    restore, or it was cancelled. `metered` is called with the number of rows that were read from the tenant; rows that
    a later attempt reads again count again. `progressed` is called after chunks were
    written."""

    work: RestoreWork
    objects: ObjectStore
    tenants: Tenants
    runner: Runner
    allowed: AllowedTargets
    report: Callable[[RestoreReport], object]
    metered: Callable[[int], None] = lambda _: None
    progressed: Callable[[], None] = lambda: None
    _done: dict[Name, int] = field(default_factory=dict)
    _checksums: dict[Name, str] = field(default_factory=dict)
    _plan: tuple[PlannedTable, ...] = ()
    _secrets: tuple[str, ...] = ()

    @property
    def tenant(self) -> TenantKey:
        return TenantKey(self.work.cluster_id, self.work.tenant_id)

    def attempt(self) -> None:
        """Write all chunks that are missing, compare the target, and report the end. Raises ClaimEnded, RestoreRefused,
        RestoreRetry; their texts contain no part of the address of a server."""
        try:
            self._attempt()
        except ClaimEnded:
            raise
        except TableExists as error:
            raise RestoreRefused(
                f'{error} is there, and this restore has not made it: "if_exists": "replace" drops it'
            ) from error
        except (TargetRefused, FatalError) as error:
            raise RestoreRefused(self._clean(str(error))) from error
        except (TargetFailed, RetryableError, CommitStateUnknown, OSError) as error:
            raise RestoreRetry(self._clean(str(error))) from error

    def report_progress(self, state: str, reason: str | None = None) -> None:
        """Report the present progress. Raises ClaimEnded, Unavailable."""
        self.report(self.progress_report(state, reason))

    def end(self, state: str, reason: str | None = None) -> None:
        """Report the end, then delete the plan. Another process that still runs the restore stops at its next report,
        before it could make a new plan. Raises ClaimEnded, Unavailable."""
        self.report_progress(state, reason)
        self.objects.delete(layout.restore_plan(self.tenant, self.work.wanted.restore_id))

    def progress_report(self, state: str, reason: str | None = None) -> RestoreReport:
        """Build the report of the present progress, without sending it."""
        tables = restore_plan.progress(self._plan, self._done, self._checksums) or [
            RestoreTable(database=one.database, table=one.table) for one in self.work.wanted.tables
        ]
        return RestoreReport(epoch=self.work.epoch, state=state, tables=tables, reason=reason)  # type: ignore[arg-type]

    def _attempt(self) -> None:
        ts, replace = int(self.work.wanted.ts), self.work.wanted.if_exists == "replace"
        spec, database = self._spec()
        names = [(one.database, one.table) for one in self.work.wanted.tables]
        found, left_out = self._numbered(self.tenants.tables(self.tenant, ts, names), spec.dialect, database)
        ids = {then.name: then.physical_ids for _, then in found}
        with opened(spec) as target:
            if not replace:
                for one, _ in found:
                    if target.taken(one):
                        raise TableExists(".".join(one.table.name))
            rows_max = target.chunk_rows
        self._plan = self._planned(ts, ids, rows_max)
        by_name = {(one.database, one.table): one for one in self._plan}
        self.report_progress("running")
        with opened(spec) as target:
            for one, _ in found:
                target.begin(one, replace=replace)
        for one, then in found:
            self._table(ts, one, by_name[then.name], spec)
        with opened(spec) as target:
            for one, _ in found:
                target.add_foreign_keys(one)
        reason = None
        if left_out:
            reason = "left out: " + "; ".join(f"{'.'.join(name)}: {why}" for name, why in left_out)
        if not found:
            raise RestoreRefused(f"the target can hold none of the tables; {reason}")
        self.end("done", reason)

    def _spec(self) -> tuple[TargetSpec, str | None]:
        """The target, and the database that the target's address names; None if tables keep their databases."""
        place = self.work.wanted.target
        self.allowed.check(place)
        if not isinstance(place, MySqlPlace):
            dialect = Dialect(place.dialect) if isinstance(place, SqlFilesPlace) else Dialect.TIDB
            return TargetSpec(place.kind, place.url, dialect), None
        url = self.allowed.server(place.dsn_file)
        self._secrets = (str(url), *((url.password,) if url.password else ()), url.host)
        bare = MySqlUrl(url.host, url.port, url.user, url.password, None, url.options)
        with MySqlTarget(bare) as target:
            return TargetSpec(place.kind, bare, target.dialect), url.database

    def _numbered(
        self, tables: Sequence[TableAtTs], dialect: Dialect, database: str | None
    ) -> tuple[list[tuple[NumberedTable, TableAtTs]], list[tuple[Name, str]]]:
        """Number the tables that the target can hold. Returns them, and the tables that it cannot hold, each with the
        reason."""
        place = self.work.wanted.target
        renamed = dict(place.rename) if isinstance(place, MySqlPlace) else {}
        for then in tables:
            if database is not None:
                renamed.setdefault(then.name[0], database)
        found: list[tuple[NumberedTable, TableAtTs]] = []
        left_out: list[tuple[Name, str]] = []
        for number, then in enumerate(tables, 1):
            name = (renamed.get(then.name[0], then.name[0]), then.name[1])
            try:
                statements = table_statements(linked_info(then.info, then.name[0], renamed), name, dialect)
            except UnsupportedTable as error:
                left_out.append((then.name, str(error)))
                continue
            columns = parse_table(then.info).visible_columns
            table = RestoredTable(then.name, name, columns, statements, self.work.wanted.restore_id)
            found.append((NumberedTable(number, table, then.info), then))
        if twice := _twice(one.table.name for one, _ in found):
            raise RestoreRefused(f"two tables would be restored as {'.'.join(twice)}: rename one of their databases")
        return found, left_out

    def _planned(self, ts: int, ids: dict[Name, tuple[int, ...]], rows_max: int) -> tuple[PlannedTable, ...]:
        """The stored plan. If there is no plan yet, one is made and stored; if two processes do that, the plan of the
        first one counts. `ids`: the physical ids of each table. `rows_max`: the most rows of a chunk."""
        key, restore_id = layout.restore_plan(self.tenant, self.work.wanted.restore_id), self.work.wanted.restore_id
        try:
            return restore_plan.decode(key, restore_id, self.objects.get(key))
        except NotFoundYet:
            shards = self._shards(ts, [one for some in ids.values() for one in some])
        made = []
        for name, some in ids.items():
            parts = restore_plan.parts_of(shards, some)
            works = [
                CountWork(ReadWork(self.tenant, ts, restore_plan.shards_for(shards, part), part), rows_max)
                for part in parts
            ]
            ends = self._each(works)
            made.append(PlannedTable(*name, restore_plan.chunks_of(zip(parts, ends, strict=True))))
            self.report_progress("running", f"counts the rows of {len(made)} of {len(ids)} tables")
        try:
            self.objects.put_new(key, restore_plan.encode(restore_id, made))
        except CommitConflict:
            log.info("another process has planned the restore", extra={"restore": restore_id})
        return restore_plan.decode(key, restore_id, self.objects.get(key))

    def _shards(self, ts: int, ids: Iterable[int]) -> Sequence[IndexShard]:
        """The shards of the pool that have rows of these physical ids. Raises Gone if the pool no longer has the state
        at `ts`."""
        shards = self.tenants.shards(self.tenant, ts)
        spans = [records_of(one).span for one in ids]
        over = [shard for shard in shards if any(shard.span.overlaps(span) for span in spans)]
        base_ts = max((shard.base_ts for shard in over), default=0)
        if ts < base_ts:
            raise Gone(f"{ts} lies below retention: restore at {base_ts} or later", {"earliest_ts": str(base_ts)})
        return over

    def _table(self, ts: int, one: NumberedTable, plan: PlannedTable, spec: TargetSpec) -> None:
        """Write the chunks of a table that are missing, then compare the target with the rows as of the ts. Raises
        RestoreRefused if they differ."""
        name = one.table.source
        with opened(spec) as target:
            there = target.there(one)
        rest = restore_plan.missing_chunks(plan, there)
        before = [chunk for chunk in plan.chunks if chunk.number in there]
        self._done[name] = sum(chunk.rows for chunk in before)
        total = Fingerprint()
        for chunks, write in ((rest, True), (before, False)):
            for lot in restore_plan.groups_of(chunks, 2 * self.runner.slots):
                for found in self._chunks(ts, one, lot, spec, write=write):
                    total += found
                    self.metered(found.rows)
                if write:
                    self._done[name] += sum(chunk.rows for chunk in lot)
                    self.progressed()
                self.report_progress("running")
        if total.rows != plan.rows:
            raise RestoreRefused(
                f"table {'.'.join(name)} has {total.rows} rows at {ts}, and {plan.rows} were counted before: start the "
                "restore again, and report this"
            )
        with opened(spec) as target:
            parts = target.parts(one, len(plan.chunks))
        if parts:
            back = sum(self._each([ReadBackWork(one, part, spec) for part in parts]), Fingerprint())
            if back != total:
                raise RestoreRefused(
                    f"table {'.'.join(one.table.name)} differs from what it was: the target has {back}, and it had "
                    f"{total}. If nothing else wrote into it, please report this"
                )
        self._checksums[name] = f"{total.total:016x}"
        self.report_progress("running")

    def _chunks(
        self, ts: int, one: NumberedTable, lot: Sequence[Chunk], spec: TargetSpec, *, write: bool
    ) -> list[Fingerprint]:
        shards = self._shards(ts, sorted({chunk.wanted.table_id for chunk in lot}))
        works = [
            ChunkWork(
                ReadWork(self.tenant, ts, restore_plan.shards_for(shards, chunk.wanted), chunk.wanted),
                one,
                chunk,
                spec,
                write,
            )
            for chunk in lot
        ]
        return self._each(works)

    def _each(self, works: Sequence[Any]) -> list[Any]:
        found = self.runner.each(self.tenant, guarded, works) if works else []
        for failed in (one for one in found if isinstance(one, WorkFailed)):
            if failed.kind == "refused":
                raise RestoreRefused(self._clean(failed.reason))
            raise Unavailable(failed.reason)
        return found

    def _clean(self, text: str) -> str:
        for secret in self._secrets:
            text = text.replace(secret, "the server")
        return text


def _twice(names: Iterable[Name]) -> Name | None:
    """The first name that occurs twice, compared as servers compare names; None if all are different."""
    seen = set()
    for name in names:
        folded = (name[0].lower(), name[1].lower())
        if folded in seen:
            return name
        seen.add(folded)
    return None
