"""Decides how long a DDL waits for the sessions that use its table. Pure."""

from __future__ import annotations

from dataclasses import dataclass

# states of a DDL that has not got its lock yet, in lower case
_BEFORE_LOCK = frozenset(
    {
        "",
        "after create",
        "after opening tables",
        "checking permissions",
        "creating table",
        "executing hook on transaction begin.",
        "init",
        "opening tables",
        "starting",
        "system lock",
    }
)


@dataclass(slots=True)
class LockWait:
    """Decides how long a DDL of a large table waits for a lock: for at most `looks_max` looks at its session at which
    it waits. A DDL that was seen at work is not ended, because its work would be undone."""

    looks_max: int
    _waited: int = 0
    _worked: bool = False

    def seen(self, state: str | None) -> bool:
        """Record the state of the session, as the list of processes has it; None if the session is not executing the
        DDL. Returns whether it waits for a lock."""
        waits = state is not None and state.startswith("Waiting for") and state.endswith("lock")
        self._waited += waits
        self._worked = self._worked or not (state is None or waits or state.lower() in _BEFORE_LOCK)
        return waits

    @property
    def over(self) -> bool:
        """Whether the DDL has waited for so long that it must be ended."""
        return not self._worked and self._waited >= self.looks_max
