"""The input and the result of a compaction job, which merges segments. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field

from tistream.format.segment import SegmentRef
from tistream.model.ids import TenantKey
from tistream.storage.measured import Traffic


@dataclass(frozen=True, slots=True)
class Rewrite:
    """The input of a merge: neighbouring segments, in order, that become the object `key`. Only the first segments that
    fit into `unpacked_max` bytes of memory together are merged."""

    tenant: TenantKey
    task_id: int
    inputs: tuple[SegmentRef, ...]
    key: str
    unpacked_max: int


@dataclass(frozen=True, slots=True)
class Rewritten:
    """The result of a Rewrite. After a success, `output` holds the rows of the segments `inputs`, at least two. After a
    failure, `failed` is the reason, and `inputs` names the segments to skip from now on; it is empty if a retry may
    succeed. `traffic`: requests to the object store, by kind."""

    task_id: int
    inputs: tuple[str, ...] = ()
    output: SegmentRef | None = None
    failed: str | None = None
    traffic: dict[str, Traffic] = field(default_factory=dict)
