"""Compares the Iceberg tables of a feed with the tenant's rows: tables of changes event by event in a range of
commit_ts, and the tables themselves as they are. The rows are made again, and both sides are compared by hashes of
them. The feed may run meanwhile: each table is read as it was when the comparison began. Tables of any size are
compared in bounded memory (row_buckets.py)."""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tistream.clock import Clock
from tistream.decode.kernels.arrow_buffers import one_array
from tistream.decode.rows import decode_rows
from tistream.errors import InvalidRequest, Unavailable
from tistream.model.ids import TenantKey
from tistream.model.ts import Window
from tistream.pool.versions.merge import key_array
from tistream.pool.versions.plan import records_of
from tistream.pool.versions.pool_reads import PoolReads
from tistream.pool.versions.reader import Reader
from tistream.read.chosen_scope import ChosenScope
from tistream.read.cursor import Place, Position, Scope
from tistream.read.scan import Budget
from tistream.restore.fingerprint import Hashes
from tistream.schema.visible import Name, TableVersion, fold
from tistream.wire.bulk.feed_verify import DIFFERENCES_MAX, Difference, FeedVerification, LeftOut, VerifyFeed
from tistream_changefeed.core.failure import failed
from tistream_changefeed.core.progress import Progress
from tistream_changefeed.core.stopped import StoppedTable
from tistream_changefeed.hold.loading import check_complete
from tistream_changefeed.hold.pool import Pool
from tistream_changefeed.protocols.table_change import TableChange
from tistream_changefeed.rows.handle_key import handle_columns
from tistream_changefeed.rows.row_batch import RowBatch
from tistream_changefeed.sinks.iceberg.kept.lake_table import LakeTable, shape_of
from tistream_changefeed.sinks.iceberg.lake import Lake
from tistream_changefeed.sinks.iceberg.lake_feed import LakeFeed
from tistream_changefeed.sinks.iceberg.lake_pipeline import TableDdl
from tistream_changefeed.sinks.iceberg.lake_rows import change_rows, table_rows
from tistream_changefeed.sinks.iceberg.table_schema import EMPTY, LakeSchema, evolved, with_first_ids
from tistream_changefeed.sinks.iceberg.target import Identifier, own_table
from tistream_changefeed.verify.compared_rows import RowDifferences, counted, indexes_of
from tistream_changefeed.verify.iceberg.lake_there import LakeThere, since_of
from tistream_changefeed.verify.iceberg.row_hashes import row_hashes
from tistream_changefeed.verify.iceberg.table_fates import TableFates
from tistream_changefeed.verify.row_buckets import RowBuckets

ROWS_MAX = 2_000_000  # of which the hashes are kept, on both sides together


@dataclass(frozen=True, slots=True)
class _Piece:
    """Rows of an Iceberg table, in its types. `name`: the database in TiDB and the table's name in Iceberg. `there`:
    True for rows that Iceberg has, False for those that it must have. `ts`: the ts as of which the rows of a mirrored
    table are compared; None for a table of changes, whose rows have a commit_ts."""

    name: Name
    where: str
    rows: pa.Table
    keys: tuple[str, ...]
    there: bool
    ts: int | None = None

    def commit_ts(self, at: int) -> int:
        """The commit_ts of a row, or the ts as of which it was compared."""
        return int(self.rows["_commit_ts"][at].as_py()) if self.ts is None else self.ts


@dataclass(frozen=True, slots=True)
class _Changes:
    """A table of changes. `keys`: the names of the columns of its key. `table`: None if the feed has created none."""

    name: Name
    keys: tuple[str, ...]
    table: LakeTable | None


@dataclass(frozen=True, slots=True)
class _Shown:
    """A table itself, which shows the rows as of `ts`; of a feed that has not begun with all rows, those that have
    changed after `after_ts`. `table`: None if the feed has created none."""

    version: TableVersion
    table: LakeTable | None
    after_ts: int
    ts: int


