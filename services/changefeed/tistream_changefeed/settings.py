"""Settings of the changefeed service, which are read from environment variables `TISTREAM_CHANGEFEED__…`."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field

from tistream.read.scan import Budget
from tistream.service.settings import ServiceSettings, settings_config


class ChangefeedSettings(ServiceSettings):
    """Settings of the changefeed service."""

    model_config = settings_config("CHANGEFEED")

    port: int = Field(default=8008, ge=0, le=65535, description="port to bind")
    sink_hosts: str = Field(
        default="",
        description="hosts that feeds may write to, comma-separated, each with or without a port; `*`: any host; "
        "empty: none",
    )
    claim_check_urls: str = Field(
        default="",
        description="places (`s3://bucket/prefix?endpoint=…`, `file:///path`) at or below which feeds may put files, "
        "as their sink or for large messages, comma-separated; empty: none",
    )
    secrets_key_file: Path | None = Field(
        default=None, description="private keys that open secrets of tenants, base64, one per line"
    )
    cache_bytes: int = Field(
        default=256 << 20, ge=1 << 20, description="bytes of row groups and events that feeds share"
    )
    chunk_rows: int = Field(default=32_768, ge=64, description="rows of a feed that are in memory at once")
    chunk_bytes: int = Field(default=16 << 20, ge=1 << 16, description="their compressed bytes")
    window_bytes: int = Field(
        default=8 << 20, ge=1 << 10, description="bytes of messages that one transaction of a sink aims for"
    )
    beat_ms: int = Field(default=1_000, ge=10, description="pause between reports to the meta server")
    refresh_threads: int = Field(default=4, ge=1, description="threads that refresh the progress of tenants")

    @property
    def budget(self) -> Budget:
        """The limits for the rows that a feed reads at a time."""
        return Budget(rows=self.chunk_rows, chunk_bytes=self.chunk_bytes)

    @property
    def hosts(self) -> tuple[str, ...]:
        """The hosts that feeds may write to."""
        return tuple(host.strip() for host in self.sink_hosts.split(",") if host.strip())

    @property
    def file_urls(self) -> tuple[str, ...]:
        """The URLs below which feeds may put files."""
        return tuple(url.strip() for url in self.claim_check_urls.split(",") if url.strip())
