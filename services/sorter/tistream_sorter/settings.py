"""Settings of the sorter, which are read from environment variables `TISTREAM_SORTER__…`."""

from __future__ import annotations

from typing import Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from tistream.service.settings import ServiceSettings, settings_config
from tistream.spark import spark_auth
from tistream.spark.settings import SparkSettings


class TickSettings(BaseModel):
    """When a tick runs, and the limits of its input."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    interval_ms: int = Field(default=100, ge=10, le=60_000, description="pause after a tick that found nothing to do")
    bytes_max: int = Field(
        default=128 << 20, ge=1 << 20, description="row group bytes, as stored, that one task's tick takes"
    )
    shard_bytes_min: int = Field(default=8 << 20, ge=1 << 16, description="smallest shard, in bytes of row groups")
    shard_work_max: int = Field(
        default=128 << 20,
        ge=1 << 14,
        description="work of one shard: bytes of the row groups it reads, unpacked, and 128 a row; bounds its memory",
    )
    large_work: int = Field(
        default=256 << 20, ge=1, description="work above which a tick runs separately from the others"
    )
    rows_small: int = Field(
        default=16_384, ge=0, description="pending parts of fewer rows are read by every tick, and merged"
    )
    point_bytes_min: int = Field(
        default=256 << 10,
        ge=1,
        description="size of a row group's pending values from which they stay in the source file",
    )
    seal_bytes_min: int = Field(
        default=1 << 20,
        ge=1,
        description="size of the rows of one commit_ts above the watermark from which they become a segment at once",
    )
    idle_manifest_ms: int = Field(
        default=10_000, ge=100, description="progress without changes is written at most this often"
    )
    inbox_files_max: int = Field(default=4_096, ge=1, description="files in the inbox of a task; above: 503")
    checkpoint_every: int = Field(
        default=64, ge=2, le=10_000, description="number of manifests from one checkpoint to the next"
    )
    keep_index_keys: bool = Field(
        default=False,
        description="keep index entries in the pool, for restores, unless the tenant has a setting of its own",
    )


class CollectSettings(BaseModel):
    """When garbage objects are deleted."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    grace_ms: int = Field(
        default=600_000, ge=0, description="how long an object is kept after the last manifest that names it"
    )
    every_ms: int = Field(default=60_000, ge=10, description="pause between two runs of garbage collection")


class CompactSettings(BaseModel):
    """When small segments are merged (compaction)."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    enabled: bool = Field(default=True, description="compact small segments")
    fan_in: int = Field(
        default=128,
        ge=2,
        le=1024,
        description="segments of similar size that are compacted together, however small they are",
    )
    fan_in_full: int = Field(
        default=16, ge=2, le=1024, description="segments that are compacted together if they have `small_bytes` in all"
    )
    small_bytes: int = Field(
        default=8 << 20,
        ge=1 << 10,
        description="size that `fan_in_full` segments must reach; segments of a quarter of it are not compacted",
    )
    bytes_max: int = Field(default=64 << 20, ge=1 << 20, description="segment bytes that one job reads")
    every_ms: int = Field(default=1_000, ge=10, description="pause while there is nothing to compact")


class IndexSettings(BaseModel):
    """When the runs of the version index, which has every version of every key in key order, are made and merged."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    enabled: bool = Field(default=True, description="keep a version index, for reads at a point in time")
    age_ms: int = Field(default=600_000, ge=0, description="age from which rows are moved into runs of the index")
    wait_ms: int = Field(default=3_600_000, ge=0, description="age at which rows become a run, however few they are")
    run_bytes: int = Field(default=16 << 20, ge=1 << 10, description="bytes of segments that become a run at once")
    bytes_max: int = Field(default=64 << 20, ge=1 << 20, description="segment bytes that one job reads")
    shard_bytes_max: int = Field(
        default=128 << 20, ge=1 << 14, description="unpacked bytes of one shard of a merge; bounds its memory"
    )


class SorterSettings(ServiceSettings):
    """Settings of the sorter. For example, `TISTREAM_SORTER__TICK__INTERVAL_MS=50` sets `tick.interval_ms`."""

    model_config = settings_config("SORTER")

    port: int = Field(default=8004, ge=0, le=65535, description="port to bind")
    tick: TickSettings = TickSettings()
    collect: CollectSettings = CollectSettings()
    compact: CompactSettings = CompactSettings()
    index: IndexSettings = IndexSettings()
    spark: SparkSettings = SparkSettings()
    bases_ms: int = Field(default=5_000, ge=50, description="pause between two looks for base chunks of backfills")

    @model_validator(mode="after")
    def _spark_locked(self) -> Self:
        if self.tls.terminated_elsewhere:
            return self
        if (reason := spark_auth.refusal(self.spark.master, self.spark.conf)) is not None:
            raise ValueError(f"{reason}; or TLS__TERMINATED_ELSEWHERE=true, if the network encrypts")
        return self
