"""The registry's settings: `TISTREAM_SCHEMA__…`."""

from __future__ import annotations

from pydantic import Field

from tistream.service.settings import ServiceSettings, settings_config
from tistream_schema.durable_log import SNAPSHOT_BYTES


class SchemaSettings(ServiceSettings):
    """Durations end in their unit."""

    model_config = settings_config("SCHEMA")

    port: int = Field(default=8002, ge=0, le=65535, description="port to bind")
    poll_ms: int = Field(default=100, ge=10, le=60_000, description="how often sorters are asked while tasks move")
    poll_idle_ms: int = Field(default=500, ge=10, le=60_000, description="the same, while nothing moves")
    poll_quiet_ms: int = Field(
        default=10_000,
        ge=10,
        le=600_000,
        description="longest time between two looks at a tenant of which no sorter reports news",
    )
    route_wait_ms: int = Field(default=5_000, ge=0, le=60_000, description="long poll of the route table")
    quiet_segments: int = Field(
        default=256, ge=1, description="segments read without a schema change after which that progress is kept"
    )
    quiet_ms: int = Field(
        default=3_600_000,
        ge=1_000,
        le=86_400_000,
        description="the same, at the latest: rows that were read are not let go of before it is",
    )
    base_objects: int = Field(
        default=256, ge=2, le=65_536, description="objects of a tenant's log after which it is restated, and they go"
    )
    snapshot_bytes: int = Field(
        default=SNAPSHOT_BYTES,
        ge=1 << 20,
        description="the largest schema_snap that is read; four times as much memory may be held while it is",
    )
    grace_ms: int = Field(
        default=3_600_000, ge=0, le=86_400_000, description="how long objects of the log that no reader needs are kept"
    )
