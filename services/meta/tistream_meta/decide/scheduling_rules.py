"""What the scheduler may do. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from tistream_meta.decide import split_merge as seals
from tistream_meta.decide.policies import DEFAULT_LIMITS, Limits


@dataclass(frozen=True, slots=True)
class SchedulingRules:
    """How much is moved at a time, and what is split and merged."""

    moves: Limits = DEFAULT_LIMITS
    seals: seals.Rules = seals.DEFAULT_RULES
