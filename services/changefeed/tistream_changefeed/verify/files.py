"""Compares the files of a feed with the tenant's rows, in a range of commit_ts. The rows are encoded again, as for
topics, and both sides are compared by hashes of events, so the memory does not depend on the size of rows."""

from __future__ import annotations

import heapq
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from tistream.arrays import Int64s, UInt64s
from tistream.clock import Clock
from tistream.errors import InvalidRequest, LimitReached, Unavailable
from tistream.model.ids import TenantKey
from tistream.model.ts import physical_ms
from tistream.read.chosen_scope import ChosenScope
from tistream.read.cursor import Place, Position
from tistream.read.scan import Budget
from tistream.schema.visible import Name, TableVersion, fold
from tistream.wire.bulk.feed_verify import DIFFERENCES_MAX, Difference, FeedVerification, VerifyFeed
from tistream_changefeed.config import parts
from tistream_changefeed.filters.column_selector import selector_of
from tistream_changefeed.fingerprints.windows import FoundParts, SentWindow, compared
from tistream_changefeed.hold.pool import Pool
from tistream_changefeed.rows.handle_key import handle_columns
from tistream_changefeed.sinks.storage import metadata
from tistream_changefeed.sinks.storage.paths import METADATA, WINDOWS, manifest_key
from tistream_changefeed.sinks.storage.placed_rows import PlacedRows
from tistream_changefeed.sinks.storage.root import SinkRoot
from tistream_changefeed.sinks.storage.storage_feed import StorageFeed
from tistream_changefeed.verify.compared_rows import ComparedRows, RowDifferences, counted, indexes_of
from tistream_changefeed.verify.file_events import FileEvents, FileReader, SentColumns
from tistream_changefeed.verify.message_heads import Unreadable
from tistream_changefeed.verify.windows import only, verified_windows

EVENTS_MAX = 2_000_000  # of one comparison, on both sides together
_WINDOW_MS = 600_000  # that a window spans, except one that ends late because nothing was committed


@dataclass(frozen=True, slots=True)
class _Piece:
    """Events of one directory: events that were found in a file, or events that the feed had to write. `file`: the key
    of the file; for events that the feed had to write, their directory. `index`: the number of each event in its file;
    None for events that the feed had to write. `events`: the hash of each event. `level`: the path of the directory
    below that of the table's version."""

    name: Name
    rows: pa.Table
    commit_ts: Int64s
    events: UInt64s
    level: str
    file: str
    columns: SentColumns
    index: Int64s | None = None

    @property
    def hashes(self) -> UInt64s:
        """The hash of each event together with its directory, so an event in a wrong directory differs."""
        return self.events ^ np.uint64(zlib.crc32(self.level.encode()) << 32)


