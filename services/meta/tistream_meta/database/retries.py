"""Decides which failed transactions are retried, and after which pause. Pure.

A transaction is retried only if the database has surely rolled it back: the error says so, or the connection was lost
before COMMIT was sent (a server commits nothing without it). If the answer to COMMIT was lost, the outcome is unknown:
the caller gets an error, and has to read back whether the transaction was committed.
"""

from __future__ import annotations

DEADLOCK = 1213  # in a cluster also: another server has changed the same rows, found at COMMIT
LOCK_WAIT = 1205
# Errors of a server that is now a replica, or shuts down: it answers, and no write will ever succeed there.
_CANNOT_WRITE = frozenset({1290, 1792, 1836, 1053})

DEADLOCKS_MAX = 5  # attempts in all
OTHERS_MAX = 2
PAUSE_S = 0.02
PAUSE_MAX_S = 0.2


def code_of(error: BaseException | None) -> int | None:
    """MySQL's number of an error: the first argument of the driver's exception. None if that is not a number, as with
    SQLite, or if `error` is None."""
    code = error.args[0] if error is not None and error.args else None
    return code if isinstance(code, int) else None


def cannot_write(code: int | None) -> bool:
    """Whether the server answers but does not accept writes any more."""
    return code in _CANNOT_WRITE


def attempts_max(code: int | None, *, lost: bool, committing: bool) -> int:
    """How often a transaction that fails with this error is attempted in total; 1 means no retry. `lost`: the
    connection cannot be used any more. `committing`: COMMIT may have been sent."""
    if code == DEADLOCK:
        return DEADLOCKS_MAX
    if committing:
        return 1
    return OTHERS_MAX if lost or code == LOCK_WAIT else 1


def pause_s(attempt: int, chance: float) -> float:
    """Seconds to wait after attempt number `attempt` (from 1) has failed. `chance` is a random number from 0 to 1; it
    spreads the pauses, so that two transactions that collided do not collide again."""
    return min(PAUSE_S * 2.0 ** (attempt - 1), PAUSE_MAX_S) * (0.5 + chance)
