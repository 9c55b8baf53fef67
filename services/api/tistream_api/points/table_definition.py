"""Answers TableDefinition: the TableInfo that TiDB had for a table at a ts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tistream.follow.tenant_view import TenantView
from tistream.read.cursor import Scope
from tistream_api.encode.shown_names import MayRead
from tistream_api.points.named_table import table_at
from tistream_api.request.point_queries import When
from tistream_api.tenant.ts_validator import TsValidator


@dataclass(frozen=True, slots=True)
class Definitions:
    """Answers requests for the definitions of tables. Thread-safe."""

    times: TsValidator

    def definition(self, view: TenantView, scope: Scope, ts: When, may_read: MayRead | None) -> dict[str, Any]:
        """The answer of TableDefinition, as the members of its JSON: `info` is TiDB's TableInfo of the base table that
        has the name in `scope` (database and table) at `ts`. Raises UnknownName, Gone, InvalidRequest, Unavailable."""
        view.wait_fresh()
        at = self.times.readable(view, "ts", ts)
        version = table_at(view.source, scope, at, may_read)
        return {
            "ts": str(at),
            "database": version.database,
            "table": version.head.name,
            "table_id": str(version.head.id),
            "schema_version": str(view.source.schema_version(at)),
            "info": version.stored.info(),
        }
