"""Answers ListDBs, ListTables and TableSchema, with names and columns at a ts; and DdlHistory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tistream.clock import Clock
from tistream.errors import InvalidRequest, Unavailable, UnknownName
from tistream.follow.tenant_view import TenantView
from tistream.model.base_cover import Hole
from tistream.model.ts import Window, from_physical_ms
from tistream.read.completeness import complete_from
from tistream.read.cursor import Scope
from tistream.read.imported import why_not_served
from tistream.schema.ddl_event import DdlEvent
from tistream.wire.api import DatabaseList, DdlPage, ShownColumn, TableColumns, TableName, TableNames
from tistream.wire.changes import DdlChange
from tistream.wire.schema_views import column_views
from tistream_api.encode.ndjson import ddl_object
from tistream_api.encode.shown_names import MayRead
from tistream_api.tenant.near_names import nearest


@dataclass(slots=True)
class Lists:
    """Answers the list calls for every tenant. If `ts` is not resolved yet, a call waits for it, at most `wait_ms`."""

    clock: Clock
    wait_ms: int

    def databases(self, view: TenantView, ts: int | None) -> DatabaseList:
        """The answer of ListDBs. Raises Gone, InvalidRequest, Unavailable."""
        at = self._time(view, ts)
        return DatabaseList(ts=str(at), databases=view.source.databases(at))

    def tables(self, view: TenantView, database: str, ts: int | None, may_read: MayRead | None) -> TableNames:
        """The answer of ListTables. Raises UnknownName, Gone, InvalidRequest, Unavailable."""
        at = self._time(view, ts)
        found = view.source.tables(at, database)
        if found is None:
            near = nearest(view.source, Scope(view.tenant, database), at, may_read)
            raise UnknownName(f"there is no database {database!r} at {at}{near}: ListDBs with this ts has the names")
        physical = {
            one.head.id: one.head.physical_ids for one in view.source.tables_at(at, Scope(view.tenant, database))
        }
        tables = [
            TableName(
                name=table.name,
                table_id=str(table.table_id),
                schema_version=str(table.schema_version),
                base_ts=self._base_ts(view, physical.get(table.table_id, ())),
                held=why_not_served(view.source, view.shards(), physical.get(table.table_id, ()), at),
            )
            for table in found
        ]
        return TableNames(ts=str(at), database=database, tables=tables)

    def _base_ts(self, view: TenantView, physical_ids: Sequence[int]) -> str | None:
        """The ts from which on all rows of a table can be read; None if some of them are not known."""
        found = complete_from(view.source, view.shards(), physical_ids)
        return None if isinstance(found, Hole) else str(max(found, view.earliest_ts()))

    def schema(
        self, view: TenantView, database: str, table: str, ts: int | None, may_read: MayRead | None
    ) -> TableColumns:
        """The answer of TableSchema. Raises UnknownName, Gone, InvalidRequest, Unavailable."""
        at = self._time(view, ts)
        version = view.source.table(at, database, table)
        if version is None:
            near = nearest(view.source, Scope(view.tenant, database, table), at, may_read)
            raise UnknownName(
                f"there is no table {database}.{table} at {at}{near}: ListTables with this ts has the names"
            )
        return TableColumns(
            ts=str(at),
            database=version.database,
            table=version.table.name,
            table_id=str(version.table.id),
            kind=version.table.kind,
            schema_version=str(view.source.schema_version(at)),
            columns=[
                ShownColumn(**column.model_dump(exclude={"id"}), id=str(column.id))
                for column in column_views(version.table)
            ],
        )

    def ddl(self, view: TenantView, before_ts: int | None, limit: int) -> DdlPage:
        """The answer of DdlHistory: the newest events below `before_ts`, newest first. Raises Gone, Unavailable."""
        view.wait_fresh()
        view.check_known()
        earliest_ts, resolved_ts = view.earliest_ts(), view.resolved_ts()
        high = resolved_ts if before_ts is None else min(resolved_ts, before_ts - 1)
        events: tuple[DdlEvent, ...] = ()
        if high > earliest_ts:
            events = view.source.ddl_events(Scope(view.tenant), Window(earliest_ts, high)).events
        return DdlPage(
            resolved_ts=str(resolved_ts),
            earliest_ts=str(earliest_ts),
            events=[DdlChange.model_validate(ddl_object(event)) for event in reversed(events[-limit:])],
            more=len(events) > limit,
        )

    def _time(self, view: TenantView, ts: int | None) -> int:
        view.wait_fresh()
        if ts is not None:
            view.check_served(ts)
        view.check_known()
        resolved_ts = view.resolved_ts()
        if ts is None:
            return resolved_ts
        if ts > max(resolved_ts, from_physical_ms(self.clock.now_ms() + 1) - 1):
            raise InvalidRequest(
                f"ts {ts} lies in the future: leave it out for the newest, {resolved_ts}", {"parameter": "ts"}
            )
        if ts > resolved_ts and not view.wait_above(ts - 1, self.wait_ms):
            raise Unavailable(
                f"the schema at {ts} is not known yet: retry once resolved_ts, now {view.resolved_ts()}, has reached it"
            )
        return ts
