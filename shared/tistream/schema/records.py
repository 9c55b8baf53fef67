"""Typed records of schema changes: the content of the schema registry's log.

A record is one committed key of the `m` space, where TiDB stores its metadata, one row of `mysql.tidb_ddl_job`, or the
mark of a restore by BR. A snapshot of the schema is a list of records too, all with commit_ts = snapshot_ts. A history
begins with the records of the snapshot or of a base (base.py).
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Any

import orjson
import zstandard

JOB_DONE = 4
# Rolling back, rolled back, cancelled, cancelling: such a job ends without effect, and reverts its visible changes.
JOB_UNDONE = frozenset({2, 3, 5, 7})


@dataclass(frozen=True, slots=True)
class TableText:
    """The compressed JSON of a TableInfo. It stays compressed, because most tables of a large tenant are never read."""

    packed: bytes

    @classmethod
    def pack(cls, text: bytes) -> TableText:
        """Compress the JSON text of a TableInfo."""
        return cls(zstandard.compress(text, 1))

    def info(self) -> dict[str, Any]:
        """Decompress and parse the TableInfo."""
        info: dict[str, Any] = orjson.loads(self.text())
        return info

    def text(self) -> bytes:
        """Decompress the JSON text."""
        return zstandard.decompress(self.packed)


@dataclass(frozen=True, slots=True)
class DatabaseChange:
    """A database was changed (hash `DBs`, field `DB:{id}`). `info` is DBInfo JSON, or None for a deletion."""

    database_id: int
    info: dict[str, Any] | None


@dataclass(frozen=True, slots=True)
class TableChange:
    """A table was changed (hash `DB:{id}`, field `Table:{id}`). `text` is TableInfo JSON, or None for a deletion."""

    database_id: int
    table_id: int
    text: TableText | None


@dataclass(frozen=True, slots=True)
class VersionChange:
    """A new schema version (key `Diff:{v}`): `version` exists from this commit on."""

    version: int


@dataclass(frozen=True, slots=True)
class Job:
    """The fields of a DDL job's JSON that history needs. `existed`: the job had a row before, which this one
    replaces."""

    id: int
    type: int
    state: int
    schema_id: int
    table_id: int
    schema_name: str
    table_name: str
    query: str
    existed: bool


@dataclass(frozen=True, slots=True)
class JobChange:
    """A row of `mysql.tidb_ddl_job` was written, or deleted if `job` is None."""

    job_id: int
    job: Job | None


@dataclass(frozen=True, slots=True)
class JobMark:
    """The state of a job whose row exists. `settled`: the job has had its event, or needs none. `before_history`: the
    job was running at the tenant's snapshot."""

    job_id: int
    settled: bool
    before_history: bool


@dataclass(frozen=True, slots=True)
class BaseState:
    """The state that a base's restated records do not contain: `named`, every id that any TableInfo has contained,
    ascending; `jobs`, the states of running jobs; and `imports`, the imports that have ended (ImportModes.ended)."""

    named: tuple[int, ...]
    jobs: tuple[JobMark, ...]
    imports: tuple[tuple[int, int, int], ...] = ()


@dataclass(frozen=True, slots=True)
class RestoredTables:
    """`br restore` wrote rows of these tables or partitions between `from_ts` and `to_ts`, which no log has. `name` is
    the object in which BR lists them (logbackup/prefix.py)."""

    name: str
    from_ts: int
    to_ts: int
    ids: tuple[int, ...]


Change = DatabaseChange | TableChange | VersionChange | JobChange | BaseState | RestoredTables


@dataclass(frozen=True, slots=True)
class Record:
    """One change of the schema, with the timestamps of its transaction."""

    commit_ts: int
    start_ts: int
    change: Change


def to_json(record: Record) -> dict[str, Any]:
    """Convert a record to a JSON object for orjson; the member `kind` is the type of the change."""
    change = record.change
    out: dict[str, Any] = {"commit_ts": record.commit_ts, "start_ts": record.start_ts}
    match change:
        case DatabaseChange():
            return out | {"kind": "database", "database_id": change.database_id, "info": change.info}
        case TableChange():
            ids = {"database_id": change.database_id, "table_id": change.table_id}
            info = None if change.text is None else orjson.Fragment(change.text.text())
            return out | {"kind": "table", **ids, "info": info}
        case VersionChange():
            return out | {"kind": "version", "version": change.version}
        case JobChange():
            job = change.job and {name: getattr(change.job, name) for name in Job.__slots__}
            return out | {"kind": "job", "job_id": change.job_id, "job": job}
        case RestoredTables():
            times = {"from_ts": change.from_ts, "to_ts": change.to_ts}
            return out | {"kind": "restored", "name": change.name, **times, "ids": list(change.ids)}
        case BaseState():
            jobs = [[mark.job_id, mark.settled, mark.before_history] for mark in change.jobs]
            out |= {"kind": "base", "named": _gaps(change.named), "jobs": jobs}
            return out | {"imports": [list(one) for one in change.imports]} if change.imports else out


def _gaps(ids: tuple[int, ...]) -> list[int]:
    """Encode ascending ids as differences, which are small numbers and so give short text."""
    return [after - before for before, after in pairwise((0, *ids))]


def from_json(data: dict[str, Any]) -> Record:
    """Parse the JSON object of a record that `to_json` made. Raises ValueError for an unknown kind."""
    change: Change
    match data["kind"]:
        case "database":
            change = DatabaseChange(data["database_id"], data["info"])
        case "table":
            text = None if data["info"] is None else TableText.pack(orjson.dumps(data["info"]))
            change = TableChange(data["database_id"], data["table_id"], text)
        case "version":
            change = VersionChange(data["version"])
        case "job":
            job = data["job"]
            change = JobChange(data["job_id"], job and Job(**{name: job[name] for name in Job.__slots__}))
        case "base":
            marks = (JobMark(job_id, settled, before) for job_id, settled, before in data["jobs"])
            imports = tuple((one, from_ts, to_ts) for one, from_ts, to_ts in data.get("imports", ()))
            change = BaseState(tuple(accumulate(data["named"])), tuple(marks), imports)
        case "restored":
            change = RestoredTables(data["name"], data["from_ts"], data["to_ts"], tuple(data["ids"]))
        case kind:
            raise ValueError(f"a schema record has the unknown kind {kind!r}")
    return Record(data["commit_ts"], data["start_ts"], change)
