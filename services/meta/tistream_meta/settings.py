"""Settings of the meta server, which are read from environment variables `TISTREAM_META__…`."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field, field_validator

from tistream.model.retention import RETENTION_MAX_MS, RETENTION_MIN_MS
from tistream.service.settings import ServiceSettings, settings_config
from tistream.wire.usage import HOUR_MS
from tistream_meta.database.engine import DEFAULT_LIMITS, LOCK_WAIT_S, ConnectionLimits, checked_url
from tistream_meta.decide.ranges import RANGES_MAX
from tistream_meta.tenants.first_token import first_token


class MetaSettings(ServiceSettings):
    """Settings of the meta server."""

    model_config = settings_config("META")

    port: int = Field(default=8001, ge=0, le=65535, description="port to bind")  # where the default META_URL leads
    database_url: str = Field(default="sqlite:///meta.db", description="sqlite:///path or mysql+pymysql://user@host/db")
    database_connections: int = Field(
        default=DEFAULT_LIMITS.connections, ge=2, le=100, description="connections of this process to MySQL"
    )
    database_answer_ms: int = Field(
        default=int(DEFAULT_LIMITS.answer_s * 1000),
        ge=(LOCK_WAIT_S + 1) * 1000,
        le=60_000,
        description="timeout for an answer of MySQL, a connection, and a free connection",
    )
    ranges_per_tenant: int = Field(default=1, ge=1, le=RANGES_MAX, description="number of tasks of a new tenant")
    retention_ms: int | None = Field(
        default=None,
        ge=RETENTION_MIN_MS,
        le=RETENTION_MAX_MS,
        description="retention of tenants that are created without one; default: rows are kept forever",
    )
    first_token_file: Path | None = Field(
        default=None,
        description="file with the first token (`tistream token new`), which may do everything",
    )
    lease_ms: int = Field(default=9_000, ge=300, le=600_000, description="duration of the owner's lease")
    suspect_ms: int = Field(default=4_000, ge=100, description="time without a heartbeat after which a node is suspect")
    lost_ms: int = Field(
        default=10_000, ge=200, description="time without a heartbeat after which a node is lost and its work is moved"
    )
    check_ms: int = Field(default=250, ge=10, le=10_000, description="interval of checks of nodes and tasks")
    snapshot_retry_max_ms: int = Field(
        default=2_000, ge=10, description="longest pause between attempts to read a schema_snap"
    )
    usage_keep_ms: int = Field(
        default=93 * 24 * HOUR_MS, ge=24 * HOUR_MS, description="how long the usage of tenants is kept"
    )
    audit_keep_ms: int = Field(
        default=400 * 24 * HOUR_MS, ge=24 * HOUR_MS, description="how long entries of the audit log are kept"
    )
    erase_quiet_ms: int = Field(
        default=600_000, ge=0, description="time without remaining objects of a deleted tenant before its name is free"
    )
    announcements_max: int = Field(default=65_536, ge=1, description="announcements kept for slow readers")

    @field_validator("database_url")
    @classmethod
    def _known_database(cls, url: str) -> str:
        checked_url(url)
        return url

    @field_validator("first_token_file")
    @classmethod
    def _has_a_token(cls, path: Path | None) -> Path | None:
        try:
            first_token(path)
        except OSError as error:
            raise ValueError(f"{path} cannot be read: {error.strerror}") from error
        return path

    @property
    def database_limits(self) -> ConnectionLimits:
        """The limits of database connections, for engine.open_engine."""
        return ConnectionLimits(self.database_connections, self.database_answer_ms / 1000)
