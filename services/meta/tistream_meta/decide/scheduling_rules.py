"""The limits and rules of the scheduler. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from tistream_meta.decide import split_merge as seals
from tistream_meta.decide.policies import DEFAULT_LIMITS, Limits


@dataclass(frozen=True, slots=True)
class SchedulingRules:
    """Limits of moves, and the rules of splits and merges."""

    moves: Limits = DEFAULT_LIMITS
    seals: seals.Rules = seals.DEFAULT_RULES
