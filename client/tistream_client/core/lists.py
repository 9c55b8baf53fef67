"""Reads with one request each: databases, tables, columns, the parts in which a table can be read, status."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tistream_client.core.asking import Patience, json_of
from tistream_client.core.events import TableInfo, TenantStatus
from tistream_client.core.points import KeyRange, key_params
from tistream_client.core.scope import Scope
from tistream_client.core.steps import Asking, Fetch


@dataclass(frozen=True, slots=True)
class ColumnInfo:
    """A column that SELECT shows, without virtual generated ones, which events lack. `sql_type` has the form of SHOW
    COLUMNS; `key`: it is part of an event's key."""

    id: int
    name: str
    sql_type: str
    key: bool


@dataclass(frozen=True, slots=True)
class TableShape:
    """The columns of a table as of `ts`. `kind`: table, view or sequence."""

    ts: int
    table_id: int
    kind: str
    schema_version: int
    columns: tuple[ColumnInfo, ...]


@dataclass(frozen=True, slots=True)
class ChangePart:
    """The changes with `low < commit_ts <= high`. `rows` is an estimate."""

    low: int
    high: int
    rows: int


@dataclass(frozen=True, slots=True)
class RowPart:
    """The rows after the cursor `after`, up to and with `until`; None: up to the last row. `rows` is an estimate."""

    after: str
    until: str | None
    rows: int


def databases(scope: Scope, at: int | None, patience: Patience) -> Asking[list[str]]:
    """The names of the tenant's databases as of the ts `at`; None: as of the newest one."""
    found = yield from patience.ask(Fetch(scope.path("databases"), _at(at)), json_of)
    names: Any = found["databases"]
    return list(names)


def tables(scope: Scope, at: int | None, patience: Patience) -> Asking[list[TableInfo]]:
    """The tables of the scope's database as of the ts `at`; None: as of the newest one."""
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


def table_shape(scope: Scope, at: int | None, patience: Patience) -> Asking[TableShape]:
    """The columns of the scope's table as of a ts; None: as of the newest one."""
    found: Any = yield from patience.ask(Fetch(scope.path("schema"), _at(at)), json_of)
    return TableShape(
        ts=int(found["ts"]),
        table_id=int(found["table_id"]),
        kind=found["kind"],
        schema_version=int(found["schema_version"]),
        columns=tuple(ColumnInfo(int(one["id"]), one["name"], one["sql_type"], one["key"]) for one in found["columns"]),
    )


def change_parts(scope: Scope, low: int, high: int, parts: int, patience: Patience) -> Asking[list[ChangePart]]:
    """At most `parts` parts of a table's changes in (low, high], in order."""
    params = {"start_ts": str(low), "end_ts": str(high), "parts": str(parts)}
    found: Any = yield from patience.ask(Fetch(scope.path("changes", "parts"), params), json_of)
    return [ChangePart(int(one["start_ts"]), int(one["end_ts"]), int(one["rows"])) for one in found["parts"]]


def row_parts(scope: Scope, at: int, parts: int, keys: KeyRange, patience: Patience) -> Asking[list[RowPart]]:
    """At most `parts` parts of the table's rows as of a ts, in the order of raw keys. `keys` is (the lowest key, the
    key above the highest one); None: no bound. Raises BadRequest for a bound where rows are not stored by their key."""
    params = {"ts": str(at), "parts": str(parts)} | key_params(keys)
    found: Any = yield from patience.ask(Fetch(scope.path("rows", "parts"), params), json_of)
    return [RowPart(one["cursor"], one["until"], int(one["rows"])) for one in found["parts"]]


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
