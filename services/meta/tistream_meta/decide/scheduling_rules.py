"""The limits that the scheduler of tasks obeys. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from tistream_meta.decide import split_merge as seals
from tistream_meta.decide.task_policy import DEFAULT_LIMITS, MoveLimits


@dataclass(frozen=True, slots=True)
class SchedulingRules:
    """The limits of moves of tasks, and the rules of splits and merges."""

    moves: MoveLimits = DEFAULT_LIMITS
    seals: seals.Rules = seals.DEFAULT_RULES
