"""Reads the truth file of `tistream verify` while it grows. An invalid truth file is not an error of the platform, so
it is not reported as a violation."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

from tistream.clock import Clock
from tistream_cli.verify.readers import Watched
from tistream_client.cli.errors import CliError
from tistream_verify.fingerprint import TruthLine, TruthRun

_POLL_SECONDS = 0.2
_SHOWN = 80


class TruthRefused(CliError):
    """Raised if the file is not a truth file, or belongs to another tenant or run."""


class TruthFile:
    """The truth file that is read. `lines` is the number of lines that were read so far, and `run` is the run that the
    file names."""

    def __init__(self, path: Path, cluster: str, tenant: str) -> None:
        self.lines = 0
        self.run: TruthRun | None = None
        self._path, self._cluster, self._tenant = path, cluster, tenant
        self._read = 0  # bytes read so far
        self._ts = -1

    def check_beginning(self) -> None:
        """Check the first line, if it has been written, without consuming it. Raises TruthRefused if the path cannot be
        a truth file, or if the line is malformed or belongs to another tenant."""
        if not self._path.absolute().parent.is_dir():
            raise TruthRefused(f"--truth {self._path}: its folder does not exist")
        if self._path.exists() and not self._path.is_file():
            raise TruthRefused(
                f"--truth {self._path} is not a regular file: name the file that `tistream simulate --truth` writes"
            )
        for line in self._whole_lines(only_first=True):
            self._parsed(line, 1)

    def new_lines(self) -> Iterator[TruthLine]:
        """Yield the lines that were written since the last call. Raises TruthRefused if the file cannot be read or was
        rewritten, or if a line is malformed, out of order, or of another tenant or run."""
        for text in self._whole_lines():
            line = self._parsed(text, self.lines + 1)
            if line.run is not None and self.run is not None and line.run != self.run:
                raise TruthRefused(
                    f"--truth {self._path} has a second run from line {self.lines + 1} on: use a new file for each run"
                )
            if line.ts <= self._ts:
                raise TruthRefused(
                    f"--truth {self._path} goes back in time at line {self.lines + 1}: use a new file for each run"
                )
            self.run, self._ts = line.run or self.run, line.ts
            self.lines += 1
            yield line

    def _whole_lines(self, *, only_first: bool = False) -> list[bytes]:
        try:
            if not self._path.exists():
                return []
            with self._path.open("rb") as file:
                if self._path.stat().st_size < self._read:
                    raise TruthRefused(
                        f"--truth {self._path} was rewritten while it was read: use a new file for each run"
                    )
                file.seek(self._read)
                text = file.readline() if only_first else file.read()
        except OSError as error:
            raise TruthRefused(f"--truth {self._path} cannot be read: {error.strerror}") from error
        whole = text[: text.rfind(b"\n") + 1]
        if not only_first:
            self._read += len(whole)
        return whole.splitlines()

    def _parsed(self, text: bytes, number: int) -> TruthLine:
        try:
            line = TruthLine.parse(text)
        except ValueError as error:
            raise TruthRefused(
                f"--truth {self._path}: line {number} is not a truth line of `tistream simulate --truth`: "
                f"{text[:_SHOWN].decode(errors='replace')!r}"
            ) from error
        run = line.run
        if run is not None and (run.cluster, run.tenant) != (self._cluster, self._tenant):
            found, own = f"{run.cluster}/{run.tenant}", f"{self._cluster}/{self._tenant}"
            raise TruthRefused(
                f"--truth {self._path} is of tenant {found}, not of {own}: name the truth of this tenant"
            )
        return line


class TruthReader:
    """Reads the truth file in a thread, while it grows. `refused`: the reason why the file was rejected."""

    def __init__(self, path: Path, watched: Watched, clock: Clock, *, from_beginning: bool) -> None:
        self.began_ms = self.grown_ms = clock.monotonic_ms()
        self.refused: str | None = None
        self.path = path
        self.ended = threading.Event()
        self._file = TruthFile(path, watched.cluster, watched.tenant)
        self._watched, self._clock, self._from_beginning = watched, clock, from_beginning
        self._done = threading.Event()

    def run(self) -> None:
        """Read until `finish` is called and the whole file has been read."""
        try:
            last = False
            while not last:
                last = self._done.wait(_POLL_SECONDS)
                self._take_new()
        except TruthRefused as refused:
            self.refused = str(refused)
        finally:
            self.ended.set()

    def finish(self) -> None:
        """Declare that the file will not grow any more. `ended` is set once the whole file has been read."""
        self._done.set()

    def missing(self) -> str | None:
        """The message for a run in which no truth line has been read yet; None once one has been read."""
        if self._watched.truth_lines:
            return None
        return f"no truth line in {self.path} yet" if self.path.exists() else f"no truth file {self.path}"

    def _take_new(self) -> None:
        for line in self._file.new_lines():
            self._check_run(line)
            with self._watched.lock:
                self._watched.validators.truth(line)
                self._watched.truth_ts = line.ts
                self._watched.truth_lines += 1
            self.grown_ms = self._clock.monotonic_ms()

    def _check_run(self, line: TruthLine) -> None:
        """Check that the truth does not begin above the tenant's first ts; otherwise it belongs to another run. Raises
        TruthRefused."""
        begin_ts, run = self._watched.start_ts, line.run
        if self._from_beginning and run is not None and 0 < begin_ts < run.snapshot_ts:
            reason = f"it begins at {run.snapshot_ts}, the tenant at {begin_ts}"
            raise TruthRefused(f"--truth {self.path} is of another run ({reason}): name the truth of this run")
