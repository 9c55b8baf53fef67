"""What a DataFrame reads, and the parts in which Spark's tasks read it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from tistream_client.core import arrow, lists, points, pull
from tistream_client.core.errors import WrongArgument
from tistream_client.core.points import RowsQuery
from tistream_client.core.pull import PullQuery
from tistream_client.core.times import NOW
from tistream_client.spark import direct
from tistream_client.spark.column_types import Shape, chosen
from tistream_client.spark.conversion import EventRows, TableRows
from tistream_client.spark.options import Options
from tistream_client.spark.server import Server, server_of


@dataclass(frozen=True)
class ChangesPart(InputPartition):
    """A task's changes: `low < commit_ts <= high`."""

    low: int
    high: int


@dataclass(frozen=True)
class RowsPart(InputPartition):
    """A task's rows as of `ts`: after the cursor `after`, up to and with `until`."""

    ts: int
    after: str
    until: str | None


@dataclass(frozen=True, slots=True)
class Planned:
    """What a DataFrame reads, pinned when it was made: the table as of `rows_ts` (None: no rows), and the changes in
    (low, high]. `newest` was the newest ts then."""

    options: Options
    shape: Shape
    rows_ts: int | None
    low: int
    high: int
    newest: int


def planned(options: Options) -> Planned:
    """Pin the times of a DataFrame, and look up the table's columns. Raises WrongArgument, ApiError, NoAnswer."""
    if options.direct:
        direct.check_decoder()
    with server_of(options) as server:
        scope, patience, ask = options.scope, server.patience, server.transport.ask
        newest = ask(pull.newest_ts(scope, patience))
        begins = options.as_of or options.snapshot or options.starting
        if begins is None:
            begins = ask(pull.earliest_ts(scope, patience))
        low = newest if begins == NOW else int(begins)
        if options.as_of is not None:
            high = low
        else:
            high = max(newest, low) if options.ending in (None, NOW) else int(options.ending or 0)
            if high < low:
                raise WrongArgument(
                    "endingTs", f"{high} lies before the beginning, {low}", '.option("endingTs", "now")'
                )
        table = ask(lists.table_shape(scope, min(high, max(newest, low)), patience))
        if table.kind != "table":
            raise WrongArgument(
                "table", f"names {scope.database}.{scope.table}, a {table.kind}", '.option("table", "shop.orders")'
            )
        columns = chosen(table, options.columns, f"{scope.database}.{scope.table}")
    plain = options.as_of is not None
    rows_ts = low if plain or options.snapshot is not None else None
    shape = Shape(table, columns, options.zero_dates, plain, open_ended=options.columns is None and not plain)
    return Planned(options, shape, rows_ts, low, high, newest)


def changes_parts(server: Server, low: int, high: int) -> list[InputPartition]:
    """The parts of the changes in (low, high]. Parts that fit into one page together are one."""
    if low >= high:
        return []
    options, found = server.options, list[ChangesPart]()
    asking = lists.change_parts(options.scope, low, high, options.partitions, server.patience)
    rows = 0
    for one in server.transport.ask(asking):
        if found and rows + one.rows <= options.page_size:
            found[-1] = ChangesPart(found[-1].low, one.high)
            rows += one.rows
        else:
            found.append(ChangesPart(one.low, one.high))
            rows = one.rows
    return list(found)


def rows_parts(server: Server, ts: int) -> list[InputPartition]:
    """The parts of the rows as of `ts`. Parts that fit into one page together are one."""
    options, found, rows = server.options, list[RowsPart](), 0
    asking = lists.row_parts(options.scope, ts, options.partitions, options.keys, server.patience)
    for one in server.transport.ask(asking):
        if found and rows + one.rows <= options.page_size:
            found[-1] = RowsPart(ts, found[-1].after, one.until)
            rows += one.rows
        else:
            found.append(RowsPart(ts, one.after, one.until))
            rows = one.rows
    return list(found)


def events_of(options: Options) -> PullQuery:
    """The query of a pull of row events, with the filters of the options. The caller sets its range."""
    query = PullQuery(options.scope, None, None, None, None, "rows", options.page_size)
    return replace(query, operations=options.operations, where=options.where)


def batch_parts(plan: Planned) -> list[InputPartition]:
    """The parts of a DataFrame, each of which one task reads: of the rows, if it has any, and then of the changes.
    Raises ApiError, NoAnswer."""
    found: list[InputPartition] = []
    with server_of(plan.options) as server:
        if plan.rows_ts is not None:
            found += rows_parts(server, plan.rows_ts)
        if not plan.shape.plain:
            found += changes_parts(server, plan.low, plan.high)
    return found


def read(plan: Planned, part: InputPartition) -> Iterator[pa.RecordBatch]:
    """Yield the batches of a part, in the schema of the DataFrame."""
    with server_of(plan.options) as server:
        if isinstance(part, ChangesPart):
            yield from _changes(server, plan, part)
        elif isinstance(part, RowsPart):
            yield from _rows(server, plan, part)


def _changes(server: Server, plan: Planned, part: ChangesPart) -> Iterator[pa.RecordBatch]:
    options, rows = plan.options, EventRows(plan.shape, server.shape_at)
    query = replace(events_of(options), since=part.low, until=part.high)
    for batches in direct.pages(server, query) if options.direct else server.pulled(query):
        yield from rows.batches(batches)


def _rows(server: Server, plan: Planned, part: RowsPart) -> Iterator[pa.RecordBatch]:
    options, shape = plan.options, plan.shape
    names = tuple(column.name for column in shape.columns) if shape.plain else None
    query = RowsQuery(
        options.scope, None, names, None, *options.keys, options.page_size, options.where, part.after, part.until
    )
    if shape.plain:
        plain = TableRows(shape)
        for page in server.transport.run(points.row_batches(query, server.patience)):
            yield from plain.batches(page.batches)
        return
    events = EventRows(shape, server.shape_at)
    for page in server.transport.run(points.row_batches(query, server.patience, arrow.keyed_rows_of)):
        yield from events.reads(page.batches, part.ts)
