"""The settings that the meta server's decisions use."""

from __future__ import annotations

from dataclasses import dataclass, field

from tistream_meta.decide.liveness import Timings
from tistream_meta.decide.model import FOR_EVER, Retention
from tistream_meta.decide.scheduling_rules import SchedulingRules


@dataclass(frozen=True, slots=True)
class Options:
    """The settings that the meta server's decisions use; see settings.py."""

    own_url: str
    ranges_per_tenant: int
    lease_ms: int
    timings: Timings
    snapshot_retry_max_ms: int
    announcements_max: int
    retention: Retention = FOR_EVER  # of a tenant that is registered without one
    encrypts: bool = False  # the object store can encrypt a tenant's objects with a key of its own
    rules: SchedulingRules = field(default_factory=SchedulingRules)
