"""Settings of the dispatcher, which are read from environment variables `TISTREAM_DISPATCHER__…`."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field

from tistream.service.settings import ServiceSettings, settings_config


class CollectSettings(BaseModel):
    """When change files that no task needs any more are deleted."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    enabled: bool = Field(default=True, description="delete change files that are in the pool and that no task needs")
    keep_ms: int = Field(
        default=24 * 3_600_000,
        ge=0,
        description="minimum age of a file before deletion, by its modification time; 0: deleted once consumed",
    )
    every_ms: int = Field(default=60_000, ge=100, description="pause between two runs of deletion")


class DispatcherSettings(ServiceSettings):
    """Settings that an operator may change."""

    model_config = settings_config("DISPATCHER")

    port: int = Field(default=8003, ge=0, le=65535, description="port to bind")
    poll_min_ms: int = Field(default=250, ge=10, description="pause between LISTs of a store while they find files")
    poll_max_ms: int = Field(
        default=2_000, ge=10, description="the same, while they find none or all files were announced"
    )
    discover_ms: int = Field(default=2_000, ge=10, description="pause between LISTs for new stores")
    poll_idle_ms: int = Field(default=60_000, ge=10, description="longest pause between LISTs for a silent tenant")
    poll_announced_idle_ms: int = Field(
        default=600_000, ge=10, description="the same, if the tenant's last file was announced"
    )
    resync_ms: int = Field(
        default=1_000, ge=50, description="interval of requests to sorters for what they have received"
    )
    resync_idle_ms: int = Field(default=60_000, ge=50, description="the same, while everything is in manifests")
    window_files: int = Field(default=2_048, ge=1, description="files routed ahead of a tenant's slowest task")
    window_bytes: int = Field(
        default=64 << 20, ge=1 << 16, description="memory of the watermarks and references of these files"
    )
    batch_files: int = Field(default=128, ge=1, description="files in one request to a sorter")
    batch_bytes: int = Field(default=8 << 20, ge=1 << 16, description="bytes in one request to a sorter")
    collect: CollectSettings = CollectSettings()
