"""Writes the transactions of a feed into files, each row once.

Rows are collected until their window ends (file_windows.py). Then their data files are put, then `metadata` with the
progress, which is the commit and which only the newest holder can put, then the index files, by which readers find the
data files. At last `metadata` shows readers the checkpoint. A holder that is killed before the commit has left files
that no index file names; the next holder puts the same bytes under the same names.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from tistream.clock import Clock
from tistream.read.cursor import Place, Position
from tistream.schema.visible import Name, TableVersion
from tistream_changefeed.core import progress as progresses
from tistream_changefeed.core.failure import failed, fenced
from tistream_changefeed.core.progress import Progress
from tistream_changefeed.core.shard import Order, Transaction
from tistream_changefeed.fingerprints.fingerprint import Fingerprints, summed
from tistream_changefeed.fingerprints.windows import SentWindow, newest
from tistream_changefeed.protocols.messages import ClaimFile
from tistream_changefeed.protocols.table_facts import table_facts
from tistream_changefeed.sinks.left_out import LetterMark
from tistream_changefeed.sinks.storage import metadata
from tistream_changefeed.sinks.storage.file_windows import FileWindows
from tistream_changefeed.sinks.storage.metadata import Metadata, manifest
from tistream_changefeed.sinks.storage.open_files import EndedFile, OpenFiles
from tistream_changefeed.sinks.storage.paths import (
    METADATA,
    WINDOWS,
    letter_key,
    manifest_key,
    table_directory,
    window_directory,
)
from tistream_changefeed.sinks.storage.placed_rows import PlacedRows
from tistream_changefeed.sinks.storage.root import SinkRoot
from tistream_changefeed.sinks.storage.schema_file import SchemaFile
from tistream_changefeed.sinks.storage.target import StorageTarget


class StorageSink:
    """One holder's access to the files of a feed. Every call may raise FeedFailed."""

    def __init__(self, target: StorageTarget, root: SinkRoot, order: Order, clock: Clock) -> None:
        self._target, self._root, self._order, self._clock = target, root, order, clock
        self._windows = FileWindows(target.flush_interval_ms, order.end_ts)
        self._open = OpenFiles(target.file_bytes)
        self._shown_ts = self._window_end = 0
        self._end: int | None = None  # of the window that has rows which are not committed
        self._since_ms = 0  # when the first of them came
        self._held: Progress | None = None  # after these rows
        self._committed: Progress | None = None  # by an earlier holder, until this one commits
        self._tables: Fingerprints = {}  # of the rows that are not committed
        self._sent: Sequence[SentWindow] = ()  # the newest windows that were committed
        self._numbers: dict[str, int] = {}  # of the last data file, by directory
        self._touched: set[str] = set()  # directories with data files that are not committed
        self._known: dict[Name, list[tuple[int, int]]] = {}  # version and checksum of the schema files, by table
        self._current: dict[Name, tuple[TableVersion, int]] = {}  # the version whose directory is written, by table

    @property
    def where(self) -> str:
        """The name of the sink in errors."""
        return self._root.where

    @property
    def waits(self) -> bool:
        """Implement Sink.waits: rows wait for the end of their window."""
        return self._end is not None

    def open(self) -> tuple[Progress | None, Mapping[str, Mapping[int, int]]]:
        """Implement Sink.open: read the progress; None if the feed has not begun. Writes the index files of the newest
        transaction (of layout=window its manifest) if they are missing, because an earlier holder may have died before
        that. The second result is empty, because files have no offsets. Earlier holders are fenced by the first
        `write`, not here. Raises FeedFailed if a newer holder has written, or a file is missing."""
        found = self._stored()
        if found is None:
            return None, {}
        progresses.taken_over(found.progress, self._order.fence, self._order.start_ts, self.where)
        self._shown_ts, self._window_end, self._committed = found.shown_ts, found.window_end, found.progress
        self._sent = found.windows
        self._check_there(found.files)
        self._name_files(found.files, found.progress)
        return found.progress, {}

    def partitions(self, topic: str) -> int:  # noqa: ARG002
        """Implement Sink.partitions: files have no partitions."""
        return 1

    def topics(self) -> Mapping[str, int]:
        """Implement Sink.topics: none, because there are no resolved messages."""
        return {}

    def shards(self) -> Mapping[int, Progress]:
        """Implement Sink.shards: a feed into files has no other shard."""
        return {}

    def keep(self, claims: Sequence[ClaimFile]) -> None:
        """Implement Sink.keep: there are no such files."""
        assert not claims

    @property
    def held_by(self) -> None:
        """Implement Sink.held_by: an error says what a call waits for."""

    def write(self, transaction: Transaction) -> bool:
        """Implement Sink.write: collect rows, or flush them if their window ends here. A DDL ends every window."""
        rows, progress = transaction.rows, transaction.progress
        if len(rows):
            assert isinstance(rows, PlacedRows)
            self._collect(rows, progress)
        schemas = [mark for mark in transaction.marks if isinstance(mark, SchemaFile)]
        for mark in transaction.marks:
            if isinstance(mark, LetterMark):  # ends no window: files depend on the rows alone
                self._root.put_file(letter_key(mark.commit_ts, mark.value), mark.value, self._beaten)
        if schemas and self._end is not None:
            assert self._held is not None
            self._flush(self._held)
        for schema in schemas:
            self._root.put_file(schema.key, schema.body, self._beaten)
            self._known.pop(schema.name, None)
            self._current.pop(schema.name, None)
        if self._end is None:
            self._commit(progress)
            return True
        if not len(rows) and self._clock.monotonic_ms() - self._since_ms >= self._windows.patience_ms:
            self._shorten(progress.at)
        if progress.at.low_ts < self._end:
            return False
        self._flush(progress)
        return True

    def close(self) -> None:
        """Forget the rows that are not committed."""
        self._open, self._end, self._tables = OpenFiles(self._target.file_bytes), None, {}

    # ---- rows

    def _collect(self, rows: PlacedRows, progress: Progress) -> None:
        """Add rows to the window that they belong to. Windows that end before one of them are flushed. `progress` is
        that after the rows."""
        start = 0
        while start < len(rows):
            first_ts = int(rows.commit_ts[start])
            if self._end is not None and first_ts > self._end:
                assert self._held is not None
                self._flush(self._held)
            if self._end is None:
                self._end = self._windows.end(first_ts, self._window_end)
                self._since_ms = self._clock.monotonic_ms()
            end = int(np.searchsorted(rows.commit_ts, self._end, side="right"))
            self._add(rows.between(start, end))
            rest = rows.between(end, len(rows))
            self._held = progress if not len(rest) else _before(progress, rest, Position(self._end))
            start = end

    def _add(self, rows: PlacedRows) -> None:
        self._tables = summed((self._tables, rows.fingerprints()))
        directories = [self._directory(rows, number) for number in range(len(rows.places))]
        for ended in self._open.add(rows, directories):
            self._put(ended)

    def _shorten(self, at: Position) -> None:
        """End the window at the position `at`, up to which everything was read, because the tenant does not advance.
        The end is stored before the files are put, so that a worker that takes over ends its files there too."""
        if self._end is not None and at.place is Place.DONE and at.commit_ts < self._end:
            assert self._committed is not None
            self._end = self._window_end = at.commit_ts
            self._put_metadata(self._committed, {})

    def _directory(self, rows: PlacedRows, number: int) -> str:
        place = rows.places[number]
        if not (rows.place == number).any():
            return ""
        version = self._version(place.version, rows.first_ts(number))
        layout, directory = self._target.layout, table_directory(*place.version.name, version)
        if layout.by_window:
            before = self._committed
            assert before is not None
            window = window_directory(before.at.low_ts, self._order.fence.generation, before.rows)
            directory = f"{window}/{directory}"
        return layout.directory(directory, place.partition, place.date)

    def _version(self, table: TableVersion, commit_ts: int) -> int:
        """The number of the version of a table whose directory gets its rows: that of the newest schema file below
        `commit_ts`, the commit_ts of the first of them. If that file is missing, or is that of another definition
        because the feed leaves out the DDL, a schema file without a statement is put."""
        current = self._current.get(table.name)
        if current is not None and current[0] == table:
            return current[1]
        definition = self._target.definition(table)
        if table.name not in self._known:
            self._known[table.name] = self._root.schema_versions(*table.name)
        before = [one for one in self._known[table.name] if one[0] < commit_ts]
        if before and before[-1][1] == definition.checksum:
            version = before[-1][0]
        else:
            updated_ts = table_facts(table).update_ts
            version = updated_ts if (before[-1][0] if before else 0) < updated_ts < commit_ts else commit_ts - 1
            file = definition.file(version)
            self._root.put_file(file.key, file.body, self._beaten)
            del self._known[table.name]
        self._current[table.name] = table, version
        return version

    def _put(self, ended: EndedFile) -> None:
        directory, rows = ended
        if directory not in self._numbers:
            first = self._target.layout.by_window  # the directory has files of this window alone
            self._numbers[directory] = 0 if first else self._root.last_number(directory, self._beaten)
        number = self._numbers[directory] + 1
        self._root.put_file(
            self._target.layout.data_key(directory, number), self._target.format.body(rows), self._beaten
        )
        self._numbers[directory] = number
        self._touched.add(directory)

    # ---- commits

    def _flush(self, progress: Progress) -> None:
        """Put the rows that were collected into files, and commit them with `progress`."""
        for ended in self._open.take():
            self._put(ended)
        files = {directory: self._numbers[directory] for directory in sorted(self._touched)}
        after_ts = self._order.start_ts if self._committed is None else self._committed.at.low_ts
        self._sent = newest([*self._sent, SentWindow(after_ts, progress.at.commit_ts, self._tables)])
        self._put_metadata(progress, files)
        self._name_files(files, progress)
        self._end, self._touched, self._tables = None, set(), {}
        if self._target.layout.by_window:
            self._numbers.clear()  # the directories of the next window are others
        self._commit(progress)

    def _name_files(self, files: Mapping[str, int], progress: Progress) -> None:
        """Name the data files of a window for readers, once it is committed with `progress`. `files`: the number of the
        last one of each directory."""
        layout = self._target.layout
        if not any(directory.startswith(f"{WINDOWS}/") for directory in files):
            for directory, number in files.items():
                self._root.put_index(directory, number, self._beaten)
        else:
            window = "/".join(next(iter(files)).split("/")[:2])
            keys = [layout.data_key(one, number + 1) for one, last in files.items() for number in range(last)]
            content = manifest(progress.at.low_ts, [key.removeprefix(f"{window}/") for key in keys])
            self._root.put_file(manifest_key(window), content, self._beaten)

    def _check_there(self, files: Mapping[str, int]) -> None:
        """Check that files that an earlier holder has put, and may not have named, have the names that this one would
        write into index files. Raises FeedFailed if the feed was configured otherwise."""
        for directory, number in files.items():
            key = self._target.layout.data_key(directory, number)
            if self._root.content(key) is None:
                raise failed(
                    "sink",
                    f"{self.where}/{key}",
                    "this file of the newest window is missing: if protocol or file-index-digit was changed, change it "
                    "back, resume the changefeed, and change it again once the checkpoint has advanced",
                )

    def _commit(self, progress: Progress) -> None:
        """Commit a progress whose rows are in files that index files name, and show readers its checkpoint."""
        self._shown_ts = max(self._shown_ts, progress.checkpoint_ts)
        self._put_metadata(progress, {})
        self._committed = progress

    def _put_metadata(self, progress: Progress, files: Mapping[str, int]) -> None:
        at_ts = progress.at.low_ts
        moved_back = self._committed is not None and progress.at < self._committed.at
        if at_ts >= self._window_end or moved_back:
            self._window_end = self._windows.next_end(at_ts, self._clock.now_ms())
        if moved_back:
            self._sent = ()
        found = Metadata(self._shown_ts, progress, self._window_end, files, self._sent)
        self._root.put_metadata(found.encode(self._order.tenant, self._order.feed_id), self._beaten)

    def _stored(self) -> Metadata | None:
        content = self._root.metadata()
        where = f"{self.where}/{METADATA}"
        return None if content is None else metadata.decode(content, self._order.tenant, self._order.feed_id, where)

    def _beaten(self) -> None:
        """Check `metadata` after another writer has replaced an object that only the holder of the shard replaces.
        Raises FeedFailed, unless `metadata` is as this holder has left it. Two holders may have the same epoch, if the
        meta database was restored from a backup."""
        left = self._root.known
        found = self._stored()
        where = f"{self.where}/{METADATA}"
        if found is None:
            raise failed("sink", where, "it was deleted: resume the changefeed with a checkpoint_ts")
        progresses.taken_over(found.progress, self._order.fence, self._order.start_ts, where)
        if self._root.known != left:
            raise fenced(where, "another holder has replaced it")


def _before(progress: Progress, rest: PlacedRows, at: Position) -> Progress:
    """The progress at the position `at`, before the rows `rest`, after which it is `progress`."""
    return replace(progress, at=at, rows=progress.rows - len(rest), bytes=progress.bytes - int(rest.sizes.sum()))
