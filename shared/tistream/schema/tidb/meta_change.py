"""Decodes committed rows of the `m` space, where TiDB stores its metadata, and of `mysql.tidb_ddl_job` to the records
of the schema history (upstream-formats 3.2, 3.3, 5, 7)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import orjson

from tistream.model.span import KeySpan, shown_key
from tistream.schema.records import (
    Change,
    DatabaseChange,
    Job,
    JobChange,
    Record,
    RestoredTables,
    TableChange,
    TableText,
    VersionChange,
)
from tistream.schema.tidb import restored_mark
from tistream.schema.tidb.limits import check_info
from tistream.schema.tidb.meta_key import META_SPAN, MetaKey, decode_key
from tistream.schema.tidb.row_cell import read_bytes_cell

DDL_JOB_TABLE_ID = 0x0000FFFFFFFFFFFE  # mysql.tidb_ddl_job
META_TABLE_ID = 0  # the table_id of `m` keys in a segment

_JOB_META = "job_meta"
# The column id of job_meta if the snapshot does not list the table: TiDB has always created it with job_meta as its
# fifth column.
_JOB_META_ID = 5
_SIGN = 1 << 63


def record_span(table_id: int) -> KeySpan:
    """The span of the record keys `t{id}_r…` of a physical table."""
    prefix = b"t" + (table_id + _SIGN).to_bytes(8, "big")
    return KeySpan(prefix + b"_r", prefix + b"_s")


DDL_JOB_SPAN = record_span(DDL_JOB_TABLE_ID)
SCHEMA_SPANS = (META_SPAN, DDL_JOB_SPAN)
"""The spans whose rows make up the schema history."""


@dataclass(frozen=True, slots=True)
class MetaRow:
    """A committed row with a key in SCHEMA_SPANS, the spans of keys in which TiDB stores its schema. `value` is None
    for a deletion."""

    table_id: int
    commit_ts: int
    start_ts: int
    key: bytes
    value: bytes | None
    old_value: bytes | None


class UndecodableMeta(ValueError):
    """A row with a key in SCHEMA_SPANS cannot be decoded. The schema history must not advance past its commit_ts."""

    def __init__(self, row: MetaRow, reason: str) -> None:
        super().__init__(f"key {shown_key(row.key)} committed at {row.commit_ts}: {reason}")
        self.commit_ts = row.commit_ts
        self.key = row.key
        self.reason = reason


class MetaDecoder:
    """Decodes rows to records. Rows must be given in commit order. The only state is the column id of `job_meta` in the
    table `mysql.tidb_ddl_job`."""

    def __init__(self) -> None:
        self._job_meta_id = _JOB_META_ID

    def learn(self, record: Record) -> None:
        """If the record is the TableInfo of `mysql.tidb_ddl_job`, remember the id of its column `job_meta`."""
        change = record.change
        if isinstance(change, TableChange) and change.table_id == DDL_JOB_TABLE_ID and change.text is not None:
            for column in change.text.info().get("cols") or ():
                if column["name"]["L"] == _JOB_META:
                    self._job_meta_id = column["id"]

    def decode(self, row: MetaRow) -> Record | None:
        """Decode a row to a record. Returns None if the key does not concern the schema. Raises UndecodableMeta."""
        try:
            change = self._job(row) if row.table_id == DDL_JOB_TABLE_ID else _meta(row)
        except (ValueError, KeyError, TypeError, AttributeError, IndexError) as error:
            raise UndecodableMeta(row, f"{type(error).__name__}: {error}") from error
        if change is None:
            return None
        record = Record(row.commit_ts, row.start_ts, change)
        self.learn(record)
        return record

    def _job(self, row: MetaRow) -> JobChange | None:
        if row.key[9:11] != b"_r":
            return None  # an index entry
        if len(row.key) != 19:
            raise ValueError("the handle is not an integer")
        job_id = int.from_bytes(row.key[11:], "big") - _SIGN
        if row.value is None:
            return JobChange(job_id, None)
        text = read_bytes_cell(row.value, self._job_meta_id)
        if text is None:
            raise ValueError(f"column {self._job_meta_id} (job_meta) is NULL")
        return JobChange(job_id, parse_job(_object(text), existed=row.old_value is not None))


def parse_job(data: dict[str, Any], *, existed: bool) -> Job:
    """Parse a DDL job's JSON (upstream-formats 5.1). `existed`: as in Job. Raises ValueError or KeyError."""
    return Job(
        id=_int(data["id"]),
        type=_int(data["type"]),
        state=_int(data["state"]),
        schema_id=_int(data.get("schema_id") or 0),
        table_id=_int(data.get("table_id") or 0),
        schema_name=_text(data.get("schema_name") or ""),
        table_name=_text(data.get("table_name") or _binlog_name(data.get("binlog"))),
        query=_text(data.get("query") or ""),
        existed=existed,
    )


def _binlog_name(binlog: dict[str, Any] | None) -> str:
    table = (binlog or {}).get("TableInfo")
    return str(table["name"]["O"]) if table else ""


def _meta(row: MetaRow) -> Change | None:
    found = decode_key(row.key)
    if found is None:
        return None
    if found.field is None:
        if not found.key.startswith(b"Diff:") or row.value is None:
            return None
        return VersionChange(_number(found.key, b"Diff:"))
    if found.key == b"DBs":
        return _database(found.field, row.value)
    if found.key.startswith(b"DB:") and found.field.startswith(b"Table:"):
        return _table(found, row.value)
    return None


def _database(field: bytes, value: bytes | None) -> DatabaseChange | RestoredTables | None:
    if field.startswith(restored_mark.FIELD):
        return restored_mark.decode(field, value)
    if not field.startswith(b"DB:"):
        return None
    database_id = _number(field, b"DB:")
    if value is None:
        return DatabaseChange(database_id, None)
    info = _object(value)
    check_database(info)
    return DatabaseChange(database_id, info)


def _table(found: MetaKey, value: bytes | None) -> TableChange:
    assert found.field is not None
    database_id, table_id = _number(found.key, b"DB:"), _number(found.field, b"Table:")
    if value is None:
        return TableChange(database_id, table_id, None)
    info = _object(value)
    check_info(info)
    if info["id"] != table_id:
        raise ValueError(f"TableInfo of id {info['id']} is stored under Table:{table_id}")
    return TableChange(database_id, table_id, TableText.pack(value))


def check_database(info: dict[str, Any]) -> None:
    """Check that the schema history can process a DBInfo. Raises ValueError, KeyError or TypeError if it cannot."""
    _int(info["id"])
    _text(info["db_name"]["O"])
    _int(info.get("state") or 0)


def _object(text: bytes) -> dict[str, Any]:
    data = orjson.loads(text)
    if not isinstance(data, dict):
        raise ValueError("the JSON value is not an object")
    return data


def _number(text: bytes, prefix: bytes) -> int:
    digits = text[len(prefix) :]
    if not digits.isdigit():
        raise ValueError(f"{text[:80]!r} is not {prefix!r} and a number")
    number = int(digits)
    if number >= _SIGN:
        raise ValueError(f"{text[:80]!r}: the number has more than 63 bits")
    return number


def _int(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise ValueError(f"{value!r} is not an integer")
    return value


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError(f"{value!r} is not a string")
    return value
