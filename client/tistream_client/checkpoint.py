"""Stores the cursor of a consumer: the interface of checkpoints, and one that uses a file."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Protocol

from tistream_client.core.errors import WrongArgument
from tistream_client.core.events import Position


class Checkpoint(Protocol):
    """The stored position of one consumer. Any class with these two methods is one."""

    def load(self) -> str | None:
        """The stored cursor; None before the first `save`."""

    def save(self, position: Position) -> None:
        """Store the cursor of a page whose events have been processed."""


class FileCheckpoint:
    """A cursor in a file, which is replaced in one step. A consumer that dies after it has processed a page and before
    `save` gets this page again, so it must be able to process an event twice. With `SqlCheckpoint` each event takes
    effect exactly once. The constructor raises WrongArgument if the file's directory does not exist."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = Path(path)
        if not self._path.parent.is_dir():
            raise WrongArgument("path", f"{str(path)!r} is in no directory that exists", '"orders.cursor"')

    def load(self) -> str | None:
        """The stored cursor; None if the file does not exist. Raises WrongArgument if the file is no checkpoint, or
        cannot be read."""
        try:
            stored = json.loads(self._path.read_text("utf-8"))
            return str(stored["cursor"])
        except FileNotFoundError:
            return None
        except (OSError, ValueError, KeyError, TypeError) as error:
            problem = f"{str(self._path)!r} cannot be read as a checkpoint ({error!r})"
            raise WrongArgument("path", problem, 'another file, such as "orders.cursor"') from None

    def save(self, position: Position) -> None:
        """Replace the file by one with the cursor of `position`. After a crash at any moment it has the old cursor or
        the new one. Raises OSError."""
        part = self._path.with_name(f"{self._path.name}.{os.getpid()}.part")
        stored = {"cursor": position.cursor, "resolved_ts": position.resolved_ts}
        with part.open("w", encoding="utf-8") as file:
            json.dump(stored, file)
            file.write("\n")
            file.flush()
            os.fsync(file.fileno())
        part.replace(self._path)
        directory = os.open(self._path.parent, os.O_RDONLY)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)
