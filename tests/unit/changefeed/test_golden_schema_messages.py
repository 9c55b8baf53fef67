"""Messages of debezium, simple, csv and avro are TiCDC's, byte by byte, but for listed differences."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field

import pytest

from support import golden_kafka
from support.feed_batches import event_keys, golden_window
from tistream_changefeed.protocols.avro.encoder import AvroEncoder
from tistream_changefeed.protocols.avro.options import AvroOptions
from tistream_changefeed.protocols.csv.encoder import CsvEncoder
from tistream_changefeed.protocols.csv.options import CsvOptions
from tistream_changefeed.protocols.debezium.encoder import DebeziumEncoder
from tistream_changefeed.protocols.debezium.options import DebeziumOptions
from tistream_changefeed.protocols.messages import Encoder
from tistream_changefeed.protocols.simple.encoder import SimpleEncoder

# Rows of `busy` between the ts at which SELECT shows a column's new type and the ts at which TiCDC's job is done.
RETYPED = {10_102, 10_700, 10_701, 10_702, 10_703}
INVALID_ENUM = {7, 10}  # an ENUM without an element, which TiCDC cannot encode: "" here
WITH_SEQUENCE = {9386, 9387}  # a default that is an expression, which TiCDC's avro cannot encode: no default here
VIRTUAL = b'{"type":"string","optional":true,"field":"label"}'  # of a virtual column, whose values are in no message
BUILT = {
    "debezium": re.compile(rb'((\},"ts_ms":)\d+)'),
    "simple": re.compile(rb'(("buildTs":)\d+)'),
}


@dataclass
class RecordedIds:
    """The ids that TiCDC's registry gave; schemas that it does not know get ids from 1000 on."""

    unknown: dict[tuple[str, str], int] = field(default_factory=dict)

    def id_of(self, subject: str, schema: str) -> int:
        for line in golden_kafka.lines("avro_schemas"):
            if (line["subject"], line["schema"]) == (subject, schema):
                return int(line["id"])
        return self.unknown.setdefault((subject, schema), 1000 + len(self.unknown))


def shown_otherwise() -> set[int]:
    """TiCDC's events whose rows are not what SELECT shows: of `busy` while a column is dropped or changed."""
    groups = [line for line in golden_kafka.lines("differs") if not line["why"].startswith("unchanged row")]
    return {number for line in groups for low, high in line["events"] for number in range(low, high + 1)}


def differing(name: str, encoder: Encoder) -> set[int]:
    """The numbers of the rows whose key or value is not TiCDC's, but for the time at which it was built."""
    theirs, numbers = golden_kafka.row_messages(name), golden_kafka.rows()
    built = BUILT.get(name.removesuffix("_tidb"))
    out: set[int] = set()
    count = 0
    for batch in golden_window(numbered=encoder.numbered).batches:
        found = encoder.rows(batch)
        keys = [None] * len(batch) if found.keys is None else found.keys.to_pylist()
        for event, key, value in zip(event_keys(batch), keys, found.values.to_pylist(), strict=True):
            line = theirs[numbers[event]["i"]]
            shown = value
            if built is not None:
                now = b"%d" % (event.commit_ts >> 18)
                assert [text.removeprefix(start) for text, start in built.findall(value)] == [now]
                shown = built.sub(rb"\g<2>0", value)
            if (key, shown) != (golden_kafka.key_bytes(line), golden_kafka.value_of(line)):
                out.add(line["i"])
            count += 1
    assert count == 10_368
    return out


def rows_of(table: str) -> set[int]:
    return {line["i"] for line in golden_kafka.rows().values() if line["table"] == table}


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("csv", CsvOptions()),
        (
            "csv_full",
            CsvOptions(include_commit_ts=True, output_old_value=True, binary_encoding_method="hex", terminator="\n"),
        ),
    ],
)
def test_csv_is_ticdcs(name: str, options: CsvOptions) -> None:
    assert differing(name, CsvEncoder(options)) == shown_otherwise() | RETYPED | INVALID_ENUM


