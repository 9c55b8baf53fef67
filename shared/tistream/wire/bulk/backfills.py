"""Backfills of a tenant (docs/backfill.md): requests of operators, and the progress that is reported."""

from typing import Literal

from pydantic import Field

from tistream.wire.changes import Stamp
from tistream.wire.meta import StrictRequest
from tistream.wire.sorter import Wire

URL_MAX = 1_024
TABLES_MAX = 1_000
PATTERN_MAX = 200
REASON_MAX = 2_000
Kind = Literal["br-full", "sql", "push"]
State = Literal["running", "finished", "failed", "cancelled"]


class BackfillSource(StrictRequest):
    """Where the rows of a backfill come from.

    `br-full`: a full backup of BR at `url`. `sql`: stale reads from the database that the file `dsn_file` of the ingest
    service names, with `threads` connections. `push`: another program writes the plan and the chunks.
    """

    kind: Kind
    url: str | None = Field(default=None, max_length=URL_MAX)
    dsn_file: str | None = Field(default=None, max_length=URL_MAX)
    threads: int = Field(default=8, ge=1, le=64)


class StartBackfill(StrictRequest):
    """`POST /v1/clusters/{cluster_id}/tenants/{tenant_id}/backfills`: start a backfill. The answer is 202. `tables`:
    patterns `database.table`, in which `*` and `?` are wildcards."""

    source: BackfillSource
    tables: list[str] = Field(min_length=1, max_length=TABLES_MAX)


class BackfillStarted(Wire):
    """The answer (202) of StartBackfill."""

    backfill_id: str


class BackfillRow(Wire):
    """A backfill as the meta database stores it. `state` `running`: sorters read its chunks. `reason`: why it failed,
    or why the platform cancelled it. snapshot_ts: that of the tenant; null until it is known. `ended_ms`: the time at
    which it left the state `running`. log_backup: whether the tenant has, or had, a log backup as a source; then the
    first change of a row has no old value."""

    cluster_id: str
    tenant_id: str
    backfill_id: str
    source: BackfillSource
    tables: list[str]
    state: State
    reason: str | None = None
    created_ms: int
    ended_ms: int | None = None
    snapshot_ts: int | None = None
    log_backup: bool = False


class BackfillRows(Wire):
    """Backfills: the answer of `GET /upcall/v1/backfills` (running ones of all tenants) and of the call for one tenant
    (newest first)."""

    backfills: list[BackfillRow]


class EndBackfill(StrictRequest):
    """`PUT /upcall/v1/clusters/{cluster_id}/tenants/{tenant_id}/backfills/{backfill_id}/end`, by the ingest service:
    record that a backfill has ended. `state` `cancelled`: the platform itself cancels it, for the reason given."""

    state: Literal["finished", "failed", "cancelled"]
    reason: str | None = Field(default=None, max_length=REASON_MAX)


class BackfilledTable(Wire):
    """The progress of one table in a backfill. `base_ts` (decimal): from this ts on, all rows are known; null: not yet.
    Of the table's chunks, `chunks` are planned and `chunks_done` are written, with `rows` (null while they are being
    counted) and `bytes`. `held_by`: why the table is not complete."""

    database: str
    table: str
    base_ts: Stamp | None
    rows: int | None
    bytes: int
    chunks_done: int
    chunks: int
    held_by: str | None = None


class BackfillSummary(Wire):
    """A backfill in the answer of ListBackfills, and the answer of CancelBackfill. `asked`: the table patterns of the
    request. `reason`: why the backfill failed, or why the platform cancelled it. Times are in milliseconds since the
    Unix epoch; `ended_ms` is null while it runs."""

    backfill_id: str
    source: BackfillSource
    asked: list[str]
    state: State
    reason: str | None
    created_ms: str
    ended_ms: str | None


class BackfillList(Wire):
    """The answer of ListBackfills, newest first."""

    backfills: list[BackfillSummary]


class BackfillInfo(BackfillSummary):
    """The answer of GetBackfill. `reason`: why the backfill failed, or why it has no plan yet. `tables` is empty until
    the backfill has a plan."""

    tables: list[BackfilledTable]
