"""Where each DDL event belongs, worked out the slow and obvious way from the oracle's committed rows.

The whole visible schema is compared before and after every commit: a job's event stands at the first transaction
that writes the job's row and changes what SELECT shows, else at the one that sets the job's state to done
(design.md 5). Nothing here is shared with `tistream.schema`.
"""

from __future__ import annotations

import itertools
import json
from dataclasses import dataclass
from operator import itemgetter
from typing import Any

import polars as pl

DDL_JOB_TABLE = 0x0000FFFFFFFFFFFE
SYSTEM = {"mysql", "sys", "information_schema", "performance_schema", "metrics_schema", "workload_schema"}
PUBLIC = 5
DONE = 4
DROP_PARTITION = 20

Json = dict[str, Any]
Signature = dict[tuple[str, str], tuple[Any, ...]]


@dataclass(frozen=True, slots=True)
class Position:
    """One finished job: where its event stands and what it must say."""

    job_id: int
    commit_ts: int
    query: str
    action_type: int
    schema_version: int


def positions(rows: pl.DataFrame, schema_snap: bytes) -> list[Position]:
    """The finished jobs of user schemas, in commit order. `rows` as of tests/support/oracle.py."""
    schema = _Schema(json.loads(schema_snap))
    version = 0
    first: dict[int, tuple[int, int]] = {}
    done: dict[int, tuple[int, int, Json]] = {}
    changes = rows.sort("commit_ts", maintain_order=True).select("commit_ts", "key", "op", "value").iter_rows()
    for commit_ts, commit in itertools.groupby(changes, itemgetter(0)):
        jobs: list[Json] = []
        before = schema.signature()
        for _, key, op, value in commit:
            if key[:1] == b"m":
                version = max(version, schema.apply(key, op, value))
            elif _table_id(key) == DDL_JOB_TABLE and op == 1:
                jobs.append(_job(value))
        changed = bool(jobs) and schema.signature() != before
        for job in jobs:
            if changed:
                first.setdefault(job["id"], (commit_ts, version))
            if job["state"] == DONE:
                done[job["id"]] = (commit_ts, version, job)
    out = []
    for job_id, (done_ts, done_version, job) in done.items():
        commit_ts, at_version = first.get(job_id, (done_ts, done_version))
        if job["schema_name"].lower() not in SYSTEM:
            out.append(Position(job_id, commit_ts, job["query"], job["type"], at_version))
    return sorted(out, key=lambda position: (position.commit_ts, position.job_id))


class _Schema:
    """DBInfo and TableInfo by id, changed in place."""

    def __init__(self, snap: Json) -> None:
        self.databases: dict[int, str] = {}
        self.tables: dict[tuple[int, int], Json] = {}
        for database in snap["databases"]:
            info = database["db_info"]
            self.databases[info["id"]] = info["db_name"]["O"]
            for table in database["tables"] or []:
                self.tables[info["id"], table["id"]] = table
        self._cached: Signature | None = None

    def apply(self, key: bytes, op: int, value: bytes | None) -> int:
        """One `m` change; the version if it is a Diff, else 0."""
        name, field = _meta_key(key)
        if name.startswith(b"Diff:"):
            return int(name[5:])
        info = json.loads(value) if op == 1 and value else None
        if name == b"DBs":
            self._cached = None
            database_id = int(field[3:])
            self.databases.pop(database_id, None)
            if info is not None and info["state"] == PUBLIC:
                self.databases[database_id] = info["db_name"]["O"]
        elif name.startswith(b"DB:") and field.startswith(b"Table:"):
            self._cached = None
            place = int(name[3:]), int(field[6:])
            self.tables.pop(place, None)
            if info is not None:
                self.tables[place] = info
        return 0

    def signature(self) -> Signature:
        """(database, table) -> what SELECT shows of it; databases without tables are in as (name, "")."""
        if self._cached is None:
            out: Signature = {(name, ""): () for name in self.databases.values()}
            for (database_id, _), table in self.tables.items():
                if database_id in self.databases and table["state"] == PUBLIC:
                    out[self.databases[database_id], table["name"]["O"]] = _shown(table)
            self._cached = out
        return self._cached


def _shown(table: Json) -> tuple[Any, ...]:
    columns = tuple(
        (column["id"], column["name"]["O"], json.dumps(_shown_type(column["type"]), sort_keys=True))
        for column in table["cols"] or []
        if column["state"] == PUBLIC and not column["hidden"]
    )
    partition = table.get("partition")
    if not partition or not partition["enable"]:
        return columns, (table["id"],)
    hidden = set()
    if partition.get("ddl_action") == DROP_PARTITION:
        hidden = {definition["id"] for definition in partition.get("dropping_definitions") or []}
    physical = tuple(sorted(d["id"] for d in partition["definitions"] if d["id"] not in hidden))
    return columns, (table["id"], *physical)


def _shown_type(field_type: Json) -> Json:
    """Key and NOT NULL flags come and go in steps that no SELECT sees; UNSIGNED, ZEROFILL and BINARY do show."""
    return {**field_type, "Flag": field_type["Flag"] & (32 | 64 | 128)}


def _table_id(key: bytes) -> int:
    return int.from_bytes(key[1:9], "big") - 2**63 if key[:1] == b"t" else 0


def _job(value: bytes) -> Json:
    """The job's JSON is stored as one run of bytes inside the row."""
    text = value[value.index(b'{"id":') :].decode("utf-8", "replace")
    job: Json = json.JSONDecoder().raw_decode(text)[0]
    return job


def _meta_key(key: bytes) -> tuple[bytes, bytes]:
    """(name, field) of an `m` key; field is empty for a string."""
    name, rest = _memcomparable(key[1:])
    if rest[:8] != b"\0\0\0\0\0\0\0h":
        return name, b""
    return name, _memcomparable(rest[8:])[0]


def _memcomparable(data: bytes) -> tuple[bytes, bytes]:
    out = b""
    for at in range(0, len(data), 9):
        pad = 0xFF - data[at + 8]
        out += data[at : at + 8 - pad]
        if pad:
            return out, data[at + 9 :]
    raise AssertionError("unterminated")
