"""Arrow answers in the client: a cut one is never taken for a whole one, and nothing is copied."""

from __future__ import annotations

import pyarrow as pa
import pytest

from tistream_client.core import arrow
from tistream_client.core.asking import CutOff
from tistream_client.core.steps import Answer

END_OF_STREAM = 8
COUNT = 40
ROW = pa.struct([("id", pa.int64()), ("name", pa.large_string()), ("total", pa.float64())])
KEY = pa.struct([("id", pa.int64())])


def body_of(batch: pa.RecordBatch, metadata: dict[str, str] | None) -> bytes:
    """An IPC stream as the API sends it: batches of rows, and one without rows that has the position."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as stream:
        stream.write_batch(batch.slice(0, 25))
        stream.write_batch(batch.slice(25))
        if metadata is not None:
            stream.write_batch(batch.slice(0, 0), metadata)
    found: bytes = sink.getvalue().to_pybytes()
    return found


def events() -> pa.RecordBatch:
    numbers = pa.array(range(COUNT), pa.int64())
    rows = [None if at % 7 == 3 else {"id": at, "name": f"n{at}", "total": at / 3} for at in range(COUNT)]
    names = ["seq", "op", "commit_ts", "start_ts", "schema_version", "key", "row", "old_row"]
    keys = pa.array([{"id": at} for at in range(COUNT)], KEY)
    sides = [keys, pa.array(rows, ROW), pa.nulls(COUNT, ROW)]
    return pa.record_batch([numbers, pa.array(["put"] * COUNT), numbers, numbers, numbers, *sides], names=names)


def table() -> pa.RecordBatch:
    rows = pa.array([{"id": at, "name": f"n{at}", "total": None} for at in range(COUNT)], ROW)
    return pa.record_batch([rows, pa.array(range(COUNT), pa.int64())], names=["row", "commit_ts"])


PULLED = body_of(events(), {"tistream.type": "resolved", "tistream.cursor": "c", "tistream.resolved_ts": "9"})
LISTED = body_of(table(), {"tistream.type": "end", "tistream.ts": "9", "tistream.cursor": "c"})


def test_an_answer_that_was_cut_off_anywhere_is_not_read() -> None:
    for at in range(0, len(PULLED) - END_OF_STREAM, 8):
        with pytest.raises(CutOff):
            arrow.page_of(Answer(200, {}, PULLED[:at]), None, None)
    for at in range(0, len(LISTED) - END_OF_STREAM, 8):
        with pytest.raises(CutOff):
            arrow.rows_of(Answer(200, {}, LISTED[:at]))


def test_a_stream_without_a_position_was_cut_off() -> None:
    for metadata in (None, {"tistream.type": "resolved"}):
        with pytest.raises(CutOff):
            arrow.page_of(Answer(200, {}, body_of(events(), metadata)), None, None)
    with pytest.raises(CutOff):
        arrow.rows_of(Answer(200, {}, body_of(table(), {"tistream.ts": "9"})))


def test_pages_have_the_position_and_the_rows() -> None:
    page = arrow.page_of(Answer(200, {}, PULLED), "before", None)
    assert (page.cursor, page.resolved_ts, page.after) == ("c", 9, "before")
    assert [batch.num_rows for batch in page.batches] == [25, 15]
    assert pa.Table.from_batches(page.batches, page.schema)["row"].to_pylist() == events()["row"].to_pylist()
    rows = arrow.rows_of(Answer(200, {}, LISTED))
    assert (rows.ts, rows.cursor) == (9, "c")
    assert pa.Table.from_batches(rows.batches, rows.schema).to_pylist() == table()["row"].to_pylist()


def test_rows_from_before_a_chosen_column_have_no_member_and_are_there() -> None:
    page = arrow.page_of(Answer(200, {}, PULLED), None, ("added later",))
    rows = pa.Table.from_batches(page.batches, page.schema)["row"].to_pylist()
    assert rows == [None if row is None else {} for row in events()["row"].to_pylist()]


@pytest.mark.parametrize("columns", [None, ("total", "id")])
def test_values_stay_where_the_answer_has_them(columns: tuple[str, ...] | None) -> None:
    body = pa.py_buffer(PULLED)
    whole = range(body.address, body.address + body.size)
    for batch in arrow.page_of(Answer(200, {}, PULLED), None, columns).batches:
        for name in columns or ROW.names:
            values = batch["row"].field(name).buffers()[-1]
            assert values.address in whole
        assert batch["commit_ts"].buffers()[1].address in whole
