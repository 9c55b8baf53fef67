"""The settings of the schema registry. Their environment variables begin with `TISTREAM_SCHEMA__`."""

from __future__ import annotations

from pydantic import Field

from tistream.service.settings import ServiceSettings, settings_config
from tistream_schema.durable_log import SNAPSHOT_BYTES


class SchemaSettings(ServiceSettings):
    """The settings of the schema registry. The name of a duration ends in its unit."""

    model_config = settings_config("SCHEMA")

    port: int = Field(default=8002, ge=0, le=65535, description="port to bind")
    poll_ms: int = Field(
        default=100, ge=10, le=60_000, description="shortest interval of polls of a sorter, which waits for progress"
    )
    poll_idle_ms: int = Field(
        default=500, ge=10, le=60_000, description="the same for a sorter that does not wait, while nothing advances"
    )
    poll_quiet_ms: int = Field(
        default=10_000,
        ge=10,
        le=600_000,
        description="longest time between two polls of a tenant without changes",
    )
    route_wait_ms: int = Field(
        default=5_000, ge=0, le=60_000, description="duration of the long poll of the route table"
    )
    quiet_segments: int = Field(
        default=256, ge=1, description="segments without a schema change after which the progress is stored"
    )
    quiet_ms: int = Field(
        default=3_600_000,
        ge=1_000,
        le=86_400_000,
        description="the same, as a time; rows that were read are released only once the progress is stored",
    )
    base_objects: int = Field(
        default=256, ge=2, le=65_536, description="objects of a tenant's schema log before it is rewritten as one base"
    )
    snapshot_bytes: int = Field(
        default=SNAPSHOT_BYTES,
        ge=1 << 20,
        description="the largest schema_snap that is read; four times as much memory may be held while it is",
    )
    grace_ms: int = Field(
        default=3_600_000, ge=0, le=86_400_000, description="how long objects of the log that no reader needs are kept"
    )
