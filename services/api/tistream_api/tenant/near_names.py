"""Finds the name that a caller may have meant, among the names that it may read. Pure, except for reads of the schema
history."""

from __future__ import annotations

from tistream.near import did_you_mean
from tistream.read.cursor import Scope
from tistream.read.source import TenantSource
from tistream.schema.visible import fold
from tistream_api.encode.shown_names import MayRead


def nearest(source: TenantSource, scope: Scope, ts: int, may_read: MayRead | None) -> str:
    """` (did you mean X?)` with the database or table at `ts` whose name is most like that of `scope`, which no object
    has; empty if no name is like it. `may_read`: None if the caller may read every name."""
    if scope.database is None:
        return ""
    databases = [one for one in source.databases(ts) if may_read is None or may_read(one, "")]
    own = next((one for one in databases if fold(one) == fold(scope.database)), None)
    if scope.table is None or own is None:
        return did_you_mean(scope.database, databases)
    tables = (one.name for one in source.tables(ts, own) or ())
    return did_you_mean(scope.table, (one for one in tables if may_read is None or may_read(own, one)))
