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
    """A whole database; `at` is monotonic."""

    at: float
    path: Path

    def counters(self) -> dict[str, int]:
        """How far it has come: the table `counters`."""
        return counters(self.path)


@dataclass
class Backups:
    """Copies of `database`, in `folder`."""

    database: Path
    folder: Path
    now: Callable[[], float] = time.monotonic
    _copies: list[Copy] = field(default_factory=list)

    def take_when_due(self) -> None:
        """One more, if the last one is a while ago."""
        if not self._copies or self.now() - self._copies[-1].at >= EVERY_S:
            self.take()

    def take(self) -> Copy:
        """One more, by SQLite's online backup: all that was committed before, and nothing of what is under way."""
        self.folder.mkdir(exist_ok=True)
        made = Copy(self.now(), self.folder / f"{len(self._copies):04d}.db")
        source, target = sqlite3.connect(self.database), sqlite3.connect(made.path)
        with contextlib.closing(source), contextlib.closing(target):
            source.backup(target)
        self._copies.append(made)
        return made

    def of(self, age_s: float) -> Copy | None:
        """The newest one that is at least so old; None: there is none yet."""
        old = [one for one in self._copies if self.now() - one.at >= age_s]
        return old[-1] if old else None

    def restore(self, copy: Copy) -> None:
        """In the database's place. Nobody may have that open."""
        for name in ("-wal", "-shm"):  # what the copy does not know of
            self.database.with_name(self.database.name + name).unlink(missing_ok=True)
        shutil.copyfile(copy.path, self.database)


def counters(database: Path) -> dict[str, int]:
    """The table `counters` of one that may be in use."""
    with contextlib.closing(sqlite3.connect(database)) as connection:
        return dict(connection.execute("SELECT name, value FROM counters"))
