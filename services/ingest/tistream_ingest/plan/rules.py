"""The limits of a source (a log backup that is read), and which metadata objects of it need not be read. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field

from tistream.logbackup import meta_name
from tistream.model.ts import physical_ms
from tistream_ingest.plan.cuts import FileLimits

CLOCKS_MS = 3_600_000  # how far the object store's clock, and an upload, may be behind the timestamps of PD


@dataclass(frozen=True, slots=True)
class SourceRules:
    """The limits of a source. horizon_ms: for how long the metadata of long values is kept; if a transaction lasted
    longer, it is read again. shard_bytes_min, shard_bytes_max: unpacked bytes of one shard. flushes_kept: number of
    flush times per store, for the status."""

    limits: FileLimits = field(default_factory=FileLimits)
    horizon_ms: int = 2 * 3_600_000
    shard_bytes_min: int = 8 << 20
    shard_bytes_max: int = 64 << 20
    flushes_kept: int = 16

    def shard_bytes(self, total: int, slots: int) -> int:
        """The size of each shard, in unpacked bytes, for a release that has `total` unpacked bytes in all. `slots`: the
        number of shards that can run at the same time."""
        return max(self.shard_bytes_min, min(self.shard_bytes_max, -(-total // slots)))


def may_matter(name: str, ts: int) -> bool:
    """Whether a metadata object may name entries above `ts`. It may, unless its name excludes it."""
    hints = meta_name.parse(name)
    return hints is None or hints.max_ts is None or max(hints.max_ts, hints.flush_ts) > ts


def uploaded_lately(name: str, modified_ms: int, ts: int) -> bool:
    """Whether a metadata object may have been uploaded after the release at `ts` listed the bucket, so that no release
    has read it. The next release then looks up its commits at or below `ts` in the pool. modified_ms is 0 if the object
    store has no clock."""
    hints = meta_name.parse(name)
    flushed_ms = 0 if hints is None else physical_ms(hints.flush_ts)
    return max(flushed_ms, modified_ms) >= physical_ms(ts) - CLOCKS_MS
