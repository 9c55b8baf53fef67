"""Begins the answers of reads at a point in time: checks and admits each request, and finds the objects and the schema
that it reads."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from tistream import trace
from tistream.errors import InvalidRequest, UnknownName
from tistream.follow.tenant_view import TenantView
from tistream.model.span import KeySpan
from tistream.model.ts import Window
from tistream.pool.versions.plan import TableRange
from tistream.pool.versions.pool_reads import PoolReads
from tistream.read.cursor import Scope
from tistream.read.imported import check_pull
from tistream.read.scan import Budget
from tistream_api.encode.compression import compressed_pieces
from tistream_api.encode.encoding import FORMATS, Encoder
from tistream_api.encode.piece import Piece
from tistream_api.encode.shown_names import ShownNames
from tistream_api.points import point_cursor
from tistream_api.points.cached_reader import CachedReader
from tistream_api.points.list_rows import RowsPage
from tistream_api.points.named_table import check_complete, ranges_asked, shape_of, table_at
from tistream_api.points.net.net_changes import parts_between
from tistream_api.points.net.net_page import NetPage, NetPart, diff_parts
from tistream_api.points.net.squash import squash_parts
from tistream_api.points.point_cursor import Kind, PointPosition
from tistream_api.points.row_formats import ENCODERS
from tistream_api.points.row_history import RowHistory
from tistream_api.points.row_selection import RowSelection
from tistream_api.points.snapshot_pull import SnapshotPage, check_snapshot
from tistream_api.points.transaction import Transaction
from tistream_api.pull.admitted import Admission, Admitted, Answer, ReadCaller
from tistream_api.pull.decode_slots import DecodeSlots
from tistream_api.request.point_queries import DiffRequest, HistoryRequest, RowsRequest, SnapshotRequest, When
from tistream_api.tenant.ts_validator import TsValidator

Begin = Callable[[Admitted], Iterator[Piece]]
"""Checks a request, and returns the pieces of its answer."""


@dataclass(slots=True)
class PointReads:
    """Begins the reads at a point in time of all tenants. Thread-safe. `working` limits how many of them read or render
    rows at the same time."""

    reader: CachedReader
    admission: Admission
    working: DecodeSlots
    times: TsValidator
    budget: Budget

    def rows(
        self, view: TenantView, scope: Scope, ask: RowsRequest, read_caller: ReadCaller, coding: str | None
    ) -> Answer:
        """Begin the answer of ListRows. `coding` is the Content-Encoding of the answer; None: it is not compressed.
        Raises InvalidRequest and its subclasses, Unavailable, TooManyRequests."""

        def pieces(admitted: Admitted) -> Iterator[Piece]:
            at = self._rows_start(view, scope, ask)
            version = table_at(view.source, scope, at.high_ts, read_caller.may_read)
            reads = self.pool_reads(view, at.high_ts)
            check_complete(view.source, reads, [version], at.high_ts)
            shape = shape_of(view.source, version, at.high_ts, ask.columns)
            ranges, only = ranges_asked(version, ask.key, ask.from_key, ask.to_key)
            if ask.until is not None:
                ranges = up_to(ranges, self._part_end(scope, ask.until, at))
            selection = None
            if ask.choice is not None:
                ask.choice.check(version.table)
                selection = RowSelection(ask.choice, shape)
            page = RowsPage(
                scope,
                shape,
                ranges,
                only,
                at.key,
                ask.limit,
                reads,
                ENCODERS[ask.format](shape),
                admitted.count,
                view.record_barrier,
                admitted.watched.stopping,
                selection,
                self.admission.clock.monotonic_ms,
            )
            return page.pieces()

        return self._answer(view, "ListRows", read_caller, coding, pieces)

    def _rows_start(self, view: TenantView, scope: Scope, ask: RowsRequest) -> PointPosition:
        if ask.cursor is not None:
            at = point_cursor.decode(Kind.ROWS, scope, ask.cursor)
            self.times.readable(view, "cursor", at.high_ts)
            return at
        assert ask.ts is not None  # rows_ask requires one of the two
        return PointPosition(0, self.times.readable(view, "ts", ask.ts))

    @staticmethod
    def _part_end(scope: Scope, until: str, at: PointPosition) -> bytes:
        """The last key, inclusive, of the part of a table that ends at the cursor `until`. Raises InvalidRequest if
        `until` is no cursor of this call in `scope`, or its ts is not that of `at`, where the part begins."""
        end = point_cursor.decode(Kind.ROWS, scope, until)
        if end.high_ts != at.high_ts:
            raise InvalidRequest(
                f"until is of the rows as of {end.high_ts}, and the cursor of those as of {at.high_ts}: use both of "
                "one part",
                {"parameter": "until"},
            )
        return end.key

    def _answer(self, view: TenantView, call: str, read_caller: ReadCaller, coding: str | None, begin: Begin) -> Answer:
        """Admit a read, create its answer with `begin`, and make the answer's first bytes."""
        admitted = self.admission.begin(view, call, read_caller, trace.here())
        try:
            read_caller.has_slot()
            view.wait_fresh(read_caller.alive)
            pieces = begin(admitted)
        except BaseException:
            admitted.release()
            raise

        def held() -> Iterator[Piece]:
            admitted.room.take()  # outside of a step: what waits for memory must not keep others from working
            steps = compressed_pieces(pieces, coding)
            yield from self.working.each(admitted.tenant, steps, read_caller.alive)

        return admitted.answer(held())

    def pool_reads(self, view: TenantView, lowest_ts: int) -> PoolReads:
        """Make a PoolReads of the tenant. Its reads raise Gone once `lowest_ts` is below retention."""
        return PoolReads.of(self.reader, view, lowest_ts)

    def history(self, view: TenantView, scope: Scope, ask: HistoryRequest, read_caller: ReadCaller) -> dict[str, Any]:
        """The answer of RowHistory. Raises the errors of `rows`."""
        admitted = self.admission.begin(view, "RowHistory", read_caller, trace.here())
        try:
            read_caller.has_slot()
            view.wait_fresh(read_caller.alive)
            high = self.times.readable(view, "to", ask.high)
            low = view.earliest_ts() if ask.low is None else self.times.readable(view, "from", ask.low)
            check_between(low, high, "to")
            check_pull(view.source, view.shards(), scope, low, high)
            admitted.room.take()
            found = RowHistory(scope, ask.key, Window(low, high), ask.limit, view.source, self.pool_reads(view, low))
            steps = (one.answer() for one in [found])  # made inside a working step
            answer = next(self.working.each(admitted.tenant, steps, read_caller.alive))
            admitted.count(len(answer["versions"]), len(answer["versions"]), 0)
            return answer
        finally:
            admitted.release()

    def transaction(self, view: TenantView, start_ts: int, read_caller: ReadCaller, coding: str | None) -> Answer:
        """The answer of GetTransaction. Raises the errors of `rows`."""

        def pieces(admitted: Admitted) -> Iterator[Piece]:
            view.check_known()
            found = self.transaction_of(view, Scope(view.tenant), start_ts, admitted)
            return found.pieces()

        return self._answer(view, "GetTransaction", read_caller, coding, pieces)

    def transaction_of(self, view: TenantView, scope: Scope, start_ts: int, admitted: Admitted) -> Transaction:
        """The changes by the transaction with this start_ts in the tables of the scope. Raises InvalidRequest for a
        start_ts in the future, and Unavailable for one that is not resolved yet."""
        self.times.wait_resolved(view, "start_ts", start_ts)
        return Transaction(
            scope,
            start_ts,
            view.earliest_ts(),
            view.resolved_ts(),
            view.source,
            self.reader,
            self.budget,
            admitted.count,
            view.record_barrier,
        )

    def diff(
        self, view: TenantView, scope: Scope, ask: DiffRequest, read_caller: ReadCaller, coding: str | None
    ) -> Answer:
        """The answer of DiffTable. Raises the errors of `rows`."""

        def parts(at: PointPosition) -> list[NetPart]:
            assert scope.database is not None
            assert scope.table is not None
            named = [view.source.tables_at(ts, scope) for ts in (at.low_ts, at.high_ts)]
            before, after = (tables[0] if tables else None for tables in named)
            exists = before is not None or after is not None
            if not exists and not view.source.name_exists(scope, at.low_ts, at.high_ts):
                raise UnknownName(
                    f"there is no table {scope.database}.{scope.table} between {at.low_ts} and {at.high_ts}: "
                    "ListTables with such a ts has the names"
                )
            found = [one for one in (before, after) if one is not None]
            check_complete(view.source, self.pool_reads(view, at.low_ts), found, at.low_ts)
            return diff_parts(parts_between(before, after, self._versions(view, at), at.low_ts, at.high_ts))

        return self._net(view, scope, ask, read_caller, coding, Kind.DIFF, parts)

    def squash(
        self, view: TenantView, scope: Scope, ask: DiffRequest, read_caller: ReadCaller, coding: str | None
    ) -> Answer:
        """The answer of a pull with squash=true. Raises the errors of `rows`."""

        def parts(at: PointPosition) -> list[NetPart]:
            before, after = (view.source.tables_at(ts, scope) for ts in (at.low_ts, at.high_ts))
            check_complete(view.source, self.pool_reads(view, at.low_ts), [*before, *after], at.low_ts)
            if not before and not after and not view.source.name_exists(scope, at.low_ts, at.high_ts):
                raise UnknownName(
                    f"there is no {scope.shown} between {at.low_ts} and {at.high_ts}: ListDBs and ListTables have "
                    "the names"
                )
            versions = self._versions(view, at)
            return squash_parts(before, after, versions, at.low_ts, at.high_ts, ddl=ask.events == "all")

        return self._net(view, scope, ask, read_caller, coding, Kind.SQUASH, parts)

    def snapshot(
        self, view: TenantView, scope: Scope, ask: SnapshotRequest, read_caller: ReadCaller, coding: str | None
    ) -> Answer:
        """The answer of a pull that begins with the rows as of a ts. Raises the errors of `rows`."""

        def pieces(admitted: Admitted) -> Iterator[Piece]:
            if ask.cursor is not None:
                at = point_cursor.decode(Kind.SNAPSHOT, scope, ask.cursor)
                self.times.readable(view, "cursor", at.high_ts)
            else:
                # A table that is not complete at this ts is a 409 with its progress, so that check comes first.
                at = PointPosition(0, self.times.readable(view, "snapshot", ask.ts, TenantView.check_kept))
            tables = view.source.tables_at(at.high_ts, scope)
            if not tables and not view.source.name_exists(scope, at.high_ts, at.high_ts):
                raise UnknownName(
                    f"there is no {scope.shown} at {at.high_ts}: ListDBs and ListTables with this ts have the names"
                )
            reads = self.pool_reads(view, at.high_ts)
            check_snapshot(view.source, reads, tables, at.high_ts)
            view.check_served(at.high_ts)
            stopping, source = admitted.watched.stopping, view.source
            page = SnapshotPage(
                scope, tables, at, ask.limit, source, reads, admitted.count, view.record_barrier, stopping
            )
            return page.pieces()

        return self._answer(view, scope.call, read_caller, coding, pieces)

    def _net(
        self,
        view: TenantView,
        scope: Scope,
        ask: DiffRequest,
        read_caller: ReadCaller,
        coding: str | None,
        kind: Kind,
        parts: Callable[[PointPosition], list[NetPart]],
    ) -> Answer:
        names = ("from", "to") if kind is Kind.DIFF else ("start_ts", "end_ts")

        def pieces(admitted: Admitted) -> Iterator[Piece]:
            at = self._net_start(view, scope, ask, kind, names)
            check_pull(view.source, view.shards(), scope, at.low_ts, at.high_ts)
            encoder: Encoder = FORMATS[ask.format].new()
            if read_caller.may_read is not None:
                encoder = ShownNames(encoder, read_caller.may_read)
            page = NetPage(
                kind,
                scope,
                parts(at),
                at,
                ask.limit,
                view.source,
                self.pool_reads(view, at.low_ts),
                encoder,
                admitted.count,
                view.record_barrier,
                admitted.watched.stopping,
            )
            return page.pieces()

        return self._answer(view, "DiffTable" if kind is Kind.DIFF else scope.call, read_caller, coding, pieces)

    def _net_start(
        self, view: TenantView, scope: Scope, ask: DiffRequest, kind: Kind, names: tuple[str, str]
    ) -> PointPosition:
        if ask.cursor is not None:
            at = point_cursor.decode(kind, scope, ask.cursor)
            for ts in (at.low_ts, at.high_ts):
                self.times.readable(view, "cursor", ts)
            return at
        assert ask.low is not None  # diff_ask requires one of the two
        low = self.times.readable(view, names[0], ask.low)
        high = self.times.readable(view, names[1], ask.high)
        check_between(low, high, names[1])
        return PointPosition(low, high)

    @staticmethod
    def _versions(view: TenantView, at: PointPosition) -> tuple[int, int]:
        return view.source.schema_version(at.low_ts), view.source.schema_version(at.high_ts)


def up_to(ranges: Sequence[TableRange], last: bytes) -> list[TableRange]:
    """The parts of the ranges up to and with the key `last`."""
    found = (one.clip(KeySpan(b"", last + b"\0")) for one in ranges)
    return [one for one in found if one is not None]


def table_window(points: PointReads, view: TenantView, scope: Scope, start: When, end: When) -> Window:
    """The window of a table's changes that a request names by `start_ts` and `end_ts`, once it is known that all of it
    can be read. Raises InvalidRequest and its subclasses, Unavailable."""
    low, high = points.times.readable(view, "start_ts", start), points.times.readable(view, "end_ts", end)
    check_between(low, high, "end_ts")
    if not view.source.name_exists(scope, low, high):
        raise UnknownName(
            f"there is no {scope.shown} between {low} and {high}: ListTables with such a ts has the names"
        )
    check_pull(view.source, view.shards(), scope, low, high)
    return Window(low, high)


def check_between(low: int, high: int, name: str) -> None:
    """Raise InvalidRequest, which names the parameter of `high`, if it lies below `low`."""
    if high < low:
        raise InvalidRequest(
            f"{name} {high} lies below the beginning of the range, {low}: use a later one", {"parameter": name}
        )
