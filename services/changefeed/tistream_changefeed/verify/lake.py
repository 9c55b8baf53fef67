"""Compares the Iceberg tables of a feed with the tenant's rows: tables of changes event by event in a range of
commit_ts, and the tables themselves as they are. The rows are made again, and both sides are compared by hashes of
them. The feed may run meanwhile: each table is read as it was when the comparison began."""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from tistream.clock import Clock
from tistream.decode.kernels.arrow_buffers import one_array
from tistream.decode.rows import decode_rows
from tistream.errors import InvalidRequest, LimitReached, Unavailable
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
from tistream.wire.bulk.feed_verify import DIFFERENCES_MAX, Difference, FeedVerification, VerifyFeed
from tistream_changefeed.core.failure import failed
from tistream_changefeed.core.progress import Progress
from tistream_changefeed.hold.loading import check_complete
from tistream_changefeed.hold.pool import Pool
from tistream_changefeed.rows.handle_key import handle_columns
from tistream_changefeed.rows.row_batch import RowBatch
from tistream_changefeed.sinks.iceberg import marks as texts
from tistream_changefeed.sinks.iceberg.kept.lake_table import LakeTable
from tistream_changefeed.sinks.iceberg.kept.own_table import stored
from tistream_changefeed.sinks.iceberg.lake import Lake
from tistream_changefeed.sinks.iceberg.lake_feed import LakeFeed
from tistream_changefeed.sinks.iceberg.lake_rows import arrow_schema, change_rows, table_rows
from tistream_changefeed.sinks.iceberg.table_schema import EMPTY, LakeSchema, Shape, evolved, parsed, with_first_ids
from tistream_changefeed.sinks.iceberg.target import Identifier, own_table
from tistream_changefeed.verify.compared_rows import ComparedRows, RowDifferences, counted, indexes_of

EVENTS_MAX = 2_000_000  # of one comparison, on both sides together
_FIELDS = "tistream.fields"