def test_debezium_without_schemas_is_ticdcs_faults_included() -> None:
    options = DebeziumOptions(debezium_disable_schema=True, enable_tidb_extension=True, compatible=True)
    assert differing("debezium_tidb", DebeziumEncoder(options)) == shown_otherwise() | RETYPED


def test_debezium_with_schemas_is_ticdcs_but_for_virtual_columns() -> None:
    encoder = DebeziumEncoder(DebeziumOptions(compatible=True))
    generated = rows_of("items")
    differences = differing("debezium", encoder)
    assert differences - generated == shown_otherwise() | RETYPED
    theirs, numbers = golden_kafka.row_messages("debezium"), golden_kafka.rows()
    compared = 0
    for batch in golden_window().batches:
        if batch.version.name[1] == "items":
            for event, value in zip(event_keys(batch), encoder.rows(batch).values.to_pylist(), strict=True):
                expected = golden_kafka.value_of(theirs[numbers[event]["i"]])
                assert expected is not None
                assert BUILT["debezium"].sub(rb"\g<2>0", value) == expected.replace(b"," + VIRTUAL, b"")
                compared += 1
    assert compared == len(generated)


def test_a_null_stays_null_in_debezium_though_its_column_has_a_default() -> None:
    options = DebeziumOptions(debezium_disable_schema=True, enable_tidb_extension=True)
    filled = differing("debezium_tidb", DebeziumEncoder(options)) - shown_otherwise() - RETYPED
    theirs = golden_kafka.row_messages("debezium_tidb")
    tables = Counter(golden_kafka.events()[number]["table"] for number in filled)
    assert set(tables) <= {"ddl1", "ddl2", "ddl3", "old1", "busy", "orders", "temp_like"}
    assert all(golden_kafka.value_of(theirs[number]) is not None for number in filled)


def test_simple_is_ticdcs_but_for_versions_that_are_shown_earlier() -> None:
    encoder = SimpleEncoder()
    differences = differing("simple", encoder) - shown_otherwise() - RETYPED
    tables = Counter(golden_kafka.events()[number]["table"] for number in differences)
    theirs, numbers = golden_kafka.row_messages("simple"), golden_kafka.rows()
    version = re.compile(rb'"schemaVersion":\d+')
    for batch in golden_window(numbered=True).batches:
        for event, value in zip(event_keys(batch), encoder.rows(batch).values.to_pylist(), strict=True):
            number = numbers[event]["i"]
            if number in differences:
                expected = golden_kafka.value_of(theirs[number])
                assert expected is not None
                shown = BUILT["simple"].sub(rb"\g<2>0", value)
                assert version.sub(b"", shown) == version.sub(b"", expected)
    assert dict(tables) == {"busy": 43, "p_x": 8, "p_list": 1}


@pytest.mark.parametrize("name", ["avro", "avro_tidb"])
def test_avro_is_ticdcs_but_for_virtual_columns(name: str) -> None:
    texts = {
        "decimal_handling_mode": "string",
        "bigint_unsigned_handling_mode": "string",
        "enable_tidb_extension": True,
    }
    registry = RecordedIds()
    options = AvroOptions(lambda database, table: f"{name}_{database}_{table}", **(texts if name != "avro" else {}))
    differences = differing(name, AvroEncoder(options, registry))
    deletes = {line["i"] for line in golden_kafka.rows().values() if line["op"] == "delete"}  # their values are null
    assert differences - rows_of("items") == (shown_otherwise() | RETYPED | WITH_SEQUENCE | INVALID_ENUM) - deletes
    unknown = {subject.removeprefix(f"{name}_") for subject, _ in registry.unknown}
    assert {one for one in unknown if "busy" not in one} == {
        "shop_items-value",
        "shop_with_seq-key",
        "shop_with_seq-value",
    }
