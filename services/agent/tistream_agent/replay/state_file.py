"""Stores the cursor of a replay in a file. One process at a time may use it, and each write replaces the whole file."""

from __future__ import annotations

import fcntl
import os
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from pydantic import BaseModel, ConfigDict, ValidationError

from tistream.errors import InvalidRequest


class State(BaseModel):
    """The content of the file. `source` names the changes that are replayed. `target_cluster_id` is the id of the
    target cluster, from its PD. All changes up to `cursor` are in the target."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    version: int = 1
    source: str
    target_cluster_id: str
    cursor: str
    resolved_ts: str


@dataclass(slots=True)
class StateFile:
    """Locks the file of a replay for a `with` block. Raises InvalidRequest if another process has locked it."""

    path: Path
    _lock: int = -1

    def __enter__(self) -> StateFile:
        lock = self.path.with_name(f"{self.path.name}.lock")
        try:
            self._lock = os.open(lock, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise InvalidRequest(
                f"{lock} cannot be opened: {error.strerror}; name a file in a folder that can be written"
            ) from error
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(self._lock)
            raise InvalidRequest(f"{self.path} is held by another replay: end it, or name another file") from error
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        os.close(self._lock)

    def read(self, source: str, target_cluster_id: int) -> State | None:
        """Read the stored state. Returns None if nothing is stored yet. Raises InvalidRequest if the file cannot be
        read, is malformed or of another version, or belongs to another source or target."""
        try:
            text = self.path.read_text("utf-8")
        except FileNotFoundError:
            return None
        except (OSError, UnicodeError) as error:
            raise InvalidRequest(f"{self.path} cannot be read: {error}") from error
        try:
            state = State.model_validate_json(text)
        except ValidationError as error:
            raise InvalidRequest(
                f"{self.path} is no position of a replay: {error.errors()[0]['msg']}; name another file"
            ) from error
        if state.version != 1:
            raise InvalidRequest(
                f"{self.path} has version {state.version}; this program knows 1: run the one that wrote it"
            )
        wanted = (source, str(target_cluster_id))
        if (state.source, state.target_cluster_id) != wanted:
            raise InvalidRequest(
                f"{self.path} is of {state.source} into cluster {state.target_cluster_id}, not of {source} into "
                f"cluster {target_cluster_id}: name another file"
            )
        return state

    def write(self, state: State) -> None:
        """Replace the stored state. It is durable when the call returns."""
        temporary = self.path.with_name(f"{self.path.name}.new")
        with temporary.open("w", encoding="utf-8") as out:
            out.write(state.model_dump_json())
            out.flush()
            os.fsync(out.fileno())
        temporary.replace(self.path)
        folder = os.open(self.path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
