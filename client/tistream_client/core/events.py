"""The typed results of reads: events, rows, and the pages that carry them with a cursor."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from tistream_client.core.ts import to_datetime

if TYPE_CHECKING:
    import pyarrow as pa

Values = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class RowEvent:
    """One row after a commit. Values are those of NDJSON (docs/api.md): 64-bit integers and decimals are text.

    `op` is `put` or `delete`. `row` is None in a delete. `old_row` is the row before, None if there was none. A row of
    a snapshot has the `op` `read`, the start_ts 0, and the commit_ts 0 if it is not known.
    """

    op: str
    commit_ts: int
    start_ts: int
    database: str
    table: str
    table_id: int
    schema_version: int
    key: Values
    row: Values | None
    old_row: Values | None

    @property
    def commit_time(self) -> datetime:
        """The time of the commit, in UTC."""
        return to_datetime(self.commit_ts)

    @property
    def start_time(self) -> datetime:
        """The time at which the transaction began, in UTC."""
        return to_datetime(self.start_ts)


@dataclass(frozen=True, slots=True)
class DdlEvent:
    """A statement that changed the schema. `involved` has the (database, table) pairs that it concerned."""

    commit_ts: int
    database: str
    table: str
    query: str
    action: str
    schema_version: int
    involved: tuple[tuple[str, str], ...]

    @property
    def commit_time(self) -> datetime:
        """The time of the commit, in UTC."""
        return to_datetime(self.commit_ts)


Event = RowEvent | DdlEvent


@dataclass(frozen=True, slots=True)
class RawEvent:
    """One write of RawKV. `op` is `put` or `delete`; `value` is None in a delete. The value expires at `expire_at`;
    None: never. An expiry is not an event of its own."""

    op: str
    commit_ts: int
    keyspace: int
    key: bytes
    value: bytes | None
    expire_at: datetime | None

    @property
    def commit_time(self) -> datetime:
        """The time of the write, in UTC."""
        return to_datetime(self.commit_ts)


@dataclass(frozen=True, slots=True)
class Row:
    """One row as of a time. `commit_ts` is that of its newest version; None if a backfill did not state it."""

    key: Values
    row: Values
    commit_ts: int | None
    schema_version: int

    @property
    def commit_time(self) -> datetime | None:
        """The time of the commit, in UTC; None if `commit_ts` is None."""
        return None if self.commit_ts is None else to_datetime(self.commit_ts)


@dataclass(frozen=True, slots=True)
class Version:
    """One version of a row: its change at `commit_ts`. `op` is `put` or `delete`. `row` is the row after the change,
    None after a delete; `old_row` the row before it, None if there was none or it is not known."""

    commit_ts: int
    start_ts: int
    op: str
    row: Values | None
    old_row: Values | None

    @property
    def commit_time(self) -> datetime:
        """The time of the commit, in UTC."""
        return to_datetime(self.commit_ts)


@dataclass(frozen=True, slots=True)
class Transaction:
    """The row events of one transaction, of all tables."""

    start_ts: int
    commit_ts: int
    events: Sequence[RowEvent]

    @property
    def commit_time(self) -> datetime:
        """The time of the commit, in UTC."""
        return to_datetime(self.commit_ts)


@dataclass(frozen=True, slots=True)
class Position:
    """The end of a page. Everything up to `resolved_ts` was sent; it is None if the page ends inside a commit of more
    events than the page may have, or inside a snapshot or a squashed pull. `after` is the cursor at which the page
    begins; None for the first page of a read that began at a time."""

    cursor: str
    resolved_ts: int | None
    after: str | None

    @property
    def resolved_time(self) -> datetime | None:
        """The time of `resolved_ts`, in UTC; None if that is None."""
        return None if self.resolved_ts is None else to_datetime(self.resolved_ts)


@dataclass(frozen=True, slots=True)
class Page(Position):
    """The events of one complete answer, in commit order. Store its cursor with what you make of them."""

    events: Sequence[Event]


@dataclass(frozen=True, slots=True)
class RawPage(Position):
    """The writes of one complete answer, in the order of their timestamps."""

    events: Sequence[RawEvent]


@dataclass(frozen=True, slots=True)
class ArrowPage(Position):
    """The rows of one complete answer as record batches, in commit order. `schema` is that of the batches."""

    batches: Sequence[pa.RecordBatch]
    schema: pa.Schema


@dataclass(frozen=True, slots=True)
class TenantStatus:
    """The progress of a tenant. Changes up to `resolved_ts` can be read. `held_by` is the reason if the tenant makes no
    progress, otherwise None. `lag_seconds` is None before the tenant's schema was read."""

    resolved_ts: int
    flushed_ts: int
    lag_seconds: float | None
    held_by: Values | None

    @property
    def resolved_time(self) -> datetime:
        """The time of `resolved_ts`, in UTC."""
        return to_datetime(self.resolved_ts)


@dataclass(frozen=True, slots=True)
class TableInfo:
    """A table of a database. All rows can be read from the ts `base_ts` on; None: some are not known. `held`: why the
    table is not served; None if it is."""

    name: str
    table_id: int
    schema_version: int
    base_ts: int | None
    held: Any

    @property
    def base_time(self) -> datetime | None:
        """The time of `base_ts`, in UTC; None if that is None."""
        return None if self.base_ts is None else to_datetime(self.base_ts)
