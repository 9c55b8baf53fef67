"""Computes how long an agent waits before it claims a territory (takes over its span of keys), if agents take it from
each other in turn.

Pure. If two agents have the same territory in their settings, each fences the other one whenever a supervisor restarts
it. Every claim costs TiKV a scan, so the pause before a claim doubles with the number of recent ones. The claims are
counted in the chain's files, because a process that was restarted remembers nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

RECENT_MS = 600_000
PAUSE_MAX_S = 60.0
ERROR_PAUSE_MAX_S = 300.0
SILENT_S = 5.0  # a chain that does not grow for this time has no holder: the pause ends


def pause_s(claims: int) -> float:
    """The pause before a claim, in seconds. `claims` is the number of claims within RECENT_MS; one claim is a normal
    restart or take-over, and needs no pause."""
    return 0.0 if claims < 2 else min(PAUSE_MAX_S, 2.0 ** min(claims - 2, 6))


def after_error_s(before_s: float, ran_s: float) -> float:
    """The pause after an unexpected error, in seconds: it doubles from error to error, because each time TiKV scans all
    regions of the territory. `before_s` is the previous pause, 0 if there was none; `ran_s`: how long the territory had
    run when the error came. After a run of ERROR_PAUSE_MAX_S the pauses begin anew."""
    return 1.0 if not before_s or ran_s >= ERROR_PAUSE_MAX_S else min(2 * before_s, ERROR_PAUSE_MAX_S)


def count_claims(names: Sequence[str], nonce_of: Callable[[str], str]) -> int:
    """Count the claims among the files `names` of a chain, which are in order and without gaps.

    `nonce_of` reads the nonce of a file. The first file does not count as a claim. Each claim draws a new nonce, which
    all files until the next claim have. So there is no claim between two files with the same nonce, and about
    log2(files) files are read for each claim.
    """
    if len(names) < 2:
        return 0
    known: dict[int, str] = {}

    def nonce(at: int) -> str:
        if at not in known:
            known[at] = nonce_of(names[at])
        return known[at]

    def between(low: int, high: int) -> int:
        if nonce(low) == nonce(high):
            return 0
        if high - low == 1:
            return 1
        middle = (low + high) // 2
        return between(low, middle) + between(middle, high)

    return between(0, len(names) - 1)
