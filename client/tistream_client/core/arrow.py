"""Reads complete Arrow answers without a copy of their columns. pyarrow is imported when the first one arrives."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tistream_client.core.asking import CutOff
from tistream_client.core.events import ArrowPage
from tistream_client.core.steps import Answer

if TYPE_CHECKING:
    import pyarrow as pa

_SIDES = ("row", "old_row")
_TIME_SHIFT = 18


@dataclass(frozen=True, slots=True)
class TablePage:
    """Rows of a table as of `ts`. `cursor` is that of the next page; None after the last row."""

    batches: Sequence[pa.RecordBatch]
    schema: pa.Schema
    ts: int
    cursor: str | None


@dataclass(frozen=True, slots=True)
class DiffPage:
    """Net changes of a table up to `ts`, with the columns `key`, `row` and `old_row`. `keys` are the names of the
    columns of `key`; empty if nothing has changed. `cursor` is as in TablePage."""

    batches: Sequence[pa.RecordBatch]
    keys: tuple[str, ...]
    ts: int
    cursor: str | None


def page_of(answer: Answer, after: str | None, columns: tuple[str, ...] | None) -> ArrowPage:
    """The page of a pull of one table, which began at the cursor `after` (None: at the pull's start). Columns: op,
    commit_ts, commit_time, start_ts, schema_version, key, row, old_row. With `columns`, the structs `row` and `old_row`
    have only these columns. Raises CutOff."""
    batches, schema, end = _stream(answer)
    if b"tistream.cursor" not in end:
        raise CutOff
    resolved = end.get(b"tistream.resolved_ts")
    shown = [event_batch(batch, columns) for batch in batches if batch.num_rows]
    empty = event_batch(_no_rows(schema), columns)
    return ArrowPage(
        end[b"tistream.cursor"].decode(), None if resolved is None else int(resolved), after, shown, empty.schema
    )


def rows_of(answer: Answer) -> TablePage:
    """The page of a table as of a ts. Its columns are those of the table. Raises CutOff."""
    return _table_page(answer, _row_batch)


def keyed_rows_of(answer: Answer) -> TablePage:
    """The page of a table as of a ts. Its columns are key, row, commit_ts and schema_version. Raises CutOff."""
    return _table_page(answer, lambda batch: batch)


def diff_of(answer: Answer) -> DiffPage:
    """The page of a diff, whose answer is Arrow IPC streams of row events and a last one that marks the end. Raises
    CutOff if the end is missing."""
    batches = _streams(answer)
    if not batches or (batches[-1].schema.metadata or {}).get(b"tistream.type") != b"end":
        raise CutOff
    [end] = batches.pop().to_pylist()
    found = [batch for batch in batches if batch.num_rows]
    keys = tuple(field.name for field in found[0].schema.field("key").type) if found else ()
    return DiffPage(found, keys, int(end["to"]), end["cursor"])


def _table_page(answer: Answer, shown: Callable[[pa.RecordBatch], pa.RecordBatch]) -> TablePage:
    batches, schema, end = _stream(answer)
    if end.get(b"tistream.type") != b"end":
        raise CutOff
    cursor = end.get(b"tistream.cursor")
    found = [shown(batch) for batch in batches if batch.num_rows]
    empty = shown(_no_rows(schema))
    return TablePage(found, empty.schema, int(end[b"tistream.ts"]), None if cursor is None else cursor.decode())


def _stream(answer: Answer) -> tuple[list[pa.RecordBatch], pa.Schema, dict[bytes, bytes]]:
    """(batches, schema, metadata of the last batch) of an IPC stream. Raises CutOff."""
    import pyarrow as pa  # noqa: PLC0415 - a program that reads no Arrow does not need it

    try:
        with pa.ipc.open_stream(pa.py_buffer(answer.body)) as stream:
            schema = stream.schema
            found = list(stream.iter_batches_with_custom_metadata())
    except (pa.ArrowInvalid, OSError) as error:
        raise CutOff from error
    end = found[-1].custom_metadata if found else None
    if end is None:
        raise CutOff
    return [one.batch for one in found], schema, dict(end)


def _streams(answer: Answer) -> list[pa.RecordBatch]:
    """The batches of IPC streams that follow each other. Raises CutOff."""
    import pyarrow as pa  # noqa: PLC0415

    found: list[pa.RecordBatch] = []
    body = pa.BufferReader(pa.py_buffer(answer.body))
    try:
        while body.tell() < body.size():
            with pa.ipc.open_stream(body) as stream:
                found += list(stream)
    except (pa.ArrowInvalid, OSError) as error:
        raise CutOff from error
    return found


def _no_rows(schema: pa.Schema) -> pa.RecordBatch:
    import pyarrow as pa  # noqa: PLC0415

    return pa.RecordBatch.from_arrays([pa.array([], field.type) for field in schema], schema=schema)


def event_batch(batch: pa.RecordBatch, columns: tuple[str, ...] | None) -> pa.RecordBatch:
    """A batch of an answer in the form of `page_of`: with `commit_time`, without `seq`."""
    import pyarrow as pa  # noqa: PLC0415
    import pyarrow.compute as pc  # noqa: PLC0415

    arrays, fields = [], []
    for field, array in zip(batch.schema, batch.columns, strict=True):
        if field.name == "seq":
            continue
        if columns is not None and field.name in _SIDES:
            array = _chosen(array, columns)  # noqa: PLW2901
            field = field.with_type(array.type)  # noqa: PLW2901
        arrays.append(array)
        fields.append(field)
        if field.name == "commit_ts":
            time = pc.shift_right(array, pa.scalar(_TIME_SHIFT, pa.int64())).view(pa.timestamp("ms", "UTC"))
            arrays.append(time)
            fields.append(pa.field("commit_time", time.type, nullable=False))
    return pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields, metadata=batch.schema.metadata))


def _chosen(array: pa.StructArray, columns: tuple[str, ...]) -> pa.StructArray:
    import pyarrow as pa  # noqa: PLC0415

    there = [array.type.field(column) for column in columns if array.type.get_field_index(column) >= 0]
    if not there:
        return pa.StructArray.from_buffers(pa.struct([]), len(array), [array.buffers()[0]], array.null_count)
    mask = array.is_null() if array.null_count else None
    return pa.StructArray.from_arrays([array.field(field.name) for field in there], fields=there, mask=mask)


def _row_batch(batch: pa.RecordBatch) -> pa.RecordBatch:
    import pyarrow as pa  # noqa: PLC0415

    row = batch.column("row")
    fields = list(row.type)
    return pa.RecordBatch.from_arrays(
        [row.field(field.name) for field in fields], schema=pa.schema(fields, metadata=batch.schema.metadata)
    )
