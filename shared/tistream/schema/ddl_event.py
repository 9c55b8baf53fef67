"""Converts DDL jobs to events: decides at which transaction an event occurs, and with which content (design.md 5)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from tistream.schema.records import JOB_DONE, JOB_UNDONE, Job, JobChange, JobMark
from tistream.schema.tidb import actions
from tistream.schema.visible import SYSTEM_SCHEMAS, Database, Name, TableVersion, fold


@dataclass(frozen=True, slots=True)
class DdlEvent:
    """One DDL statement. `involved` has the (database, table) names of everything that it changed; the table is "" for
    a database itself."""

    commit_ts: int
    start_ts: int
    job_id: int
    database: str
    table: str
    query: str
    action: str
    schema_version: int
    involved: tuple[Name, ...]

    def concerns(self, database: str, table: str | None) -> bool:
        """Whether the DDL changed the table that has this name before or after it. With `table` None: whether it
        changed the database or any of its tables. Both arguments are folded (visible.fold)."""
        for name in (*self.involved, (self.database, self.table)):
            if fold(name[0]) == database and (table is None or fold(name[1]) == table):
                return True
        return False


@dataclass(frozen=True, slots=True)
class VisibleChange:
    """What one transaction changed in the visible schema. Maps the id of each changed table and database to (version
    before, version after); None: it was not visible."""

    tables: Mapping[int, tuple[TableVersion | None, TableVersion | None]]
    databases: Mapping[int, tuple[Database | None, Database | None]]

    def __bool__(self) -> bool:
        return bool(self.tables or self.databases)

    def names(self) -> list[Name]:
        """Every name that a changed table or database had before or after the transaction, without duplicates."""
        names: dict[Name, None] = {}
        for pair in self.databases.values():
            names.update(((version.name, ""), None) for version in pair if version)
        for before, after in self.tables.values():
            names.update((version.name, None) for version in (before, after) if version)
        return list(names)


class CurrentNames(Protocol):
    """Looks up the names that ids have after a transaction, also those of databases and tables that are not visible."""

    def database_name(self, database_id: int) -> str | None: ...

    def table_name(self, table_id: int) -> Name | None: ...


@dataclass(slots=True)
class _Life:
    """What is known of one DDL job since its first row. `settled_ts`: the ts of its event, or the ts at which it turned
    out to need no event; None before that."""

    job_id: int
    seen_ts: int
    before_history: bool
    settled_ts: int | None = None


@dataclass(slots=True)
class JobTracker:
    """Tracks running DDL jobs, and decides when each becomes an event. Each job gives one event, at its first visible
    change or, if it makes none, when it is done. A job that is cancelled or rolled back gives another event where it
    reverts its visible change."""

    _jobs: dict[int, _Life] = field(default_factory=dict)
    _ended: list[tuple[int, _Life]] = field(default_factory=list)  # (ts at which the row was deleted, job), in ts order

    def apply(
        self, change: JobChange, visible: VisibleChange, names: CurrentNames, commit_ts: int, start_ts: int
    ) -> DdlEvent | None:
        """Apply a put or deletion of a job's row, with the visible changes of its transaction. Returns the event, or
        None if there is no event at this transaction.

        The event's schema_version is 0: the caller sets it, because it depends on every transaction of the commit_ts.
        """
        job = change.job
        if job is None:
            ended = self._jobs.pop(change.job_id, None)
            if ended is not None:
                self._ended.append((commit_ts, ended))
            return None
        life = self._jobs.setdefault(job.id, _Life(job.id, commit_ts, job.existed))
        if job.state in JOB_UNDONE:
            # Every visible change needs an event, even if it reverts a change that was made before this history begins.
            return _event(job, visible, names, commit_ts, start_ts) if visible else None
        if life.settled_ts is not None or not (visible or job.state == JOB_DONE):
            return None
        life.settled_ts = commit_ts
        if life.before_history and _shown_before_history(job, visible):
            return None
        return _event(job, visible, names, commit_ts, start_ts)

    def marks(self, ts: int) -> tuple[JobMark, ...]:
        """The states, as of `ts`, of the jobs that had a row at `ts`, in order of their ids."""
        lives = [life for ended_ts, life in self._ended if ended_ts > ts] + list(self._jobs.values())
        marks = (
            JobMark(life.job_id, life.settled_ts is not None and life.settled_ts <= ts, life.before_history)
            for life in lives
            if life.seen_ts <= ts
        )
        return tuple(sorted(marks, key=lambda mark: mark.job_id))

    def restore(self, marks: Iterable[JobMark], ts: int) -> None:
        """Begin with the states of jobs that `marks` returned, for a history that begins at `ts`."""
        for mark in marks:
            settled_ts = ts if mark.settled else None
            self._jobs[mark.job_id] = _Life(mark.job_id, ts, mark.before_history, settled_ts)

    def forget(self, ts: int) -> None:
        """Drop the jobs that had ended by `ts`. After this, `marks` must not be called for a ts below `ts`."""
        self._ended = [(ended_ts, life) for ended_ts, life in self._ended if ended_ts > ts]


def _shown_before_history(job: Job, visible: VisibleChange) -> bool:
    """Whether the tenant's snapshot already contains the first visible change of a job that was running at that
    time."""
    if visible:
        return job.type in actions.TWICE_VISIBLE and job.state == JOB_DONE
    return job.type in actions.ALWAYS_VISIBLE


def _event(job: Job, visible: VisibleChange, names: CurrentNames, commit_ts: int, start_ts: int) -> DdlEvent | None:
    database, table = _object(job, visible, names)
    if fold(database) in SYSTEM_SCHEMAS and not visible:
        return None
    involved = visible.names()
    own = (database, table)
    if database and fold(database) not in SYSTEM_SCHEMAS and own not in involved:
        involved.insert(0, own)
    return DdlEvent(
        commit_ts=commit_ts,
        start_ts=start_ts,
        job_id=job.id,
        database=database,
        table=table,
        query=job.query,
        action=actions.action_name(job.type, undone=job.state in JOB_UNDONE),
        schema_version=0,
        involved=tuple(involved),
    )


def _object(job: Job, visible: VisibleChange, names: CurrentNames) -> Name:
    """The name of what the job changes: its name after the job or, for a drop, before it."""
    if job.type in actions.OF_NOTHING:
        return "", ""
    if job.type in actions.OF_SCHEMA:
        old, new = visible.databases.get(job.schema_id, (None, None))
        known = new or old
        return (known.name if known else names.database_name(job.schema_id) or job.schema_name), ""
    before, after = visible.tables.get(job.table_id, (None, None))
    # TRUNCATE, EXCHANGE and ALTER … PARTITION BY give the table's name to another id, so the name is the last one of
    # the old id. A job that creates several tables may have no table_id of its own.
    version = after or before
    if version is not None:
        return version.name
    name = names.table_name(job.table_id)
    if name is None and visible.tables:
        name = next((after.name for _, after in visible.tables.values() if after), None)
    return name or (job.schema_name or names.database_name(job.schema_id) or "", job.table_name)
