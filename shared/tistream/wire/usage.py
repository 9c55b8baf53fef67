"""Usage of tenants: what processes report to the meta servers, and what the meta servers answer. Also the quotas of
tenants."""

from __future__ import annotations

from datetime import UTC, datetime

from pydantic import Field

from tistream.wire.limits import Limits
from tistream.wire.meta import StrictRequest
from tistream.wire.sorter import Wire

HOUR_MS = 3_600_000
ENTRIES_MAX = 500  # entries of each kind in one report
RANGE_MAX_MS = 100 * 24 * HOUR_MS  # the longest time range of one request


def hour_of(wall_ms: int) -> int:
    """The beginning of the UTC hour that contains a time, in ms since the Unix epoch."""
    return wall_ms - wall_ms % HOUR_MS


class _OfHour(Wire):
    cluster_id: str
    tenant_id: str
    hour_ms: int


class CountedUsage(_OfHour):
    """What one process has done for a tenant in an hour: `requests` to object storage by kind, including those that
    Spark's workers made on the process's behalf; bytes and rows of answers."""

    bytes_served: int = Field(default=0, ge=0)
    rows_served: int = Field(default=0, ge=0)
    requests: dict[str, int] = Field(default_factory=dict)


class Intake(_OfHour):
    """Bytes of the change files that were read for a tenant in an hour, according to the manifests of the task with the
    tenant's first key. It never decreases, whichever process reports it."""

    bytes_in: int = Field(ge=0)


class StoredUsage(_OfHour):
    """Bytes of the objects that manifest number `manifest` of a task names. They are grouped by the task that wrote
    them, because child tasks share the objects of their sealed parents."""

    task_id: int
    manifest: int
    bytes_of: dict[int, int]


class UsageReport(Wire):
    """`POST /upcall/v1/usage`: a process reports its totals since it started. Reports may arrive twice, late, or out of
    order. So the receiver keeps the maximum of each counter, and for stored bytes the value of the newest manifest."""

    node_id: str = Field(pattern="^[0-9A-Za-z_.-]{1,63}$")
    instance: str = Field(pattern="^[0-9A-Za-z_.-]{1,63}$")
    counted: list[CountedUsage] = Field(default_factory=list, max_length=ENTRIES_MAX)
    intake: list[Intake] = Field(default_factory=list, max_length=ENTRIES_MAX)
    stored: list[StoredUsage] = Field(default_factory=list, max_length=ENTRIES_MAX)


def hour_text(hour_ms: int) -> str:
    """Format an hour in the form of `HourOfUsage.hour`."""
    return datetime.fromtimestamp(hour_ms / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


class FeedAmounts(Wire):
    """What a changefeed's sink has acknowledged: the number of row events, the bytes of their messages, and the bytes
    of other messages."""

    rows: str
    bytes: str


class Amounts(Wire):
    """The usage of a tenant in an hour, or the sum over hours. Numbers are decimal strings. `bytes_stored`: the bytes
    stored at the hour's end, null if they were not reported; in a sum, byte-hours. `feed_rows`, `feed_bytes`: over all
    changefeeds; `feeds`: of each changefeed, by id."""

    bytes_in: str
    bytes_stored: str | None
    bytes_served: str
    rows_served: str
    requests: dict[str, str]
    feed_rows: str = "0"
    feed_bytes: str = "0"
    feeds: dict[str, FeedAmounts] = Field(default_factory=dict)


class HourOfUsage(Amounts):
    """The usage of a tenant in one hour, which is identified by its beginning."""

    hour: str = Field(description="as 2026-11-21T10:00:00Z")
    hour_ms: str

    @classmethod
    def empty(cls, hour: str, hour_ms: int) -> HourOfUsage:
        """An hour whose counters are all zero."""
        return cls(
            hour=hour,
            hour_ms=str(hour_ms),
            bytes_in="0",
            bytes_stored=None,
            bytes_served="0",
            rows_served="0",
            requests={},
        )


class Usage(Wire):
    """The answer of `GET /v1/clusters/{cluster_id}/tenants/{tenant_id}/usage?from=&to=`: the hours that begin at or
    after `from_ms` and before `to_ms`, in order; hours without usage are left out."""

    cluster_id: str
    tenant_id: str
    from_ms: str
    to_ms: str
    hours: list[HourOfUsage]
    total: Amounts


class SetQuotas(Limits):
    """`PUT /v1/clusters/{cluster_id}/tenants/{tenant_id}/quotas`: all limits. A limit that is left out becomes null."""

    model_config = StrictRequest.model_config


class QuotasInfo(Limits):
    """The answer of GET and PUT of the quotas. `bytes_stored_now` (decimal) is null if it was not reported yet."""

    cluster_id: str
    tenant_id: str
    bytes_stored_now: str | None = None
    stored_bytes_exceeded: bool = False
