"""RawKV: a value without its expiry, and a position that is stored too early."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from mutants.mutant import Function, mutant


@mutant("tistream_sorter:with_expiry", invariants=(7,), catchers=("test_the_pool_has_every_raw_change_once",))
def expiry_is_lost(original: Function) -> Function:
    """A value that expires is stored as one that lives for ever."""
    return lambda changes: changes.drop_columns(["expire_ts"])


@mutant(
    "tistream_agent:Replayer._flush",
    invariants=(7,),
    catchers=("test_a_replay_continues_at_its_position_after_errors",),
)
def position_is_stored_before_the_changes(original: Function) -> Function:
    """A replay stores its cursor, though the changes before it are not written."""
    held: list[Any] = []

    def broken(self: Any, writes: Any) -> Iterator[None] | None:
        held.append(writes)
        if len(held) > 1:
            original(self, held.pop(0))
        return None

    return broken
