"""Which failures of a transaction are met by doing it again, and how soon. Pure.

A transaction is done again only where the database has undone it for sure: it says so itself, or the connection was
lost before COMMIT was sent (a server commits nothing that it was not told to). Where the answer to COMMIT was lost
nobody knows; then the caller is told, and reads what has become of it.
"""

from __future__ import annotations

DEADLOCK = 1213  # of a cluster also: another of its servers has changed the same, found at COMMIT
LOCK_WAIT = 1205
# Of a server that is a replica now, or shuts down: it answers, and no write of ours will ever succeed there.
_CANNOT_WRITE = frozenset({1290, 1792, 1836, 1053})

DEADLOCKS_MAX = 5  # attempts in all
OTHERS_MAX = 2
PAUSE_S = 0.02
PAUSE_MAX_S = 0.2


def code_of(error: BaseException | None) -> int | None:
    """MySQL's number of an error; None if it has none, or is of another database."""
    code = error.args[0] if error is not None and error.args else None
    return code if isinstance(code, int) else None


def cannot_write(code: int | None) -> bool:
    """Whether this server takes no writes any more, though it answers."""
    return code in _CANNOT_WRITE


def attempts_max(code: int | None, *, lost: bool, committing: bool) -> int:
    """How often a transaction is tried in all, when it fails so; 1: it is not tried again.

    lost: the connection is of no use any more. committing: COMMIT may have been sent.
    """
    if code == DEADLOCK:
        return DEADLOCKS_MAX
    if committing:
        return 1
    return OTHERS_MAX if lost or code == LOCK_WAIT else 1


def pause_s(attempt: int, chance: float) -> float:
    """Before the attempt that follows number `attempt` (from 1), which has failed. `chance`: 0 to 1, drawn anew each
    time, so that two that were in each other's way do not meet again."""
    return min(PAUSE_S * 2.0 ** (attempt - 1), PAUSE_MAX_S) * (0.5 + chance)
