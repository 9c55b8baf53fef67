"""Parquet files of a feed, and that a file does not depend on the pieces in which its rows come."""

from __future__ import annotations

from random import Random

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from support.feed_tables import Change, batch, column, version
from tistream.errors import CannotEncode
from tistream.schema.tidb import table as t
from tistream_changefeed.sinks.storage.formats import ParquetFormat
from tistream_changefeed.sinks.storage.open_files import FILES_MAX, EndedFile, OpenFiles
from tistream_changefeed.sinks.storage.placed_rows import FilePlace, PlacedBatch, in_order

TABLE = version([column("id"), column("name", t.VARCHAR)])


def test_a_parquet_file_has_an_operation_a_commit_ts_and_the_row() -> None:
    changes = [
        Change(None, {"id": 1, "name": "a"}, 10, 9),
        Change({"id": 1, "name": "a"}, {"id": 1, "name": None}, 12, 11),
        Change({"id": 1, "name": None}, None, 14, 13),
    ]
    rows, sizes = ParquetFormat().rows(batch(TABLE, changes))
    found = pq.read_table(pa.BufferReader(ParquetFormat().body([rows.slice(0, 1), rows.slice(1)]))).to_pylist()
    assert found == [
        {"_op": "I", "_commit_ts": 10, "_start_ts": 9, "id": 1, "name": "a"},
        {"_op": "U", "_commit_ts": 12, "_start_ts": 11, "id": 1, "name": None},
        {"_op": "D", "_commit_ts": 14, "_start_ts": 13, "id": 1, "name": None},
    ]
    assert sizes.tolist() == [33, 32, 32]


def test_a_column_with_a_name_of_ours_is_refused() -> None:
    of = version([column("_OP")])
    with pytest.raises(CannotEncode, match="_OP"):
        ParquetFormat().rows(batch(of, [Change(None, {"_OP": 1})]))


def test_files_do_not_depend_on_the_pieces_in_which_rows_come() -> None:
    rng, form = Random(7), ParquetFormat()
    places = [FilePlace(TABLE, number, "") for number in range(3)]
    owners = np.array([rng.randrange(3) for _ in range(500)])
    sizes = np.array([rng.randrange(1, 90) for _ in range(500)])
    rows = in_order(
        [
            PlacedBatch(place, pa.table({"n": mine}), mine, 100 + mine, sizes[mine], mine.astype(np.uint64))
            for number, place in enumerate(places)
            for mine in [np.flatnonzero(owners == number)]
        ]
    )

    def files(cuts: list[int]) -> list[tuple[str, bytes]]:
        collected, ended = OpenFiles(1_000), list[EndedFile]()
        for start, end in zip([0, *cuts], [*cuts, 500], strict=True):
            ended += collected.add(rows.between(start, end), ["a", "b", "c"])
        ended += collected.take()
        return [(directory, form.body(tables)) for directory, tables in ended]

    whole = files([])
    assert len(whole) > 3 * FILES_MAX
    for _ in range(5):
        assert sorted(files(sorted(rng.sample(range(1, 500), rng.randrange(1, 40))))) == sorted(whole)
    read = {name: [] for name in "abc"}
    for directory, body in whole:
        read[directory] += pq.read_table(pa.BufferReader(body))["n"].to_pylist()
    assert read == {name: np.flatnonzero(owners == number).tolist() for number, name in enumerate("abc")}
