"""Pages of record batches as one table, one reader, and DataFrames. Values are not copied, except that Polars makes
views of texts, and that rows of several schemas are united."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from tistream_client.core.arrow import TablePage
from tistream_client.core.errors import SchemaChanged
from tistream_client.core.events import ArrowPage

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl
    import pyarrow as pa

AnyPage = ArrowPage | TablePage


def table_of(pages: Sequence[AnyPage], *, flat: bool) -> pa.Table:
    """The rows of the pages. Columns that were added or dropped in between are null where they did not exist. With
    `flat`, the columns of structs are columns, such as `row.total`. Raises SchemaChanged if a column changed its
    type."""
    import pyarrow as pa  # noqa: PLC0415

    tables = [pa.Table.from_batches(page.batches, page.schema) for page in pages if page.batches]
    if not tables:
        tables = [pages[-1].schema.empty_table()] if pages else [pa.table({})]
    try:
        table = pa.concat_tables(tables, promote_options="default")
    except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
        raise _changed(str(error)) from None
    return table.flatten() if flat else table


def reader_of(pages: Iterator[AnyPage]) -> pa.RecordBatchReader:
    """A reader of the pages. Pages up to the first one with rows are fetched by this call, and the others as the reader
    is read. It has the schema of the first page with rows, and raises SchemaChanged at the first batch with another
    schema."""
    import pyarrow as pa  # noqa: PLC0415

    seen: list[AnyPage] = []
    for page in pages:
        seen = [page]
        if page.batches:
            break
    schema = seen[-1].schema if seen else pa.schema([])

    def batches() -> Iterator[pa.RecordBatch]:
        for page in seen:
            yield from page.batches
        for page in pages:
            for batch in page.batches:
                if not batch.schema.equals(schema):
                    raise _changed(f"{batch.schema} after {schema}")
                yield batch

    return pa.RecordBatchReader.from_batches(schema, batches())


def polars_of(table: pa.Table) -> pl.DataFrame:
    """The table as a DataFrame of Polars."""
    import polars as pl  # noqa: PLC0415

    found = pl.from_arrow(table)
    assert isinstance(found, pl.DataFrame)
    return found


def pandas_of(table: pa.Table) -> pd.DataFrame:
    """The table as a DataFrame of pandas, whose columns are those of Arrow: integers beside nulls stay integers."""
    import pandas as pd  # noqa: PLC0415

    return table.to_pandas(types_mapper=pd.ArrowDtype)


def _changed(detail: str) -> SchemaChanged:
    return SchemaChanged(
        "the table's columns changed in this range, and one stream has one schema. Read the parts with until= and "
        f"since=, or page by page with arrow_pages(): {detail[:500]}"
    )
