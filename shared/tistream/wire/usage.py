"""What each tenant has used, as processes tell it to the meta servers, and as those tell it to others; and quotas."""

from __future__ import annotations

from pydantic import Field

from tistream.wire.limits import Limits
from tistream.wire.meta import Door
from tistream.wire.sorter import Wire

HOUR_MS = 3_600_000
ENTRIES_MAX = 500  # of each kind in one report
RANGE_MAX_MS = 100 * 24 * HOUR_MS  # that one question asks for


def hour_of(wall_ms: int) -> int:
    """The beginning (ms since the Unix epoch) of the hour, in UTC, that a time lies in."""
    return wall_ms - wall_ms % HOUR_MS


class _OfHour(Wire):
    cluster_id: str
    tenant_id: str
    hour_ms: int


class CountedUsage(_OfHour):
    """What one process has done for a tenant in an hour, in all: `requests` to object storage by kind, those of Spark's
    workers on its behalf included; bytes and rows of answers."""

    bytes_served: int = Field(default=0, ge=0)
    rows_served: int = Field(default=0, ge=0)
    requests: dict[str, int] = Field(default_factory=dict)


class Intake(_OfHour):
    """Bytes of the change files that were taken for a tenant in an hour, as the manifests of the task with its first
    keys have it: whoever tells it, it never goes down."""

    bytes_in: int = Field(ge=0)


class StoredUsage(_OfHour):
    """What `manifest` of a task names of the pool, in bytes, by the task that wrote it: heirs share what a sealed task
    has left."""

    task_id: int
    manifest: int
    bytes_of: dict[int, int]


class UsageReport(Wire):
    """`POST /upcall/v1/usage`: totals so far of one start of a process. It may come twice, late, or in another order:
    of each number the greatest is kept, of what is stored that of the newest manifest."""

    node_id: str = Field(pattern="^[0-9A-Za-z_.-]{1,63}$")
    instance: str = Field(pattern="^[0-9A-Za-z_.-]{1,63}$")
    counted: list[CountedUsage] = Field(default_factory=list, max_length=ENTRIES_MAX)
    intake: list[Intake] = Field(default_factory=list, max_length=ENTRIES_MAX)
    stored: list[StoredUsage] = Field(default_factory=list, max_length=ENTRIES_MAX)


class Amounts(Wire):
    """Of an hour, or summed up. Numbers are decimal strings. `bytes_stored` is what was stored at the hour's end, null
    where nobody told; of a sum: byte-hours."""

    bytes_in: str
    bytes_stored: str | None
    bytes_served: str
    rows_served: str
    requests: dict[str, str]


class HourOfUsage(Amounts):
    """One hour, by its beginning."""

    hour: str = Field(description="as 2026-11-21T10:00:00Z")
    hour_ms: str


class Usage(Wire):
    """Answer of `GET /v1/clusters/{cluster_id}/tenants/{tenant_id}/usage?from=&to=`: the hours that begin at or after
    `from_ms` and before `to_ms`, in order; those in which nothing happened are left out."""

    cluster_id: str
    tenant_id: str
    from_ms: str
    to_ms: str
    hours: list[HourOfUsage]
    total: Amounts


class SetQuotas(Limits):
    """`PUT /v1/clusters/{cluster_id}/tenants/{tenant_id}/quotas`: all of them; what is left out is null."""

    model_config = Door.model_config


class QuotasInfo(Limits):
    """Answer of that, and of GET. `bytes_stored_now` (decimal) is null where nobody told it yet."""

    cluster_id: str
    tenant_id: str
    bytes_stored_now: str | None = None
    stored_bytes_exceeded: bool = False
