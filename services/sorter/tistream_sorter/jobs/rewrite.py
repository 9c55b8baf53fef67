"""Input and result of a compaction job, which merges segments. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field

from tistream.format.segment import SegmentRef
from tistream.model.ids import TenantKey
from tistream.storage.measured import Traffic


@dataclass(frozen=True, slots=True)
class Rewrite:
    """Neighbouring segments to merge into the object `key`, in order. Only the first ones are merged that together fit
    into `unpacked_max` bytes of memory."""

    tenant: TenantKey
    task_id: int
    inputs: tuple[SegmentRef, ...]
    key: str
    unpacked_max: int


@dataclass(frozen=True, slots=True)
class Rewritten:
    """The result of a Rewrite. `output` has the rows of `inputs` (at least two segments). failed: the reason if there
    is no output; `inputs` then names the segments that caused it, and is empty after an error that may pass."""

    task_id: int
    inputs: tuple[str, ...] = ()
    output: SegmentRef | None = None
    failed: str | None = None
    traffic: dict[str, Traffic] = field(default_factory=dict)
