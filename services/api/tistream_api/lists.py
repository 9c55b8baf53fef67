"""ListDBs and ListTables: names as of a time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tistream.clock import Clock
from tistream.errors import InvalidRequest, Unavailable, UnknownName
from tistream.model.ts import from_physical_ms
from tistream_api.tenant_view import TenantView


@dataclass(slots=True)
class Lists:
    """Lists of every tenant. A `ts` that is not resolved yet is waited for, `wait_ms` at most."""

    clock: Clock
    wait_ms: int

    def databases(self, view: TenantView, ts: int | None) -> dict[str, Any]:
        """Answer of ListDBs. Raises Gone, InvalidRequest, Unavailable."""
        at = self._time(view, ts)
        return {"ts": str(at), "databases": view.source.databases(at)}

    def tables(self, view: TenantView, database: str, ts: int | None) -> dict[str, Any]:
        """Answer of ListTables. Raises UnknownName, Gone, InvalidRequest, Unavailable."""
        at = self._time(view, ts)
        found = view.source.tables(at, database)
        if found is None:
            raise UnknownName(f"no database {database!r} at {at}")
        tables = [
            {"name": table.name, "table_id": str(table.table_id), "schema_version": str(table.schema_version)}
            for table in found
        ]
        return {"ts": str(at), "database": database, "tables": tables}

    def _time(self, view: TenantView, ts: int | None) -> int:
        view.wait_fresh()
        if ts is not None:
            view.check_retained(ts)
        view.check_known()
        resolved_ts = view.resolved_ts()
        if ts is None:
            return resolved_ts
        if ts > max(resolved_ts, from_physical_ms(self.clock.now_ms() + 1) - 1):
            raise InvalidRequest(f"ts {ts} lies in the future", {"parameter": "ts"})
        if ts > resolved_ts and not view.wait_above(ts - 1, self.wait_ms):
            raise Unavailable(f"the schema at {ts} is not known yet: resolved_ts is {view.resolved_ts()}")
        return ts
