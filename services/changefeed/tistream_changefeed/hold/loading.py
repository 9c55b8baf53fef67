"""Loads the rows with which a feed begins: those of its tables as of its start_ts, as inserts. Each part of them is one
transaction with the progress, so a worker that takes over continues behind the newest part."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tistream.decode.kernels.arrow_buffers import one_array
from tistream.decode.rows import decode_rows
from tistream.model.base_cover import Hole
from tistream.model.span import KeySpan
from tistream.model.ts import Window
from tistream.pool.versions.merge import key_array
from tistream.pool.versions.plan import records_of
from tistream.pool.versions.pool_reads import PoolReads
from tistream.pool.versions.reader import Reader
from tistream.read.completeness import complete_from
from tistream.read.cursor import Scope
from tistream.read.events import Events, Image, Rows
from tistream.read.imported import TableImported, check_rows
from tistream.read.plan import OP_PUT
from tistream.schema.visible import TableVersion
from tistream_changefeed.core.failure import failed
from tistream_changefeed.core.load import Load
from tistream_changefeed.core.outgoing import NOTHING
from tistream_changefeed.core.row_events import RowEvents
from tistream_changefeed.hold.pool import Pool
from tistream_changefeed.hold.sending import Sending
from tistream_changefeed.hold.sink import FirstRows
from tistream_changefeed.rows.split import never, split
from tistream_changefeed.rows.window import EventWindow, raw_changes
from tistream_changefeed.table_errors.table_failed import TableFailed
from tistream_changefeed.table_errors.tables_refused import TablesRefused

_GOES_ON = "the load goes on where it was"
_REMEDY = f"repair it, then resume: {_GOES_ON}"


@dataclass(frozen=True, slots=True)
class Loading:
    """Loads the initial rows of one shard: reads them with `reader`, and sends them by `sending`."""

    sending: Sending
    reader: Reader

    def run(self, pool: Pool, stopping: Callable[[], bool]) -> None:
        """Load the initial rows that are not in the sink yet. If `stopping()` is true after a part, return; a later
        call continues there. Raises FeedFailed if a table is incomplete at the load's ts or a row cannot be sent, Gone
        if the rows are past retention, and the errors of reads of the pool."""
        try:
            self._run(pool, stopping)
        except TablesRefused as error:
            raise failed("sink", ", ".join(map(".".join, error.names)), f"{error}: {_GOES_ON}") from error
        except TableFailed as error:
            raise failed("encode", ".".join(error.name), f"{error}; {_REMEDY}") from error

    def _run(self, pool: Pool, stopping: Callable[[], bool]) -> None:
        shard, first = self.sending.shard, self.sending.pipeline.first_rows
        load = shard.loading
        assert load is not None
        if first is None:
            reason = f"the sink URI no longer has snapshot=now, and not all rows as of {load.ts} are loaded"
            raise failed("sink", load.table or self.sending.sink.where, f"{reason}: update the URI to have it again")
        tables = self._tables(pool, first, load.ts)
        if not load.table_id:
            check_complete(pool, tables, load.ts)
            begun = replace(load, table_id=tables[0].head.id) if tables else None
            self.sending.commit(shard.load(NOTHING, 0, first.created(tables), begun))
        for version in tables:
            after = load.key if version.head.id == load.table_id else b""
            if version.head.id < load.table_id:
                continue
            window, size = Window(0, load.ts), self.sending.window_bytes
            for events, key in rows_of(pool, self.reader, version, window, size, after):
                self._send(events, Load(load.ts, version.head.id, ".".join(version.name), key))
                if stopping():
                    return
        if shard.loading is not None:
            self.sending.commit(shard.load(NOTHING, 0, (), None))

    def _tables(self, pool: Pool, first: FirstRows, ts: int) -> list[TableVersion]:
        return [one for one in pool.source.tables_at(ts, Scope(self.sending.shard.order.tenant)) if first.includes(one)]

    def _send(self, events: Events, load: Load) -> None:
        sending = self.sending
        encoded = sending.pipeline.rows(events, sending.sink.partitions)
        letters = tuple(one.sent for one in encoded.letters)
        rows = encoded.framed(encoded.messages)
        sending.commit(sending.shard.load(rows, len(encoded.messages), letters, load, len(letters)))


def rows_of(
    pool: Pool,
    reader: Reader,
    version: TableVersion,
    window: Window,
    window_bytes: int,
    after: bytes = b"",
    ids: Collection[int] | None = None,
) -> Iterator[tuple[Events, bytes]]:
    """Yield the rows of a table that exist as of the end of `window` (inclusive) and have changed in it. Only rows
    whose raw keys are above `after` are read, in the order of their keys. `ids`: only the rows of these physical ids;
    None: of all that the table has. Each item is (about `window_bytes` of rows as inserts, the highest raw key among
    them). Raises FeedFailed, Gone, and the errors of reads of the pool."""
    rest = KeySpan(after + b"\0", b"") if after else KeySpan(b"", b"")
    ranges = [records_of(one).clip(rest) for one in sorted(version.head.physical_ids if ids is None else ids)]
    reads = PoolReads.of(reader, pool, window.high)
    schema_version = pool.source.schema_version(window.high)
    for versions in reads.scan(Window(0, window.high), [one for one in ranges if one is not None]):
        found = versions.filter(pc.greater(versions.column("commit_ts"), window.low)) if window.low else versions
        rows = puts(version, found, window.high, schema_version)
        size = max(1, len(rows) * window_bytes // max(1, rows.held_bytes))
        for start in range(0, len(rows), size):
            end = min(start + size, len(rows))
            yield rows.between(start, end), found.column("key")[end - 1].as_py()


def puts(version: TableVersion, found: pa.Table, ts: int, schema_version: int) -> Events:
    """Convert versions of rows to events that insert the rows at `ts`. `found` has the columns of
    tistream.format.run.SCHEMA, and only puts. Raises FeedFailed if a row cannot be decoded."""
    columns, raw = version.table.visible_columns, key_array(found)
    decoded = decode_rows(version.table, columns, raw, one_array(found.column("value")))
    if decoded.errors:
        at = min(decoded.errors)
        reason = f"the row with the key {raw[at].as_py().hex()} cannot be decoded: {dict(decoded.errors)[at]}"
        raise failed("pool", ".".join(version.name), f"{reason}; {_REMEDY}")
    count = found.num_rows
    image = Image([decoded.batch.column(at) for at in range(len(columns))], ())
    absent, numbers = np.full(count, -1), np.arange(count)
    stamps = np.full(count, ts)
    rows = Rows(
        version,
        image,
        None,
        stamps,
        np.zeros(count, np.int64),
        np.full(count, schema_version),
        np.full(count, OP_PUT),
        numbers,
        absent,
        raw,
        np.zeros(count, bool),
    )
    return Events.ordered([rows])


def unfiltered(events: Events) -> RowEvents:
    """Convert events for a sink without any filter of the feed."""
    return RowEvents(split(EventWindow(raw_changes(events).rows, ()), never))


def check_complete(pool: Pool, tables: Sequence[TableVersion], ts: int) -> None:
    """Check that every row of these tables at `ts` is in the pool. Raises FeedFailed, with the table and the remedy, if
    rows of a table may be missing."""
    shards = pool.shards()
    for version in tables:
        name = ".".join(version.name)
        found = complete_from(pool.source, shards, version.head.physical_ids)
        if isinstance(found, Hole):
            reason = "it existed before the pool, and not all of its rows have been backfilled"
            raise failed("pool", name, f"{reason}: run `tistream backfill run`, then resume, or leave the table out")
        if ts < found:
            raise failed("pool", name, _unknown(ts, found))
        try:
            check_rows(pool.source, shards, version, ts)
        except TableImported as error:
            raise failed("pool", name, str(error)) from error


def _unknown(ts: int, found: int) -> str:
    return f"its rows are known from {found} on, not at {ts}: create the feed again with a start_ts of at least {found}"
