"""Random rows of all types, encoded as Avro and CSV, are what independent readers find in them."""

from __future__ import annotations

import csv
import io
import json
import random
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

import fastavro
import numpy as np
import pyarrow as pa
import pytest

from support.effort import seeds
from support.plain_json import document
from support.random_batches import random_batch, random_version
from tistream.errors import CannotEncode
from tistream.schema.tidb import table as t
from tistream.schema.tidb.table import Column
from tistream.schema.visible import TableVersion
from tistream_changefeed.protocols.avro.decimal_kernel import unscaled_bytes
from tistream_changefeed.protocols.avro.encoder import AvroEncoder
from tistream_changefeed.protocols.avro.options import AvroOptions
from tistream_changefeed.protocols.csv.encoder import CsvEncoder
from tistream_changefeed.protocols.csv.options import CsvOptions
from tistream_changefeed.protocols.names import safe_name
from tistream_changefeed.rows.row_batch import RowBatch

ROWS = 40
Member = dict[str, Any]


@dataclass
class Schemas:
    """A registry in memory."""

    known: list[Any] = field(default_factory=list)

    def id_of(self, subject: str, schema: str) -> int:
        self.known.append(json.loads(schema))
        return len(self.known) - 1

    def read(self, message: bytes) -> Member:
        assert message[0] == 0
        source = io.BytesIO(message[5:])
        parsed = fastavro.parse_schema(self.known[int.from_bytes(message[1:5], "big")])
        found = fastavro.schemaless_reader(source, parsed, None)
        assert source.read() == b""
        assert isinstance(found, dict)
        return found


def named(batch: RowBatch, rng: random.Random) -> RowBatch:
    """The batch with names of ENUM and SET elements in the place of numbers."""
    fields = {name: getattr(batch, name) for name in batch.__slots__}
    for side in ("new", "old"):
        fields[side] = [
            pa.array(
                [None if one is None else rng.choice(column.elems) for one in array.to_pylist()], pa.large_string()
            )
            if column.tp in (t.ENUM, t.SET)
            else array
            for column, array in zip(batch.columns, getattr(batch, side), strict=True)
        ]
    return RowBatch(**fields)


def batches(seed: int) -> tuple[RowBatch, random.Random]:
    rng = random.Random(seed)
    while True:
        version: TableVersion = random_version(rng)
        names = [safe_name(column.name) for column in version.table.visible_columns]
        if len(set(names)) == len(names):
            return named(random_batch(rng, version, rng.randint(1, ROWS)), rng), rng


def in_avro(column: Column, value: Any, options: AvroOptions) -> Any:  # noqa: PLR0911  # one for each kind of type
    """The value that a reader of the message finds."""
    if value is None:
        return None
    match column.tp:
        case t.DECIMAL if options.precise:
            return Decimal(value)
        case t.BIT:
            size = -(-column.flen // 8)
            return (value % (1 << (8 * size))).to_bytes(size, "big")
        case t.LONGLONG if column.unsigned:
            return str(value) if options.unsigned_as_text else value - (1 << 64) * (value >> 63)
        case t.FLOAT:
            return float(np.float32(value))
        case t.JSON:
            return document(value)
    if column.tp in t.INTEGERS and column.unsigned:
        return value - (1 << 64) * (value >> 63)
    if column.tp in t.TEXTS and isinstance(value, str) and column.flag & 128:
        return value.encode()
    return value


@pytest.mark.parametrize("seed", seeds(10, 300))
def test_random_rows_are_read_by_fastavro(seed: int) -> None:
    batch, rng = batches(seed)
    options = AvroOptions(
        lambda database, table: table,
        rng.choice(["precise", "string"]),
        rng.choice(["long", "string"]),
        rng.random() < 0.5,
    )
    schemas = Schemas()
    found = AvroEncoder(options, schemas).rows(batch)
    key = [column for column in batch.columns if column.flag & t.FLAG_PRIMARY]
    assert (found.keys is None) == (not key)
    for at, value in enumerate(found.values.to_pylist()):
        new, old = int(batch.new_at[at]), int(batch.old_at[at])
        arrays, row = (batch.new, new) if new >= 0 else (batch.old, old)
        shown = {
            column.name: in_avro(column, array[row].as_py(), options)
            for column, array in zip(batch.columns, arrays, strict=True)
        }
        if key:
            assert found.keys is not None
            assert schemas.read(found.keys[at].as_py()) == {safe_name(one.name): shown[one.name] for one in key}
        if new < 0:
            assert value is None
            continue
        expected = {safe_name(name): one for name, one in shown.items()}
        if options.enable_tidb_extension:
            ts = int(batch.commit_ts[at])
            expected |= {"_tidb_op": "c" if old < 0 else "u", "_tidb_commit_ts": ts}
            expected["_tidb_commit_physical_time"] = ts >> 18
        assert schemas.read(value) == expected


@pytest.mark.parametrize("seed", seeds(10, 300))
def test_random_rows_are_read_by_pythons_csv(seed: int) -> None:
    batch, rng = batches(seed)
    options = CsvOptions(quote=rng.choice(["'", '"']), null="\\N", include_commit_ts=True, terminator="\n")
    for at, value in enumerate(CsvEncoder(options).rows(batch).values.to_pylist()):
        ((op, table, database, ts, *cells),) = csv.reader(
            io.StringIO(value.decode(), newline=""), quotechar=options.quote, strict=True
        )
        new, old = int(batch.new_at[at]), int(batch.old_at[at])
        assert op == ("D" if new < 0 else "I" if old < 0 else "U")
        assert (database, table, int(ts)) == (*batch.version.name, int(batch.commit_ts[at]))
        arrays, row = (batch.new, new) if new >= 0 else (batch.old, old)
        for column, array, cell in zip(batch.columns, arrays, cells, strict=True):
            held = array[row].as_py()
            if held is None:
                assert cell == "\\N"
            elif column.tp == t.JSON:
                assert cell == document(held)
            elif column.tp in (t.FLOAT, t.DOUBLE):
                assert np.float32(cell) == np.float32(held) if column.tp == t.FLOAT else float(cell) == held
            elif not isinstance(held, bytes):
                assert cell == str(held)


def test_unscaled_numbers_are_those_of_python() -> None:
    rng = random.Random(7)
    texts = ["0.00", "-0.01", "1.27", "1.28", "-1.28", "-1.29", "2.55", "327.67", "-327.68", "9" * 63 + ".99"]
    texts += [
        f"{rng.choice(['', '-'])}{rng.randrange(10 ** rng.randint(1, 60))}.{rng.randrange(100):02}" for _ in range(300)
    ]
    for text, found in zip(texts, unscaled_bytes(pa.array(texts, pa.large_string()), 2).to_pylist(), strict=True):
        number = int(text.replace(".", ""))
        assert int.from_bytes(found, "big", signed=True) == number
        size = len(found) - 1
        assert size == 0 or not -(1 << (8 * size - 1)) <= number < 1 << (8 * size - 1), "a byte less would do"


def test_columns_whose_avro_names_are_equal_are_refused_by_name() -> None:
    from support.feed_tables import column, version

    table = version([column("a b"), column("a_b")])
    batch = random_batch(random.Random(1), table, 3)
    with pytest.raises(CannotEncode, match=r"'a b' and 'a_b'.*column selector"):
        AvroEncoder(AvroOptions(lambda database, name: name), Schemas()).rows(batch)
