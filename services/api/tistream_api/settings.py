"""Settings of the API server: TISTREAM_API__…"""

from __future__ import annotations

from pydantic import Field

from tistream.service.settings import ServiceSettings, settings_config


class ApiSettings(ServiceSettings):
    """What an operator may change."""

    model_config = settings_config("API")

    cache_bytes: int = Field(default=256 << 20, ge=1 << 20, description="row groups kept in memory")
    chunk_rows: int = Field(default=32_768, ge=1, le=1 << 20, description="rows of a pull decoded at once")
    chunk_bytes: int = Field(default=16 << 20, ge=1 << 10, description="compressed bytes of a pull decoded at once")
    pulls_max: int = Field(
        default=224,
        ge=1,
        le=240,
        description="pulls answered at once; beyond: 429. Each holds at most 32 MiB of decoded rows, 7 GiB if all do",
    )
    list_wait_ms: int = Field(default=2_000, ge=0, le=60_000, description="how long a list waits for its ts")
    lag_every_ms: int = Field(
        default=5_000, ge=500, le=600_000, description="how often each tenant's lag by stage is noted; an hour is kept"
    )
    refresh_threads: int = Field(default=4, ge=1, le=64, description="tenants looked at in parallel")
