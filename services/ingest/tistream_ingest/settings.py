"""The settings of the ingest service. Their environment variables begin with TISTREAM_INGEST__."""

from __future__ import annotations

from typing import Self

from pydantic import Field, field_validator, model_validator

from tistream.errors import InvalidRequest
from tistream.service.settings import ServiceSettings, settings_config
from tistream.spark import spark_auth
from tistream.spark.settings import SparkSettings
from tistream.storage.open import check_url


class IngestSettings(ServiceSettings):
    """The settings of the ingest service."""

    model_config = settings_config("INGEST")

    port: int = Field(default=8006, ge=0, le=65535, description="port to bind")
    poll_ms: int = Field(default=5_000, ge=10, description="pause between looks at the checkpoints of a log backup")
    sources_ms: int = Field(default=2_000, ge=10, description="pause between looks at the list of sources")
    backfills_ms: int = Field(default=5_000, ge=10, description="pause between looks at the list of backfills")
    plan_wait_ms: int = Field(
        default=24 * 3_600_000,
        ge=60_000,
        description="time after the order within which the plan of a pushed backfill must exist; then it is cancelled",
    )
    file_rows: int = Field(default=200_000, ge=1, description="rows that a change file aims for")
    file_bytes: int = Field(default=64 << 20, ge=1 << 16, description="bytes of keys and values that it aims for")
    horizon_ms: int = Field(
        default=2 * 3_600_000,
        ge=0,
        description="age of a transaction up to which metadata of its values is kept; above, it is read again",
    )
    keep_index_keys: bool = Field(
        default=False, description="keep index entries, unless the tenant has a setting of its own; as the sorters"
    )
    restore_urls: str = Field(
        default="", description="prefixes of URLs that restores may write to, comma-separated; empty: no URL"
    )
    restore_dsn_dir: str | None = Field(
        default=None, description="directory of files with mysql:// URLs that restores may write to; none: no server"
    )
    backfill_dsn_dir: str | None = Field(
        default=None, description="directory of files with mysql:// URLs that backfills may read; none: no server"
    )
    restores_ms: int = Field(default=2_000, ge=10, description="pause between looks for a restore to run")
    spark: SparkSettings = SparkSettings()

    @field_validator("restore_urls")
    @classmethod
    def _are_urls(cls, text: str) -> str:
        """Reject a prefix that is not a URL. It would silently allow nothing, for example if the setting is written as
        a JSON list."""
        for one in _listed(text):
            try:
                check_url(one)
            except InvalidRequest as error:
                raise ValueError(f"{error}; separate prefixes by commas: s3://exports,/backup") from error
        return text

    @property
    def restore_prefixes(self) -> tuple[str, ...]:
        """The prefixes that `restore_urls` lists."""
        return _listed(self.restore_urls)

    @model_validator(mode="after")
    def _spark_locked(self) -> Self:
        if self.tls.terminated_elsewhere:
            return self
        if (reason := spark_auth.refusal(self.spark.master, self.spark.conf)) is not None:
            raise ValueError(f"{reason}; or TLS__TERMINATED_ELSEWHERE=true, if the network encrypts")
        return self


def _listed(text: str) -> tuple[str, ...]:
    return tuple(one for one in map(str.strip, text.split(",")) if one)
