"""Undo of a golden set's transactions in memory, as of any ts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from support.points_world import PointWorld
from tistream.read.cursor import Scope
from tistream.read.scan import Budget
from tistream_api.points.transaction import Transaction
from tistream_api.undo.changed_rows import ChangedRows
from tistream_api.undo.undo_answer import UndoAnswer
from tistream_api.undo.undo_state import undo_at


def undo(one: PointWorld, *start_ts: int, ts: int | None = None, where: Mapping[str, Any] | None = None) -> UndoAnswer:
    """The undo of these transactions as of `ts`; as of the last one's commit_ts if it is None."""
    changed = ChangedRows(where)
    commits = []
    for start in start_ts:
        transaction = Transaction(
            Scope(one.world.tenant), start, one.world.snapshot_ts, one.world.end_ts, one.world.source,
            one.reads.reader, Budget(), lambda *_: None, lambda _: None,
        )  # fmt: skip
        commits.append(transaction.commit_ts())
        for events in transaction.events(commits[-1]):
            changed.add(events)
    changed.choose()
    return undo_at(one.world.source, one.reads, changed, max(commits) if ts is None else ts)
