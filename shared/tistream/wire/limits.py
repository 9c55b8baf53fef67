"""The limits that operators set for a tenant. The meta database stores them, and route tables carry them to the
services that enforce them."""

from __future__ import annotations

from pydantic import Field

from tistream.wire.sorter import Wire

QUOTA_MAX = 1 << 53  # the largest integer that every JSON parser preserves


class Limits(Wire):
    """The limits of a tenant. Null: the default in the services' settings. 0: unlimited; for pulls_at_once: half of an
    API server's own limit."""

    requests_per_second: int | None = Field(default=None, ge=0, le=QUOTA_MAX)
    pulls_at_once: int | None = Field(default=None, ge=0, le=QUOTA_MAX)
    served_bytes_per_second: int | None = Field(default=None, ge=0, le=QUOTA_MAX)
    notifications_per_second: int | None = Field(default=None, ge=0, le=QUOTA_MAX)
    changefeeds: int | None = Field(default=None, ge=0, le=QUOTA_MAX)
    changefeed_shards: int | None = Field(default=None, ge=0, le=QUOTA_MAX, description="of all changefeeds together")
    feed_rows_per_second: int | None = Field(
        default=None, ge=0, le=QUOTA_MAX, description="row events of all changefeeds, at each worker"
    )
    feed_bytes_per_second: int | None = Field(
        default=None, ge=0, le=QUOTA_MAX, description="bytes of their messages, at each worker"
    )
    stored_bytes: int | None = Field(default=None, ge=0, le=QUOTA_MAX, description="more is reported, not rejected")


NO_LIMITS = Limits()
