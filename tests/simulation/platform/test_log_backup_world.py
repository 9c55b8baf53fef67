"""Seeds of a platform whose tenant reads a recorded log backup, with two ingest processes, under faults."""

from __future__ import annotations

import pytest

from support import log_backup
from support.cut_set import commit_timestamps, cut
from support.effort import seeds
from support.pull_world import committed
from support.sim import log_world


@pytest.mark.parametrize("seed", seeds(1, 20))
def test_a_log_backup_is_read_exactly_once_whatever_happens(seed: int) -> None:
    world = log_world.run(seed, log_backup.load("everything"))
    assert world.chaos.told, "something has befallen it"


@pytest.mark.parametrize("seed", seeds(1, 20))
def test_a_log_backup_and_a_full_backup_are_one_history_whatever_happens(seed: int) -> None:
    """Each second tenant begins at the commit that removes the `m` key of a table, whose rows TiDB deletes later."""
    stamps = commit_timestamps("everything")
    begins = _truncated("everything") if seed % 2 else stamps[len(stamps) * 7 // 10]
    made = cut("everything", begins)
    world = log_world.run(seed, log_backup.load("everything"), made)
    assert world.chaos.told, "something has befallen it"


def _truncated(name: str) -> int:
    """The commit_ts of TRUNCATE TABLE busy."""
    history = committed(name)[1]
    events = history.ddl_events(history.snapshot_ts, history.resolved_ts)
    return next(event.commit_ts for event in events if event.query == "truncate table busy")
