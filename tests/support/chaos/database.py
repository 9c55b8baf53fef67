"""The meta database of `tistream up`: copies of it, taken while it is used, and one of them in its place again."""

from __future__ import annotations

import contextlib
import shutil
import sqlite3
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

EVERY_S = 5.0  # as a managed database that can be restored to any point in time, to within so much


@dataclass(frozen=True, slots=True)
class Copy:
    """A copy of the whole meta database; `at` is monotonic time."""

    at: float
    path: Path

    def counters(self) -> dict[str, int]:
        """The rows of the table `counters` in the copy."""
        return counters(self.path)


@dataclass
class Backups:
    """Copies of `database`, in `folder`."""

    database: Path
    folder: Path
    now: Callable[[], float] = time.monotonic
    _copies: list[Copy] = field(default_factory=list)

    def take_when_due(self) -> None:
        """Make a copy, if the last one is old enough."""
        if not self._copies or self.now() - self._copies[-1].at >= EVERY_S:
            self.take()

    def take(self) -> Copy:
        """Make a copy by SQLite's online backup: it has all transactions committed before, and none under way."""
        self.folder.mkdir(exist_ok=True)
        made = Copy(self.now(), self.folder / f"{len(self._copies):04d}.db")
        source, target = sqlite3.connect(self.database), sqlite3.connect(made.path)
        with contextlib.closing(source), contextlib.closing(target):
            source.backup(target)
        self._copies.append(made)
        return made

    def of(self, age_s: float) -> Copy | None:
        """The newest copy that is at least this old; None without one."""
        old = [one for one in self._copies if self.now() - one.at >= age_s]
        return old[-1] if old else None

    def restore(self, copy: Copy) -> None:
        """Put a copy in the place of the database. No process may have the database open."""
        for name in ("-wal", "-shm"):  # what the copy does not know of
            self.database.with_name(self.database.name + name).unlink(missing_ok=True)
        shutil.copyfile(copy.path, self.database)


def counters(database: Path) -> dict[str, int]:
    """The rows of the table `counters` of a database that may be in use."""
    with contextlib.closing(sqlite3.connect(database)) as connection:
        return dict(connection.execute("SELECT name, value FROM counters"))
