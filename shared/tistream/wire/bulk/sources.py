"""Sources of a tenant besides stores that push: log backups (docs/log-backup.md)."""

from typing import Literal

from pydantic import Field

from tistream.wire.meta import StrictRequest
from tistream.wire.sorter import Hold, Wire

URL_MAX = 1_024
State = Literal["starting", "running", "waiting", "stopped"]


class SnapshotSource(StrictRequest):
    """Where a tenant's first schema comes from. `br-full`: a full backup of BR at `url`. `none`: a schema_snap that was
    pushed."""

    kind: Literal["br-full", "none"]
    url: str | None = Field(default=None, max_length=URL_MAX)


class AddSource(StrictRequest):
    """`POST /v1/clusters/{cluster_id}/tenants/{tenant_id}/sources`: read a log backup for the tenant. The answer is
    201, also if the tenant has this source already; 409 if it has another one; 422 with the reason if the source cannot
    be read."""

    kind: Literal["log-backup"]
    url: str = Field(max_length=URL_MAX)
    snapshot: SnapshotSource = SnapshotSource(kind="none")


class SourceRow(Wire):
    """A source as the meta database stores it. snapshot_ts: that of the tenant. index_keys: whether the tenant's index
    entries are kept; null: the setting of the service. paused: whether the tenant is paused. rows_wait: the reason why
    the rows of the source's full backup have not arrived yet; until then, no changes are taken from the log backup.
    Null if they have arrived, or if no backup was named."""

    cluster_id: str
    tenant_id: str
    source_id: str
    kind: str
    url: str
    snapshot_kind: str
    snapshot_url: str | None = None
    snapshot_ts: int | None = None
    index_keys: bool | None = None
    paused: bool = False
    rows_wait: str | None = None


class SourceRows(Wire):
    """The answer of `GET /upcall/v1/sources`, the sources of all tenants, and of `GET …/tenants/{t}/sources`, those of
    one."""

    sources: list[SourceRow]


class FlushedStore(Wire):
    """A store that writes into a log backup, and when the newest of its flushes that was read began, in ms since the
    Unix epoch. Null if the names of its metadata objects do not state it."""

    store_id: str
    newest_flush_ms: int | None


class SourceInfo(Wire):
    """One source as users see it. Timestamps are decimal strings, null while unknown.

    checkpoint_ts: the log backup is complete up to it. released_ts: its changes up to this ts have been turned into
    change files. safe_point_ts: data of the log below it may be gone. state: `starting` (no step is done yet),
    `running`, `waiting` (`reason` names what it waits for), `stopped` (`reason` has the cause, and what to do).
    flush_interval_s: the median interval of flushes, over all stores.
    """

    source_id: str
    kind: str
    state: State
    checkpoint_ts: str | None = None
    released_ts: str | None = None
    flush_interval_s: float | None = None
    stores: list[FlushedStore] = Field(default_factory=list)
    safe_point_ts: str | None = None
    reason: str | None = None


class SourceStatus(Wire):
    """A source as reported by the ingest process that runs it. `hold`: why the source makes no progress."""

    cluster_id: str
    tenant_id: str
    info: SourceInfo
    hold: Hold | None = None


class SourceStatuses(Wire):
    """The answer of an ingest process to `GET /v1/sources[?cluster_id=&tenant_id=]`."""

    node_id: str
    sources: list[SourceStatus]
