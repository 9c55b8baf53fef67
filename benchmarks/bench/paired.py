"""Says from rounds in pairs whether a change costs more, less or the same, and how sure that is. Pure.

The differences are those of logarithms, ranked (Wilcoxon's signed-rank test and the interval that belongs to it). It
assumes no distribution, and one disturbed round hardly moves it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations_with_replacement
from statistics import median
from typing import Literal

RISK = 0.05  # of calling a difference that is none
ROUNDS_MIN = 6  # fewer can never be sure enough: 2 / 2**5 > RISK
NEAR = 0.05  # what counts as the same, if chance explains it
TINY = 0.01  # what counts as the same in any case

Verdict = Literal["less", "more", "the same", "undecided"]


@dataclass(frozen=True, slots=True)
class Paired:
    """How many times the base's amount the changed tree needs: an estimate, and an interval that has the true factor
    with a probability of at least 1 - RISK. `confidence` is that of the verdict: for `less` and `more` the probability
    that rounds without a difference would look less different than these."""

    verdict: Verdict
    factor: float
    low: float
    high: float
    confidence: float


def paired(base: Sequence[float], changed: Sequence[float]) -> Paired:
    """Compare amounts above 0; round i of one was measured next to round i of the other."""
    if len(base) != len(changed) or len(base) < ROUNDS_MIN:
        raise ValueError(f"{len(base)} and {len(changed)} rounds: as many of both are needed, at least {ROUNDS_MIN}")
    differences = [math.log(new / old) for old, new in zip(base, changed, strict=True)]
    averages = sorted((one + other) / 2 for one, other in combinations_with_replacement(differences, 2))
    chances = _chances(len(differences))
    beyond = 0  # averages to leave out at each end of the interval
    while 2 * chances[beyond + 1] <= RISK:
        beyond += 1
    low, high = averages[beyond], averages[-1 - beyond]
    against = len(averages) - max(sum(one < 0 for one in averages), sum(one > 0 for one in averages))
    p = min(1.0, 2 * chances[against])
    most = math.expm1(max(-low, high))
    verdict: Verdict = "undecided"
    if most <= (TINY if p <= RISK else NEAR):
        verdict = "the same"
    elif p <= RISK:
        verdict = "less" if high < 0 else "more"
    confidence = 1 - (p if verdict in ("less", "more") else 2 * chances[beyond])
    return Paired(verdict, math.exp(median(averages)), math.exp(low), math.exp(high), confidence)


def _chances(rounds: int) -> list[float]:
    """For each sum of ranks, the probability of that sum or a lower one if every difference has either sign equally
    likely."""
    ways = [1]
    for rank in range(1, rounds + 1):
        more = [0] * rank + ways
        ways = [(ways[at] if at < len(ways) else 0) + more[at] for at in range(len(more))]
    out, below = [], 0
    for count in ways:
        below += count
        out.append(below / 2**rounds)
    return out
