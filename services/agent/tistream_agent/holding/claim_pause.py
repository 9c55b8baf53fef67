"""How long a claim waits when processes take a territory from each other in turn. Pure.

Two agents that serve one territory by their own settings fence each other each time a supervisor starts the loser
again. Every claim costs TiKV a scan, so the pause before a claim doubles with the number of recent ones. The chain
states that number, because a process that was fenced keeps nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

RECENT_MS = 600_000
PAUSE_MAX_S = 60.0
SILENT_S = 5.0  # a chain that does not grow for this time has no holder: the pause ends


def pause_s(claims: int) -> float:
    """Seconds before a claim. `claims`: those within RECENT_MS, of which one is a take-over or a restart."""
    return 0.0 if claims < 2 else min(PAUSE_MAX_S, 2.0 ** min(claims - 2, 6))


def claims(names: Sequence[str], nonce_of: Callable[[str], str]) -> int:
    """The number of claims among files of a chain, which are in order and without gaps. The first file counts as none.

    A claim draws a nonce, and all files until the next claim have it. So two files with one nonce have none between
    them, and about log2(files) files are read for each claim.
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
