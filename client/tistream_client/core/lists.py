"""Short calls: names, tables, status."""

from __future__ import annotations

from typing import Any

from tistream_client.core.asking import Patience, json_of
from tistream_client.core.events import TableInfo, TenantStatus
from tistream_client.core.scope import Scope
from tistream_client.core.steps import Asking, Fetch


def databases(scope: Scope, at: int | None, patience: Patience) -> Asking[list[str]]:
    """The names of the tenant's databases."""
    found = yield from patience.ask(Fetch(scope.path("databases"), _at(at)), json_of)
    names: Any = found["databases"]
    return list(names)


def tables(scope: Scope, at: int | None, patience: Patience) -> Asking[list[TableInfo]]:
    """The tables of the scope's database."""
    found = yield from patience.ask(Fetch(scope.path("tables"), _at(at)), json_of)
    listed: Any = found["tables"]
    return [
        TableInfo(
            name=one["name"],
            table_id=int(one["table_id"]),
            schema_version=int(one["schema_version"]),
            base_ts=None if one["base_ts"] is None else int(one["base_ts"]),
            held=one["held"],
        )
        for one in listed
    ]


def status(scope: Scope, patience: Patience) -> Asking[TenantStatus]:
    """The tenant's progress."""
    found: Any = yield from patience.ask(Fetch(scope.path("status"), {}), json_of)
    return TenantStatus(
        resolved_ts=int(found["resolved_ts"]),
        flushed_ts=int(found["flushed_ts"]),
        lag_seconds=found["lag_seconds"],
        held_by=found["held_by"],
    )


def _at(at: int | None) -> dict[str, str]:
    return {} if at is None else {"ts": str(at)}
