"""What the encoder makes of SQL text, the decoder shows as the same text; and a value that is of no type is refused."""

from __future__ import annotations

import random
from typing import Any

import pyarrow as pa
import pytest

from support.row_bytes import column, record_key, table
from tistream.decode.rows import decode_rows
from tistream.encode.cells import NotEncodable
from tistream.encode.rows import encode_keys, encode_values
from tistream.encode.table_encoding import KeyForm, encoding_of
from tistream.schema.tidb import table as t
from tistream.schema.tidb.table import Column

ROWS = 300


def texts(values: list[str | None]) -> Any:
    return pa.array([None if one is None else one.encode() for one in values], pa.large_binary())


def decimal(rng: random.Random, whole: int, fraction: int) -> str:
    digits = rng.randrange(10 ** rng.randrange(1, whole + fraction + 1))
    text = str(digits).rjust(fraction + 1, "0")
    text = f"{text[: len(text) - fraction]}.{text[len(text) - fraction :]}" if fraction else text
    return f"-{text}" if digits and rng.random() < 0.5 else text


def moment(rng: random.Random, digits: int) -> str:
    clock = f"{rng.randrange(24):02}:{rng.randrange(60):02}:{rng.randrange(60):02}"
    date = f"{rng.randrange(10_000):04}-{rng.randrange(13):02}-{rng.randrange(32):02}"
    return f"{date} {clock}" + (f".{rng.randrange(10**digits):0{digits}}" if digits else "")


def duration(rng: random.Random, digits: int) -> str:
    seconds, micro = rng.randrange(1, 839 * 3600), rng.randrange(10**digits)
    text = f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}.{micro:0{digits}}"
    return f"-{text}" if rng.random() < 0.5 else text


KINDS = [
    (column(t.LONGLONG, id=1), lambda rng: str(rng.getrandbits(64) - (1 << 63) >> rng.randrange(64))),
    (column(t.LONGLONG, id=2, flag=t.FLAG_UNSIGNED), lambda rng: str(rng.getrandbits(64) >> rng.randrange(64))),
    (column(t.DECIMAL, id=3, flen=65, decimal=30), lambda rng: decimal(rng, 35, 30)),
    (column(t.DECIMAL, id=4, flen=9, decimal=0), lambda rng: decimal(rng, 9, 0)),
    (column(t.DECIMAL, id=5, flen=14, decimal=2), lambda rng: decimal(rng, 12, 2)),
    (column(t.DATETIME, id=6, decimal=6), lambda rng: moment(rng, 6)),
    (column(t.DATETIME, id=7, decimal=0), lambda rng: moment(rng, 0)),
    (column(t.DURATION, id=8, decimal=3), lambda rng: duration(rng, 3)),
    (column(t.VARCHAR, id=9), lambda rng: "añ日😀 '\\\0"[: rng.randrange(9)] * rng.choice([1, 3, 9_000])),
    (column(t.JSON, id=300), lambda rng: rng.choice(['{"a":[1,2.5,null,"x"],"b":{}}', "18446744073709551615", "[]"])),
    (column(t.VECTOR, id=301), lambda rng: rng.choice(["[]", "[1,2.5]", "[-0.25]"])),
]


@pytest.mark.parametrize("seed", range(3))
def test_values_decode_to_their_texts(seed: int) -> None:
    rng = random.Random(seed)
    columns = [one for one, _ in KINDS]
    of = table(*columns)
    drawn = {one.id: [draw(rng) if rng.random() < 0.9 else None for _ in range(ROWS)] for one, draw in KINDS}
    values = encode_values(encoding_of(of, new_collations=True), {id_: texts(one) for id_, one in drawn.items()}, ROWS)
    decoded = decode_rows(of, columns, pa.array([record_key(104, 1)] * ROWS, pa.binary()), values)
    assert decoded.errors == {}
    for one, array in zip(columns, decoded.batch.columns, strict=True):
        found = [None if value is None else str(value) for value in array.to_pylist()]
        assert found == drawn[one.id], one


@pytest.mark.parametrize("seed", range(3))
def test_keys_of_every_kind_decode_to_their_texts(seed: int) -> None:
    rng = random.Random(seed)
    for at, (one, draw) in enumerate(KINDS[:9]):
        of = table(one, primary=(0,))
        encoding = encoding_of(of, new_collations=False)
        assert encoding.form is KeyForm.COMMON
        drawn = [draw(rng) for _ in range(ROWS)]
        keys = encode_keys(encoding, 104, [texts(drawn)], ROWS)
        decoded = decode_rows(of, [one], keys, pa.array([bytes([0x80, 0, 0, 0, 0, 0])] * ROWS, pa.binary()))
        assert decoded.errors == {}, at
        assert [str(value) for value in decoded.batch.columns[0].to_pylist()] == drawn


@pytest.mark.parametrize(
    ("of", "text"),
    [
        (column(t.LONGLONG), "1x"),
        (column(t.LONGLONG, flag=t.FLAG_UNSIGNED), "-1"),
        (column(t.DECIMAL, flen=4, decimal=2), "100.00"),
        (column(t.DECIMAL, flen=4, decimal=2), "1.000"),
        (column(t.DATETIME), "2020-13-01"),
        (column(t.DURATION), "10:60:00"),
        (column(t.JSON), "{"),
        (column(t.GEOMETRY), "x"),
    ],
)
def test_a_text_that_is_not_of_the_type_is_refused_by_the_columns_name(of: Column, text: str) -> None:
    with pytest.raises(NotEncodable, match="column c: ") as error:
        encode_values(encoding_of(table(of), new_collations=True), {1: texts([text])}, 1)
    assert text not in str(error.value).split()
