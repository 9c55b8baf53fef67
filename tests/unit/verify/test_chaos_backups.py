"""The meta database of a chaos run comes back as it was some time ago."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

from support.chaos.database import EVERY_S, Backups, counters
from support.chaos.plan import RESTORED


def test_a_copy_of_a_minute_ago_is_what_was_committed_then(tmp_path: Path) -> None:
    """Though somebody goes on writing, and what was written last is not in the file yet."""
    now = 0.0
    backups = Backups(tmp_path / "meta.db", tmp_path / "copies", lambda: now)
    with closing(sqlite3.connect(backups.database, isolation_level=None)) as writer:
        writer.execute("PRAGMA journal_mode=WAL")
        writer.execute("CREATE TABLE counters (name TEXT PRIMARY KEY, value INTEGER)")
        writer.execute("INSERT INTO counters VALUES ('route_version', 0)")
        assert backups.of(RESTORED.seconds) is None
        for number in range(40):
            now = number * EVERY_S / 2
            writer.execute("UPDATE counters SET value = ?", [number])
            backups.take_when_due()
        writer.execute("BEGIN")
        writer.execute("UPDATE counters SET value = -1")
        backups.take_when_due()
    copy = backups.of(RESTORED.seconds)
    assert copy is not None
    assert RESTORED.seconds <= now - copy.at < RESTORED.seconds + EVERY_S
    assert copy.counters() == {"route_version": 2 * copy.at / EVERY_S}
    backups.restore(copy)
    assert counters(backups.database) == copy.counters()
    assert str(RESTORED) == "restore database of 60 s ago"
