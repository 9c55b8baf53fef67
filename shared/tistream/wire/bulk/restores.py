"""Restores that the platform runs (docs/restore.md): the requests of callers, the work of ingest processes, and the
progress."""

from typing import Annotated, Literal

from pydantic import Field

from tistream.wire.meta import StrictRequest
from tistream.wire.sorter import Wire

URL_MAX = 1_024
NAME_MAX = 64
WITHOUT_NUL = r"^[^\x00]+$"  # no server has a name with the character U+0000
TABLES_MAX = 1_000
RENAMES_MAX = 100
State = Literal["queued", "running", "done", "failed", "cancelled"]
IfExists = Literal["fail", "replace"]
Name = Annotated[str, Field(min_length=1, max_length=NAME_MAX, pattern=WITHOUT_NUL)]
Url = Annotated[str, Field(min_length=1, max_length=URL_MAX)]


class RestoreScope(StrictRequest):
    """Which tables a restore writes: one table, the tables of a database, or (with neither name) all tables of the
    tenant."""

    database: Name | None = None
    table: Name | None = None


class ParquetPlace(StrictRequest):
    """A target of Parquet files: one directory for each table below `url`."""

    kind: Literal["parquet"]
    url: Url


class SqlFilesPlace(StrictRequest):
    """A target of SQL files below `url`, to be run in the order of their names. `dialect`: the server that will run
    them."""

    kind: Literal["sql-files"]
    url: Url
    dialect: Literal["tidb", "mysql", "mariadb"] = "tidb"


class MySqlPlace(StrictRequest):
    """A server as the target. `dsn_file`: a file with the server's mysql:// URL, in the directory RESTORE_DSN_DIR of
    the ingest service. `rename`: new names of databases."""

    kind: Literal["mysql"]
    dsn_file: Url
    rename: dict[Name, Name] = Field(default_factory=dict, max_length=RENAMES_MAX)


Place = Annotated[ParquetPlace | SqlFilesPlace | MySqlPlace, Field(discriminator="kind")]


class CreateRestore(StrictRequest):
    """`POST …/restores`: start a restore of the tables in `scope` as they were at `ts`. `if_exists`: what to do if the
    target has a table of the same name: let the restore fail, or replace the table. The answer is 202 with the
    restore's id."""

    scope: RestoreScope
    ts: str = Field(max_length=64)
    target: Place
    if_exists: IfExists = "fail"


class RestoreName(StrictRequest):
    """The name of a table at the restore's ts: its database, and its own name."""

    database: str
    table: str


class NewRestore(StrictRequest):
    """A CreateRestore that the API server has validated, as it sends it to the meta server: the tables by their names
    at a ts that can be read, and an id, so that a repeated call does not create a second restore."""

    restore_id: str = Field(pattern="^[0-9a-f]{32}$")
    ts: str = Field(pattern="^[0-9]{1,19}$")
    tables: list[RestoreName] = Field(min_length=1, max_length=TABLES_MAX)
    target: Place
    if_exists: IfExists


class CheckTarget(StrictRequest):
    """`POST /v1/restores/checks` at an ingest process: check that its settings allow a restore into this target."""

    target: Place


class RestoreTable(Wire):
    """The progress of one table of a restore. `rows`: the number of its rows at the restore's ts; null until they were
    counted. `checksum`: of the rows, in any order; null until the target's rows were compared with the source's."""

    database: str
    table: str
    rows: int | None = None
    rows_done: int = 0
    checksum: str | None = None


class RestoreInfo(Wire):
    """A restore as the API shows it. `target` is only the kind of target, because a target may name files of the
    server. `reason`: why the restore waits or has failed, or which tables it has left out."""

    restore_id: str
    state: State
    ts: str
    target: str
    created_ms: str
    tables: list[RestoreTable]
    reason: str | None = None


class RestoreList(Wire):
    """The restores of a tenant, newest first."""

    restores: list[RestoreInfo]


class RestoreWork(Wire):
    """A restore that an ingest process has claimed. `epoch`: the number of the claim. Once there is a newer claim,
    reports of this one are refused."""

    cluster_id: str
    tenant_id: str
    epoch: int
    wanted: NewRestore


class UnfinishedRestore(Wire):
    """A restore that waits or runs."""

    cluster_id: str
    tenant_id: str
    restore_id: str


class UnfinishedRestores(Wire):
    """`GET /upcall/v1/unfinished-restores`: the waiting and running restores of all tenants."""

    restores: list[UnfinishedRestore]


class ClaimRestore(Wire):
    """`POST /upcall/v1/restores/claims`: an ingest process requests work."""

    node_id: str


class ClaimedRestore(Wire):
    """The answer of ClaimRestore: the oldest restore that is queued, or whose process has not reported for the length
    of a lease; null if no restore waits."""

    restore: RestoreWork | None


class RestoreReport(Wire):
    """`POST /upcall/v1/clusters/{c}/tenants/{t}/restores/{id}/reports`: the progress of a restore. The report renews
    the claim. The answer is 409 if the claim is not the newest one, or the restore has ended."""

    epoch: int
    state: Literal["running", "done", "failed"]
    tables: list[RestoreTable]
    reason: str | None = None
