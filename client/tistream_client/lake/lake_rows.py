"""The rows of a table as of a time, of which most come from an Iceberg table."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Protocol, TypeVar

from tistream_client import frames
from tistream_client.core import ndjson, points
from tistream_client.core.arrow import DiffPage
from tistream_client.core.asking import Patience
from tistream_client.core.calls import ROWS_A_PAGE
from tistream_client.core.errors import Gone, WrongArgument
from tistream_client.core.points import Range, RowsQuery
from tistream_client.core.pull import NDJSON, PullQuery, newest_ts, pull
from tistream_client.core.steps import Asking, Reading
from tistream_client.lake import snapshots
from tistream_client.lake.snapshots import IcebergTable, LakeSnapshot

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl
    import pyarrow as pa


T = TypeVar("T")


class Server(Protocol):
    """The methods of Transport that LakeRows uses."""

    def run(self, reading: Reading[T]) -> Iterator[T]: ...

    def ask(self, asking: Asking[T]) -> T: ...


def check(query: RowsQuery, table: IcebergTable) -> None:
    """Check that a query reads a whole table, and that the Iceberg table has its rows. Raises WrongArgument."""
    if query.where is not None or any(one is not None for one in (query.key, query.from_key, query.to_key)):
        raise WrongArgument("lake", "is given beside a key or a condition", "rows(at=…, columns=…).over(lake)")
    snapshots.check_lake(table, query.scope)


class LakeRows:
    """The rows of a table as of a time, in no order, with the types of an Iceberg table. Each method reads them anew:
    the newest snapshot at or below the time, and from the server the net changes after it.

    All rows come from the server if there is no such snapshot, if it lacks a requested column, if it is below
    retention, or if the schema has changed since. A column then keeps the server's type if the type in the Iceberg
    table cannot hold its values.
    """

    def __init__(self, query: RowsQuery, table: IcebergTable, transport: Server, patience: Patience) -> None:
        check(query, table)
        self._query, self._lake = query, table
        self._transport, self._patience = transport, patience

    def to_arrow(self) -> pa.Table:
        """The rows as a table. Its metadata has the ts as `tistream.ts`. Raises ApiError, NoAnswer, and what pyiceberg
        raises."""
        query = self._query
        self._lake.refresh()
        snapshot = snapshots.snapshot_at(self._lake, query.at)
        if snapshot is None or not {*(query.columns or ())} <= {*self._names(snapshot.snapshot_id)}:
            return self._of_server(query.at)
        ts = query.at
        if ts is None:
            ts = max(self._transport.ask(newest_ts(query.scope, self._patience)), snapshot.ts)
        if ts == snapshot.ts:
            return _stamped(self._snapshot(snapshot.snapshot_id, ()), ts)
        found = self._later(snapshot, ts)
        return self._of_server(ts) if found is None else _stamped(found, ts)

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        return self.to_arrow().__arrow_c_stream__(requested_schema)

    def to_polars(self) -> pl.DataFrame:
        """Like to_arrow, as a DataFrame of Polars."""
        return frames.polars_of(self.to_arrow())

    def to_pandas(self) -> pd.DataFrame:
        """Like to_arrow, as a DataFrame of pandas."""
        return frames.pandas_of(self.to_arrow())

    def _of_server(self, ts: int | None) -> pa.Table:
        reading = points.row_batches(replace(self._query, at=ts), self._patience)
        whole = frames.table_of(list(self._transport.run(reading)), flat=False)
        return snapshots.fitted(whole, self._lake.schema())

    def _later(self, snapshot: LakeSnapshot, ts: int) -> pa.Table | None:
        """The rows of a snapshot after the changes up to a ts. None if they cannot be made from it."""
        try:
            pages = self._diff(Range(snapshot.ts, ts))
            changed = self._changed(snapshot.ts, ts)
        except Gone:  # the newest snapshot of a table that seldom changes may be below retention
            return None
        return None if changed else self._merged(snapshot.snapshot_id, pages)

    def _merged(self, snapshot_id: int, pages: list[DiffPage]) -> pa.Table | None:
        found = snapshots.rows_at(self._snapshot(snapshot_id, snapshots.keys_of(pages)), pages)
        return found if found is None or self._query.columns is None else found.select(self._query.columns)

    def _snapshot(self, snapshot_id: int, keys: tuple[str, ...]) -> pa.Table:
        """The rows of a snapshot, with the columns that were asked for and those of `keys`, as far as it has them."""
        there = self._names(snapshot_id)
        wanted = there if self._query.columns is None else [*self._query.columns, *keys]
        chosen = tuple(dict.fromkeys(name for name in wanted if name in there))
        return self._lake.scan(selected_fields=chosen, snapshot_id=snapshot_id).to_arrow().select(chosen)

    def _names(self, snapshot_id: int) -> list[str]:
        """The columns of a snapshot that are those of the table."""
        scan = self._lake.scan(selected_fields=("*",), snapshot_id=snapshot_id)
        return [one.name for one in scan.projection().fields if one.name != "_raw"]

    def _diff(self, range_: Range) -> list[DiffPage]:
        reading = points.diff_batches(self._query.scope, range_, ROWS_A_PAGE, self._patience)
        return list(self._transport.run(reading))

    def _changed(self, since: int, until: int) -> bool:
        """Whether the table had a DDL event in (`since`, `until`], so that its definition may have changed."""
        query = PullQuery(self._query.scope, since, until, None, None, "ddl", ROWS_A_PAGE)
        pages = self._transport.run(pull(query, NDJSON, ndjson.page_of, self._patience, follow=False))
        return any(page.events for page in pages)


def _stamped(table: pa.Table, ts: int) -> pa.Table:
    return table.replace_schema_metadata({"tistream.ts": str(ts)})