@dataclass(slots=True)
class FileComparison:
    """Compares the files of one feed. `deadline_ms`: when the comparison is given up, in monotonic ms."""

    ask: VerifyFeed
    tenant: TenantKey
    feed: StorageFeed
    reader: FileReader
    root: SinkRoot
    view: Pool
    budget: Budget
    clock: Clock
    deadline_ms: int
    _columns: dict[Name, SentColumns] = field(default_factory=dict)  # of the newest version that was read

    def result(self) -> FeedVerification:
        """Compare the files with the tenant's rows, and return the differences. Raises LimitReached if the range has
        too many events, InvalidRequest if a row or a file cannot be decoded, Unavailable if the deadline passes,
        FeedFailed if the storage cannot be read, Gone if the rows are past retention."""
        found: dict[Name, ComparedRows] = {}
        there = FoundParts()
        count = 0
        for pieces in (self._wanted(), self._there()):
            for piece in pieces:
                of = found.setdefault(piece.name, ComparedRows())
                if piece.index is None:
                    of.wanted.append(piece.hashes)
                else:
                    of.found.append(piece.hashes)
                    there.add(piece.name, piece.commit_ts, piece.events)
                count += len(piece.events)
                if count > EVENTS_MAX:
                    raise LimitReached("the range has too many events: compare a shorter one, or one table")
        results = {name: one.result() for name, one in sorted(found.items())}
        differences = [] if all(one.equal for one in results.values()) else self._named(results)
        windows = compared(
            self._windows(), there.events(), self.ask.from_ts, self.ask.to_ts, only(self.ask.table, results)
        )
        return FeedVerification(
            changefeed_id=self.ask.changefeed_id,
            from_ts=str(self.ask.from_ts),
            to_ts=str(self.ask.to_ts),
            equal=not differences and not windows.differences,
            tables=[counted(name, one) for name, one in results.items()],
            differences=differences,
            of="files",
            windows=windows.count,
            window_differences=verified_windows(windows),
        )

    def _windows(self) -> Sequence[SentWindow]:
        """The newest windows that were committed, as `metadata` has them."""
        content = self.root.content(METADATA)
        where = f"{self.root.where}/{METADATA}"
        if content is None:
            return ()
        return metadata.decode(content, self.tenant, self.ask.changefeed_id, where).windows

    # ---- what the feed has to write

    def _wanted(self) -> Iterator[_Piece]:
        pipeline = self.feed.pipeline()
        scope = ChosenScope(self.tenant, choice=pipeline.tables)
        start = Position(self.ask.from_ts)
        for batch in pipeline.scan(self.view.source, scope, start, self.ask.to_ts, self.budget).batches():
            self._check_time("the pool was not read in time")
            if batch.barrier is not None:
                raise InvalidRequest(f"a row at commit_ts {batch.barrier.commit_ts} cannot be decoded")
            rows = batch.events.chosen(np.flatnonzero(batch.events.place != int(Place.DDL)))
            if len(rows):
                yield from self._placed(pipeline.rows(rows, lambda _: 1).messages)

    def _placed(self, placed: PlacedRows) -> Iterator[_Piece]:
        for number, rows, _ in placed.parts():
            of, mine = placed.places[number], placed.place == number
            if self._asked_for(of.version.name):
                columns = self._columns[of.version.name] = self._sent(of.version)
                level = self.feed.target.layout.directory("", of.partition, of.date)
                file = "/".join(of.version.name) + level
                stamps, hashes = placed.commit_ts[mine], placed.hashes[mine]
                yield _Piece(of.version.name, rows, stamps, hashes, level, file, columns)

    def _sent(self, version: TableVersion) -> SentColumns:
        selector = selector_of(parts.column_selectors(self.feed.config), version)
        sent = version.table.visible_columns if selector is None else selector.sent(version.table)
        return SentColumns(tuple(one.name for one in sent), tuple(one.name for one in handle_columns(version.table)))

    # ---- what is there

    def _there(self) -> Iterator[_Piece]:
        if self.feed.target.layout.by_window:
            yield from self._windows_there()
            return
        for database in self.root.names_below(""):
            for table in self.root.names_below(f"{database}/"):
                if not self._asked_for((database, table)):
                    continue
                for version in self.root.names_below(f"{database}/{table}/"):
                    if version.isdecimal() and int(version) <= self.ask.to_ts:
                        yield from self._below((database, table), f"{database}/{table}/{version}", "")

    def _below(self, name: Name, version: str, level: str) -> Iterator[_Piece]:
        """The events in the directory `level` of a version of a table, and in those below it."""
        directory = version + level
        number = self.root.named_number(directory)
        if number is not None:
            yield from self._files(name, directory, level, number)
        for one in self.root.names_below(f"{directory}/") if number is None or not level else ():
            if one != "meta" and self._may_have(one):
                yield from self._below(name, version, f"{level}/{one}")

    def _may_have(self, level: str) -> bool:
        """Whether a directory of this name may have events of the range: a date must lie in it."""
        layout = self.feed.target.layout
        first, last = layout.dated(self.ask.from_ts), layout.dated(self.ask.to_ts)
        return len(level) != len(first) or "-" not in level or first <= level <= last

    def _files(self, name: Name, directory: str, level: str, number: int) -> Iterator[_Piece]:
        """The events in the range, from the data files of `directory`, which have the numbers 1 to `number` (some may
        be missing): from the newest file back to the first one that only has events before the range, because within a
        directory files are in the order of commits. `level`: as in _Piece."""
        for at in range(number, 0, -1):
            key = self.feed.target.layout.data_key(directory, at)
            events = self._read(name, key)
            if events is None:
                continue
            if len(events.commit_ts) and int(events.commit_ts.max()) <= self.ask.from_ts:
                return
            yield from self._inside(name, level, key, events)

    def _windows_there(self) -> Iterator[_Piece]:
        """The events in the directories of windows, from the newest back to the first that only has older events. After
        the checkpoint was moved back, windows overlap, so those before it that may reach into the range are read too.
        """
        most_ms = max(_WINDOW_MS, 2 * self.feed.target.flush_interval_ms)
        older_ms, ended = physical_ms(self.ask.from_ts) - most_ms, False
        for window in sorted(self.root.names_below(f"{WINDOWS}/"), reverse=True):
            start = window.partition("-")[0]
            if not start.isdecimal() or int(start) >= self.ask.to_ts:
                continue
            if ended and physical_ms(int(start)) < older_ms:
                return
            self._check_time("the files were not read in time")
            content = self.root.content(manifest_key(f"{WINDOWS}/{window}"))
            if content is None:
                continue
            try:
                through_ts, files = metadata.files_of(content)
            except ValueError as error:
                raise InvalidRequest(f"{self.root.where}/{manifest_key(f'{WINDOWS}/{window}')}: {error}") from error
            if through_ts <= self.ask.from_ts:
                ended = True
                continue
            for file in files:
                database, table, _, *levels, _ = file.split("/")
                if self._asked_for((database, table)):
                    key = f"{WINDOWS}/{window}/{file}"
                    events = self._read((database, table), key)
                    if events is not None:
                        yield from self._inside((database, table), "".join(f"/{one}" for one in levels), key, events)

    def _read(self, name: Name, key: str) -> FileEvents | None:
        """The events of a data file; None if it does not exist."""
        self._check_time("the files were not read in time")
        body = self.root.content(key)
        try:
            return None if body is None else self.reader.events(body, name)
        except Unreadable as error:
            raise InvalidRequest(f"{self.root.where}/{key}: {error}") from error

    def _inside(self, name: Name, level: str, key: str, events: FileEvents) -> Iterator[_Piece]:
        """The events of a file that are in the range."""
        stamps = events.commit_ts
        hashes = self.feed.target.format.hashes(events.rows, stamps)
        inside = np.flatnonzero((stamps > self.ask.from_ts) & (stamps <= self.ask.to_ts))
        if len(inside):
            rows, columns = events.rows.take(pa.array(inside)), self._columns.get(name, SentColumns())
            yield _Piece(name, rows, stamps[inside], hashes[inside], level, key, columns, inside)

    # ---- differences

    def _named(self, results: dict[Name, RowDifferences]) -> list[Difference]:
        """Read both sides again, and return the first DIFFERENCES_MAX events that differ, by commit_ts."""
        missing = {name: dict(one.missing) for name, one in results.items()}
        more = {name: {**one.unexpected, **one.repeated} for name, one in results.items()}
        found = (
            (piece, at)
            for left, pieces in ((missing, self._wanted()), (more, self._there()))
            for piece in pieces
            for at in indexes_of(piece.hashes, left.get(piece.name, {}))
        )
        first = heapq.nsmallest(DIFFERENCES_MAX, found, key=lambda one: (int(one[0].commit_ts[one[1]]), one[0].file))
        return [self._difference(piece, at, results[piece.name]) for piece, at in first]

    def _difference(self, piece: _Piece, at: int, of: RowDifferences) -> Difference:
        database, table = piece.name
        more = "repeated" if int(piece.hashes[at]) in of.repeated else "unexpected"
        return Difference(
            what="missing" if piece.index is None else more,  # type: ignore[arg-type]
            database=database,
            table=table,
            commit_ts=str(int(piece.commit_ts[at])),
            topic=piece.file,
            partition=0,
            offset=None if piece.index is None else int(piece.index[at]),
            key=self.reader.key(piece.rows, at, piece.columns),
        )

    def _asked_for(self, name: Name) -> bool:
        return self.ask.table is None or fold(".".join(name)) == fold(self.ask.table)

    def _check_time(self, reason: str) -> None:
        if self.clock.monotonic_ms() > self.deadline_ms:
            raise Unavailable(f"{reason}: compare a shorter range, or one table")