@dataclass(slots=True)
class LakeComparison:
    """Compares the tables of one feed. `reader` reads the pool. `deadline_ms`: when the comparison is given up, in
    monotonic ms."""

    ask: VerifyFeed
    tenant: TenantKey
    feed: LakeFeed
    lake: Lake
    view: Pool
    budget: Budget
    reader: Reader
    clock: Clock
    deadline_ms: int
    _there: LakeThere = field(init=False)
    _left_out: dict[Name, str] = field(default_factory=dict)
    _stopped: Sequence[StoppedTable] = ()

    def __post_init__(self) -> None:
        own = own_table(self.tenant, self.ask.changefeed_id)
        self._there = LakeThere(self.lake, self.tenant, own, self._check_time, self._moved)

    def result(self) -> FeedVerification:
        """Compare the Iceberg tables with the tenant's rows, and return the differences. Raises InvalidRequest if the
        tables cannot be compared, Unavailable if the deadline passes or a table is dropped or renamed, FeedFailed if
        the catalog cannot be read, Gone if the rows are past retention."""
        shapes, filters = self.feed.target.shapes, self.feed.config.filter
        filtered = "table" in shapes and bool(filters.event_filters or filters.ignore_txn_start_ts)
        if filtered and "changes" not in shapes:
            raise InvalidRequest("the feed leaves out events by event filters, so its tables differ from the pool")
        progress = self._there.progress()
        self._stopped = progress.stopped
        self._wait_for(progress.at.low_ts)
        fates = self._fates(progress.at.low_ts) if "changes" in shapes else None
        mirrored = list(self._mirrored(progress)) if "table" in shapes and not filtered else []
        if filtered:
            names = [one.name for one in self._versions(progress.at.low_ts)]
            self._left_out |= dict.fromkeys(names, "has event filters, so only its changes were compared")
        compared = RowBuckets(ROWS_MAX)
        self._compare(compared, fates, mirrored)
        if compared.undecided:
            compared.begin_again()
            self._compare(compared, fates, mirrored)
        results = compared.results()
        if self.ask.table is not None and not results:
            found = next((f"{'.'.join(name)} {reason}" for name, reason in self._left_out.items()), None)
            reason = f"table {found}" if found else f"the feed sends no table {self.ask.table}"
            raise InvalidRequest(reason, {"parameter": "table"})
        differ = {name: one for name, one in results.items() if not one.equal}
        differing = compared.differing.union(differ)
        if compared.partial:
            self._left_out |= dict.fromkeys(differing, "has more differences than are counted here")
        stamps = [one.ts for one in mirrored] if fates is None else []
        return FeedVerification(
            changefeed_id=self.ask.changefeed_id,
            from_ts=str(min(stamps, default=self.ask.from_ts)),
            to_ts=str(max(stamps, default=self.ask.to_ts)),
            equal=not differing,
            tables=[counted(name, one) for name, one in results.items()],
            differences=self._named(differ, fates, mirrored) if differ else [],
            of="lake",
            left_out=[
                LeftOut(database=name[0], table=name[1], reason=reason)
                for name, reason in sorted(self._left_out.items())
            ],
        )

    def _wait_for(self, ts: int) -> None:
        """Wait until the pool was read up to `ts`."""
        left_ms = self.deadline_ms - self.clock.monotonic_ms()
        if self.view.resolved_ts() < ts and not self.view.wait_above(ts - 1, max(1, left_ms)):
            raise Unavailable(f"this worker has not read the pool up to {ts} yet")

    def _compare(self, compared: RowBuckets, fates: TableFates | None, mirrored: Sequence[_Shown]) -> None:
        for piece in self._pieces(fates, mirrored):
            compared.add(piece.name, row_hashes(piece.rows), there=piece.there)

    def _pieces(self, fates: TableFates | None, mirrored: Sequence[_Shown]) -> Iterator[_Piece]:
        if fates is not None:
            yield from self._changes(fates)
        for shown in mirrored:
            yield from self._rows(shown)

    # ---- tables of changes

    def _fates(self, ts: int) -> TableFates:
        """What has become, as of `ts`, of the tables that were there when the range began."""
        return TableFates(self._included(ts), self._ddls(Window(self.ask.from_ts, ts)))

    def _ddls(self, window: Window) -> Iterator[tuple[int, TableChange]]:
        """The tables that the DDLs of a window change, each with the commit_ts of its DDL, in order."""
        source = self.view.source
        for event in source.ddl_events(Scope(self.tenant), window).events:
            for mark in self.feed.pipeline.ddl(event, source.table, lambda _: 1):
                if isinstance(mark, TableDdl):
                    yield from ((event.commit_ts, one) for one in mark.changes)

    def _moved(self, identifier: Identifier, window: Window) -> bool:
        """Whether a DDL of a window drops or renames the TiDB table whose rows the Iceberg table `identifier` has."""
        self._wait_for(window.high)
        name = partial(self.feed.target.identifier, shape=shape_of(identifier))
        return any(
            one.before is not None
            and name(one.before.name) == identifier
            and (one.after is None or name(one.after.name) != identifier)
            for _, one in self._ddls(window)
        )

    def _changes(self, fates: TableFates) -> Iterator[_Piece]:
        """The events of the range, as they must be and as they are."""
        compared: dict[Identifier, _Changes] = {}
        for version in filter(lambda one: self._asked_for(one.name), fates.now):
            identifier = self.feed.target.identifier(version.name, "changes")
            name = (version.name[0], identifier[-1])
            compared[identifier] = _Changes(name, _keys(version), self._there.table(identifier, version.name))
        for batch in self._events(fates):
            found = self._changes_of(batch.version, fates)
            if found is None:
                continue
            identifier, table = found
            if identifier not in compared or compared[identifier].table is None:
                name = (batch.version.name[0], identifier[-1])
                compared[identifier] = _Changes(name, _keys(batch.version), table)
            one = compared[identifier]
            lake = evolved(EMPTY, "changes", batch.version) if table is None else with_first_ids(table.schema)
            yield _Piece(one.name, ".".join(identifier), change_rows([batch], lake), one.keys, there=False)
        inside = f"_commit_ts > {self.ask.from_ts} and _commit_ts <= {self.ask.to_ts}"
        for identifier, one in compared.items():
            for rows in () if one.table is None else self._there.rows(one.table, inside):
                events = rows.filter(pc.not_equal(rows["_op"], "truncate"))
                yield _Piece(one.name, ".".join(identifier), events, one.keys, there=True)

    def _changes_of(self, version: TableVersion, fates: TableFates) -> tuple[Identifier, LakeTable | None] | None:
        """Find the table of changes that has the events of a version of a table. Returns (the name of the
        Iceberg table, the table, or None if the feed has created none). Returns None if the events are left out
        of the comparison, because their table is gone; then `_left_out` gets the reason."""
        fate = fates.of(version.head.id)
        if fate is None:
            self._left_out[version.name] = "was dropped or renamed by a DDL that the feed leaves out"
            return None
        identifier = self.feed.target.identifier(fate.name, "changes")
        if fate.dropped_ts is None:
            return identifier, self._there.table(identifier, fate.name)
        table = self._there.dropped(identifier, fate.dropped_ts)
        if table is None:
            self._left_out[version.name] = f"was dropped at commit_ts {fate.dropped_ts}, and in Iceberg too"
            return None
        return table.identifier, table

    def _events(self, fates: TableFates) -> Iterator[RowBatch]:
        pipeline, high = self.feed.pipeline, self.ask.to_ts
        scope = ChosenScope(self.tenant, choice=pipeline.tables)
        for batch in pipeline.scan(self.view.source, scope, Position(self.ask.from_ts), high, self.budget).batches():
            self._check_time("the pool was not read in time")
            if batch.barrier is not None:
                raise InvalidRequest(f"a row at commit_ts {batch.barrier.commit_ts} cannot be decoded")
            rows = batch.events.chosen(np.flatnonzero(batch.events.place != int(Place.DDL)))
            if len(rows):
                for one in pipeline.rows(rows, lambda _: 1).messages.window.rows:
                    fate = fates.of(one.version.head.id)
                    if self._asked_for(one.version.name if fate is None else fate.name):
                        yield one

    # ---- the tables themselves

    def _mirrored(self, progress: Progress) -> Iterator[_Shown]:
        """The tables themselves. The ts of each is that of the progress, or a later one if the feed has committed to
        the table since."""
        begun_ts = 0 if self.feed.pipeline.loads else self.ask.start_ts
        changed_ts = 0 if progress.applied is None else progress.applied.after_ts
        for version in self._versions(progress.at.low_ts):
            table = self._there.table(self.feed.target.identifier(version.name, "table"), version.name)
            ts = max(progress.at.low_ts, 0 if table is None or table.marks is None else table.marks.at.low_ts)
            self._wait_for(ts)
            self.view.check_served(ts)
            then = {one.head.id: one for one in self._versions(ts)}.get(version.head.id)
            if then is None or then.name != version.name:
                raise Unavailable(f"table {'.'.join(version.name)} was renamed or dropped meanwhile: compare again")
            if self.feed.pipeline.loads:
                check_complete(self.view, [then], ts)
            since_ts = changed_ts if table is None else since_of(table)
            if since_ts is None and changed_ts > self.ask.start_ts:
                self._left_out[version.name] = "is of an earlier release, so since when the feed has it is not known"
                continue
            yield _Shown(then, table, max(begun_ts, since_ts or 0), ts)

    def _rows(self, shown: _Shown) -> Iterator[_Piece]:
        """The rows of a table, as they must be and as they are."""
        version, table, ts = shown.version, shown.table, shown.ts
        identifier = self.feed.target.identifier(version.name, "table")
        where, name, keys = ".".join(identifier), (version.name[0], identifier[-1]), _keys(version)
        lake = evolved(EMPTY, "table", version) if table is None else table.schema
        there = {one.field_id for one in lake.schema.fields}
        for column in version.table.visible_columns:
            if lake.fields.get(column.id) not in there:
                raise InvalidRequest(f"{where} has no column {column.name}: another program has dropped it")
        for rows in self._wanted(shown, lake):
            yield _Piece(name, where, rows, keys, there=False, ts=ts)
        for rows in () if table is None or table.marks is None else self._there.rows(table):
            yield _Piece(name, where, rows, keys, there=True, ts=ts)

    def _wanted(self, shown: _Shown, lake: LakeSchema) -> Iterator[pa.Table]:
        """The rows of a table in the pool, converted to those of the Iceberg table. Rows whose key Iceberg
        cannot have are left out, because they are dead letters."""
        version, ts, view = shown.version, shown.ts, self.view
        ranges = [records_of(one) for one in sorted(version.head.physical_ids)]
        reads = PoolReads.of(self.reader, view, ts)
        columns = version.table.visible_columns
        for found in reads.scan(Window(0, ts), ranges):
            self._check_time("the pool was not read in time")
            chosen = found.filter(pc.greater(found["commit_ts"], shown.after_ts))
            raw = key_array(chosen)
            decoded = decode_rows(version.table, columns, raw, one_array(chosen.column("value")))
            if decoded.errors:
                reason = f"the row with the key {raw[min(decoded.errors)].as_py().hex()} cannot be decoded"
                raise failed("pool", ".".join(version.name), reason)
            arrays = [decoded.batch.column(at) for at in range(len(columns))]
            batch = pa.RecordBatch.from_arrays(arrays, names=[column.name for column in columns])
            rows = table_rows(columns, batch, lake)
            for key in _keys(version):
                rows = rows.filter(pc.is_valid(rows[key]))
            yield rows

    def _included(self, ts: int) -> list[TableVersion]:
        return list(filter(self.feed.pipeline.includes, self.view.source.tables_at(ts, Scope(self.tenant))))

    def _versions(self, ts: int) -> list[TableVersion]:
        return [one for one in self._included(ts) if self._asked_for(one.name)]

    # ---- differences

    def _named(
        self, results: Mapping[Name, RowDifferences], fates: TableFates | None, mirrored: Sequence[_Shown]
    ) -> list[Difference]:
        """Read both sides again, and return the first DIFFERENCES_MAX rows that differ, by commit_ts."""
        missing = {name: dict(one.missing) for name, one in results.items()}
        more = {name: {**one.unexpected, **one.repeated} for name, one in results.items()}
        found = (
            self._difference(piece, at, results[piece.name], hashes)
            for piece in self._pieces(fates, mirrored)
            if piece.name in results
            for hashes in (row_hashes(piece.rows),)
            for at in indexes_of(hashes, (more if piece.there else missing)[piece.name])
        )
        return heapq.nsmallest(DIFFERENCES_MAX, found, key=lambda one: (int(one.commit_ts), one.table))

    def _difference(self, piece: _Piece, at: int, of: RowDifferences, hashes: Hashes) -> Difference:
        more = "repeated" if int(hashes[at]) in of.repeated else "unexpected"
        shown = {key: piece.rows[key][at].as_py() for key in piece.keys if key in piece.rows.column_names}
        return Difference(
            what=more if piece.there else "missing",  # type: ignore[arg-type]
            database=piece.name[0],
            table=piece.name[1],
            commit_ts=str(piece.commit_ts(at)),
            topic=piece.where,
            partition=0,
            offset=None,
            key={key: value.hex() if isinstance(value, bytes) else str(value) for key, value in shown.items()},
        )

    def _asked_for(self, name: Name) -> bool:
        if self.ask.table is not None and fold(".".join(name)) != fold(self.ask.table):
            return False
        if any(one.touches(name) for one in self._stopped):
            self._left_out[name] = "has stopped, so it was not compared: let it go on first"
            return False
        return True

    def _check_time(self, reason: str) -> None:
        if self.clock.monotonic_ms() > self.deadline_ms:
            raise Unavailable(f"{reason}: compare a shorter range, or one table")


def _keys(version: TableVersion) -> tuple[str, ...]:
    return tuple(column.name for column in handle_columns(version.table))
