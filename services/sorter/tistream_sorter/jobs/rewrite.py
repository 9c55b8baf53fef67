"""The contract of a compaction job: which segments are to become one, and what came of it. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field

from tistream.format.segment import SegmentRef
from tistream.model.ids import TenantKey
from tistream.storage.measured import Traffic


@dataclass(frozen=True, slots=True)
class Rewrite:
    """Segments, in the order of the list, of which the first ones, as many as fit, are to be written as one, `key`."""

    tenant: TenantKey
    task_id: int
    inputs: tuple[SegmentRef, ...]
    key: str
    unpacked_max: int


@dataclass(frozen=True, slots=True)
class Rewritten:
    """What came of a Rewrite: `output` holds the rows of `inputs`, two at least. failed: why there is none; where there
    are `inputs`, because of them, else it may go better the next time."""

    task_id: int
    inputs: tuple[str, ...] = ()
    output: SegmentRef | None = None
    failed: str | None = None
    traffic: dict[str, Traffic] = field(default_factory=dict)
