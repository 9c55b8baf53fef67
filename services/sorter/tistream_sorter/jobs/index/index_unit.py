"""The input and the result of a job that merges segments and runs of the version index into one run. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field

from tistream.format.run import RunRef
from tistream.format.segment import SegmentRef
from tistream.model.ids import TenantKey
from tistream.model.span import KeySpan
from tistream.storage.measured import Traffic


@dataclass(frozen=True, slots=True)
class IndexUnit:
    """The input of one merge, in the part of the version index that has the keys `span`.

    The output is the run of the window (low_ts, high_ts]: the versions of `segments` in the window, or those of `runs`.
    With low_ts None, the output is the base run at high_ts: for each key the newest version of `runs`, unless it is a
    delete. In `runs`, the objects of the base run come first, then those of backfills. Versions outside of `span` are
    ignored. source_bytes: bytes of the segments' rows in the window. cost: upper bound of the bytes written. `keep`:
    objects of the base run that overlap no other input, and that the new base run names unchanged. A shard of the merge
    is the unit with the keys `shard`; `number` makes the names of its objects unique.
    """

    tenant: TenantKey
    task_id: int
    task_epoch: int
    nonce: str
    span: KeySpan
    low_ts: int | None
    high_ts: int
    segments: tuple[SegmentRef, ...] = ()
    runs: tuple[RunRef, ...] = ()
    keep: tuple[RunRef, ...] = ()
    source_bytes: int = 0
    cost: int = 0
    unpacked_max: int = 128 << 20
    shard: KeySpan | None = None
    number: int = 0

    @property
    def inputs(self) -> frozenset[str]:
        """The keys of the objects that the merge reads."""
        return frozenset(one.key for one in self.segments) | frozenset(run.key for run in self.runs)


@dataclass(frozen=True, slots=True)
class IndexResult:
    """The result of a merge, or of one of its shards. runs: the objects written, in key order. shards: spans into which
    the merge must be cut, because it is too large; then nothing was written. failed: the reason if it failed. damaged:
    the inputs that may have caused the failure; empty after a temporary error."""

    task_id: int
    number: int = 0
    runs: tuple[RunRef, ...] = ()
    shards: tuple[KeySpan, ...] = ()
    failed: str | None = None
    damaged: tuple[str, ...] = ()
    traffic: dict[str, Traffic] = field(default_factory=dict)