@dataclass(frozen=True, slots=True)
class _Piece:
    """Rows of an Iceberg table, in its types. `name`: the database of the upstream and the table of Iceberg. `there`:
    whether the rows are there, or must be. `ts`: of the table itself; None for changes, which have their own."""

    name: Name
    where: str
    rows: pa.Table
    keys: tuple[str, ...]
    there: bool
    ts: int | None = None

    def commit_ts(self, at: int) -> int:
        """The commit_ts of a row, or the ts as of which it was compared."""
        return int(self.rows["_commit_ts"][at].as_py()) if self.ts is None else self.ts


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
    _tables: dict[Identifier, LakeTable | None] = field(default_factory=dict)
    _now: dict[int, TableVersion] = field(default_factory=dict)  # by table id, as of the end of the range

    def result(self) -> FeedVerification:
        """Compare. Raises InvalidRequest, LimitReached, Unavailable, FeedFailed, Gone."""
        shapes, filters = self.feed.target.shapes, self.feed.config.filter
        if "table" in shapes and (filters.event_filters or filters.ignore_txn_start_ts):
            raise InvalidRequest("the feed leaves out events by event filters, so its tables differ from the pool")
        progress = self._progress()
        self._now = {one.head.id: one for one in self._versions(self.ask.to_ts)}
        mirrored = list(self._mirrored(progress)) if "table" in shapes else []
        found: dict[Name, ComparedRows] = {}
        count = 0
        for piece in self._pieces(mirrored):
            of = found.setdefault(piece.name, ComparedRows())
            (of.found if piece.there else of.wanted).append(row_hashes(piece.rows))
            count += piece.rows.num_rows
            if count > EVENTS_MAX:
                raise LimitReached("the tables have too many rows: compare a shorter range, or one table")
        if self.ask.table is not None and not found:
            raise InvalidRequest(f"the feed sends no table {self.ask.table}", {"parameter": "table"})
        results = {name: one.result() for name, one in sorted(found.items())}
        equal = all(one.equal for one in results.values())
        stamps = [ts for _, _, ts in mirrored] if "changes" not in shapes else []
        return FeedVerification(
            changefeed_id=self.ask.changefeed_id,
            from_ts=str(min(stamps, default=self.ask.from_ts)),
            to_ts=str(max(stamps, default=self.ask.to_ts)),
            equal=equal,
            tables=[counted(name, one) for name, one in results.items()],
            differences=[] if equal else self._named(results, mirrored),
            of="lake",
        )

    def _progress(self) -> Progress:
        identifier = own_table(self.tenant, self.ask.changefeed_id)
        own = self.lake.load(identifier)
        there = None if own is None else stored(self.lake, own, self.tenant, identifier)
        if there is None:
            raise Unavailable("the feed has written nothing yet")
        if there.progress.load is not None:
            raise Unavailable("the rows with which the feed begins are not loaded yet")
        return there.progress

    def _pieces(self, mirrored: Sequence[tuple[TableVersion, LakeTable | None, int]]) -> Iterator[_Piece]:
        if "changes" in self.feed.target.shapes:
            yield from self._changes()
        for version, table, ts in mirrored:
            yield from self._rows(version, table, ts)

    # ---- tables of changes

    def _changes(self) -> Iterator[_Piece]:
        """The events of the range, as they must be and as they are."""
        keys: dict[Identifier, tuple[Name, tuple[str, ...]]] = {}
        for version in self._now.values():
            if self.feed.pipeline.includes(version):
                keys[self._identifier(version, "changes")] = (self._shown(version, "changes"), _keys(version))
        names = {one.name for one in self._now.values()}
        for batch in self._events():
            if batch.version.head.id not in self._now and batch.version.name not in names:
                raise InvalidRequest(
                    f"table {'.'.join(batch.version.name)} was dropped or renamed after commit_ts "
                    f"{batch.commit_ts.max()}: compare a range after that, or another table"
                )
            identifier = self._identifier(batch.version, "changes")
            name, of = keys.setdefault(identifier, (self._shown(batch.version, "changes"), _keys(batch.version)))
            table = self._table(identifier, "changes")
            lake = evolved(EMPTY, "changes", batch.version) if table is None else with_first_ids(table.schema)
            yield _Piece(name, ".".join(identifier), change_rows([batch], lake), of, there=False)
        inside = f"_commit_ts > {self.ask.from_ts} and _commit_ts <= {self.ask.to_ts}"
        for identifier, (name, of) in keys.items():
            table = self._table(identifier, "changes")
            for rows in () if table is None else self._scanned(table, inside):
                events = rows.filter(pc.not_equal(rows["_op"], "truncate"))
                yield _Piece(name, ".".join(identifier), events, of, there=True)

    def _events(self) -> Iterator[RowBatch]:
        pipeline, high = self.feed.pipeline, self.ask.to_ts
        scope = ChosenScope(self.tenant, choice=pipeline.tables)
        for batch in pipeline.scan(self.view.source, scope, Position(self.ask.from_ts), high, self.budget).batches():
            self._check_time("the pool was not read in time")
            if batch.barrier is not None:
                raise InvalidRequest(f"a row at commit_ts {batch.barrier.commit_ts} cannot be decoded")
            rows = batch.events.chosen(np.flatnonzero(batch.events.place != int(Place.DDL)))
            if len(rows):
                window = pipeline.rows(rows, lambda _: 1).messages.window
                yield from (one for one in window.rows if self._asked_for(one.version))

    # ---- the tables themselves

    def _mirrored(self, progress: Progress) -> Iterator[tuple[TableVersion, LakeTable | None, int]]:
        """The tables themselves, each with the ts whose rows it shows: that of the progress, or a later one if the feed
        has committed to the table since."""
        for version in self._versions(progress.at.low_ts):
            table = self._table(self._identifier(version, "table"), "table")
            ts = max(progress.at.low_ts, 0 if table is None or table.marks is None else table.marks.at.low_ts)
            left_ms = self.deadline_ms - self.clock.monotonic_ms()
            if self.view.resolved_ts() < ts and not self.view.wait_above(ts - 1, max(1, left_ms)):
                raise Unavailable(f"this worker has not read the pool up to {ts} yet")
            self.view.check_served(ts)
            then = {one.head.id: one for one in self._versions(ts)}.get(version.head.id)
            if then is None or then.name != version.name:
                raise Unavailable(f"table {'.'.join(version.name)} was renamed or dropped meanwhile: compare again")
            if self.feed.pipeline.loads:
                check_complete(self.view, [then], ts)
            yield then, table, ts

    def _rows(self, version: TableVersion, table: LakeTable | None, ts: int) -> Iterator[_Piece]:
        """The rows of a table, as they must be and as they are."""
        identifier = self._identifier(version, "table")
        where, name, keys = ".".join(identifier), self._shown(version, "table"), _keys(version)
        lake = evolved(EMPTY, "table", version) if table is None else table.schema
        there = {one.field_id for one in lake.schema.fields}
        for column in version.table.visible_columns:
            if lake.fields.get(column.id) not in there:
                raise InvalidRequest(f"{where} has no column {column.name}: another program has dropped it")
        for rows in self._wanted(version, ts, lake):
            yield _Piece(name, where, rows, keys, there=False, ts=ts)
        for rows in () if table is None or table.marks is None else self._scanned(table):
            yield _Piece(name, where, rows, keys, there=True, ts=ts)

    def _wanted(self, version: TableVersion, ts: int, lake: LakeSchema) -> Iterator[pa.Table]:
        """The rows of a table at `ts` in the pool; of a feed that has not begun with all rows, those that have changed
        since. Rows whose key Iceberg cannot have are dead letters."""
        view, ranges = self.view, [records_of(one) for one in sorted(version.head.physical_ids)]
        reads = PoolReads(self.reader, view.shards, partial(_replan, view, ts))
        after_ts = 0 if self.feed.pipeline.loads else self.ask.start_ts
        columns = version.table.visible_columns
        for found in reads.scan(Window(0, ts), ranges):
            self._check_time("the pool was not read in time")
            chosen = found.filter(pc.greater(found["commit_ts"], after_ts))
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

    # ---- tables

    def _versions(self, ts: int) -> list[TableVersion]:
        found = self.view.source.tables_at(ts, Scope(self.tenant))
        return [one for one in found if self.feed.pipeline.includes(one) and self._asked_for(one)]

    def _identifier(self, version: TableVersion, shape: Shape) -> Identifier:
        """The name of a table in Iceberg at the end of the range: a rename of the table has renamed it."""
        return self.feed.target.identifier(self._now.get(version.head.id, version).name, shape)

    def _shown(self, version: TableVersion, shape: Shape) -> Name:
        return version.name[0], self._identifier(version, shape)[-1]

    def _table(self, identifier: Identifier, shape: Shape) -> LakeTable | None:
        """A table as it was when it was first asked for."""
        if identifier not in self._tables:
            self._check_time("the catalog did not answer in time")
            table, where = self.lake.load(identifier), self.lake.named(identifier)
            found = None
            if table is not None:
                newest = texts.newest(self.lake.told(table), table.properties, self.tenant, where)
                schema = parsed(table.schema(), table.properties.get(_FIELDS, "{}"))
                found = LakeTable(identifier, shape, table, 0, schema, None if newest is None else newest.marks)
            self._tables[identifier] = found
        return self._tables[identifier]

    def _scanned(self, table: LakeTable, row_filter: str = "true") -> Iterator[pa.Table]:
        kind = arrow_schema(table.schema.schema)
        with self.lake.asking(self.lake.named(table.identifier)):
            for rows in table.table.scan(row_filter).to_arrow_batch_reader():
                self._check_time(f"table {'.'.join(table.identifier)} was not read in time")
                yield pa.Table.from_batches([rows]).cast(kind)

    # ---- differences

    def _named(
        self,
        results: Mapping[Name, RowDifferences],
        mirrored: Sequence[tuple[TableVersion, LakeTable | None, int]],
    ) -> list[Difference]:
        """Read both sides again, and return the first DIFFERENCES_MAX rows that differ, by commit_ts."""
        missing = {name: dict(one.missing) for name, one in results.items()}
        more = {name: {**one.unexpected, **one.repeated} for name, one in results.items()}
        found = (
            self._difference(piece, at, results[piece.name], hashes)
            for piece in self._pieces(mirrored)
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

    def _asked_for(self, version: TableVersion) -> bool:
        return self.ask.table is None or fold(".".join(version.name)) == fold(self.ask.table)

    def _check_time(self, reason: str) -> None:
        if self.clock.monotonic_ms() > self.deadline_ms:
            raise Unavailable(f"{reason}: compare a shorter range, or one table")


def row_hashes(rows: pa.Table) -> Hashes:
    """The hash of each row over all of its values, which is that of equal rows of the same schema."""
    frame = pl.DataFrame(pl.from_arrow(rows))
    values: list[pl.Expr] = []
    for name, kind in frame.schema.items():
        whole = pl.col(name)
        if isinstance(kind, pl.Struct):
            values.append(whole.is_null())
            values += [_plain(whole.struct.field(one.name), one.dtype) for one in kind.fields]
        else:
            values.append(_plain(whole, kind))
    numbered = [one.alias(str(number)) for number, one in enumerate(values)]
    return frame.select(numbered).hash_rows(0).to_numpy()


def _plain(values: pl.Expr, kind: Any) -> pl.Expr:
    return values.cast(pl.List(pl.String)).list.join(",") if isinstance(kind, pl.List) else values


def _keys(version: TableVersion) -> tuple[str, ...]:
    return tuple(column.name for column in handle_columns(version.table))


def _replan(view: Pool, ts: int) -> None:
    view.replan()
    view.check_served(ts)
