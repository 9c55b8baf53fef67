"""Schema records as TiDB would commit them, in few words: tables, databases, versions and DDL jobs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import orjson

from tistream.schema.records import (
    DatabaseChange,
    Job,
    JobChange,
    Record,
    TableChange,
    TableText,
    VersionChange,
)
from tistream.schema.visible import fold

PUBLIC, WRITE_ONLY, DELETE_ONLY, NONE = 5, 2, 1, 0
RUNNING, ROLLING_BACK, ROLLED_BACK, DONE, QUEUEING = 1, 2, 3, 4, 8


def name(text: str) -> dict[str, str]:
    return {"O": text, "L": fold(text)}


def column(column_id: int, text: str, *, state: int = PUBLIC, tp: int = 3, **more: Any) -> dict[str, Any]:
    """ColumnInfo; `more` goes into it, and `flag`, `flen` into its type."""
    kind = {"Tp": tp, "Flag": more.pop("flag", 0), "Flen": more.pop("flen", 11), "Decimal": 0}
    return {"id": column_id, "name": name(text), "state": state, "type": kind, **more}


def table_info(
    table_id: int,
    text: str,
    columns: Sequence[str | dict[str, Any]] = ("id",),
    *,
    state: int = PUBLIC,
    partitions: Sequence[int] | None = None,
    partition: dict[str, Any] | None = None,
    **more: Any,
) -> dict[str, Any]:
    """TableInfo. Columns by name get ids 1, 2, …; `partition` adds to PartitionInfo."""
    cols = [column(at + 1, col) if isinstance(col, str) else col for at, col in enumerate(columns)]
    info = {
        "id": table_id,
        "name": name(text),
        "state": state,
        "cols": [{**col, "offset": at} for at, col in enumerate(cols)],
        **more,
    }
    if partitions is not None:
        definitions = [{"id": one, "name": name(f"p{one}")} for one in partitions]
        info["partition"] = {"enable": True, "definitions": definitions, **(partition or {})}
    return info


def database(ts: int, database_id: int, text: str | None, state: int = PUBLIC) -> Record:
    info = None if text is None else {"id": database_id, "db_name": name(text), "state": state}
    return Record(ts, ts - 1, DatabaseChange(database_id, info))


def table(ts: int, database_id: int, info: dict[str, Any]) -> Record:
    return Record(ts, ts - 1, TableChange(database_id, info["id"], TableText.pack(orjson.dumps(info))))


def drop(ts: int, database_id: int, table_id: int) -> Record:
    return Record(ts, ts - 1, TableChange(database_id, table_id, None))


def version(ts: int, number: int) -> Record:
    return Record(ts, ts - 1, VersionChange(number))


def job(ts: int, job_id: int, action: int, state: int, **fields: Any) -> Record:
    """A put of a job's row; `fields` are those of Job."""
    known: dict[str, Any] = {
        "schema_id": 1,
        "table_id": 0,
        "schema_name": "d",
        "table_name": "",
        "query": f"job {job_id}",
        "existed": state != QUEUEING,
    }
    return Record(ts, ts - 1, JobChange(job_id, Job(id=job_id, type=action, state=state, **{**known, **fields})))


def job_gone(ts: int, job_id: int) -> Record:
    return Record(ts, ts - 1, JobChange(job_id, None))
