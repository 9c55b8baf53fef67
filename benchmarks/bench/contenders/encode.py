"""Row events to Kafka messages: TiStream's encoders, and orjson and fastavro row by row."""

from __future__ import annotations

import base64
import io
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import fastavro
import numpy as np
import orjson
import pyarrow as pa

from bench.inputs.mixed_rows import committed, table_info
from bench.inputs.pulled_pool import SNAPSHOT_TS
from tistream.decode import warm
from tistream.read.events import Events
from tistream.read.row_events import Interval, Shapes, render
from tistream.schema.records import TableText
from tistream.schema.tidb import table as t
from tistream.schema.visible import StoredTable, TableVersion
from tistream_changefeed.protocols.avro.encoder import AvroEncoder
from tistream_changefeed.protocols.avro.options import AvroOptions
from tistream_changefeed.protocols.canal_json.encoder import CanalJson, CanalOptions
from tistream_changefeed.protocols.csv.encoder import CsvEncoder
from tistream_changefeed.protocols.csv.options import CsvOptions
from tistream_changefeed.protocols.debezium.encoder import DebeziumEncoder
from tistream_changefeed.protocols.debezium.options import DebeziumOptions
from tistream_changefeed.protocols.messages import Encoder
from tistream_changefeed.protocols.open_protocol.columns import flags_of
from tistream_changefeed.protocols.open_protocol.encoder import OpenOptions, OpenProtocol
from tistream_changefeed.protocols.open_protocol.frames import framed
from tistream_changefeed.protocols.simple.encoder import SimpleEncoder
from tistream_changefeed.rows.row_batch import RowBatch
from tistream_changefeed.rows.window import raw_changes

WINDOW = 32_768  # rows
_BATCH_EVENTS, _BATCH_BYTES = 16, 10 << 20
_NO_BREAKS = np.empty(0, np.int64)
_BLOBS = (t.TINYBLOB, t.BLOB, t.MEDIUMBLOB, t.LONGBLOB)


class Windows:
    """Committed rows in windows, each as a table."""

    def __init__(self, rows: int, updates: float, *, numbered: bool = True) -> None:
        warm()
        self._numbered = numbered
        info = table_info()
        text = TableText.pack(orjson.dumps(info))
        version = TableVersion(1, "bench", StoredTable(text, info))
        pool = committed(rows, SNAPSHOT_TS, updates=updates)
        self._tables = [pool.slice(at, WINDOW).combine_chunks() for at in range(0, rows, WINDOW)]
        intervals = {version.head.id: [Interval(0, 1 << 62, version)]}
        self._shapes = Shapes(intervals, frozenset(), np.array([0]), np.array([1]))

    def batches(self) -> Iterator[RowBatch]:
        """The rows of each window, decoded."""
        for table in self._tables:
            found = render(table, self._shapes, numbered=self._numbered)
            assert found.barrier is None, found.barrier
            yield from raw_changes(Events.ordered(found.sets)).rows


class FirstId:
    """A registry in memory that gives every schema the id 1, and keeps the newest of each subject."""

    def __init__(self) -> None:
        self.schemas: dict[str, str] = {}

    def id_of(self, subject: str, schema: str) -> int:
        """The id."""
        self.schemas[subject] = schema
        return 1


def avro(registry: FirstId) -> AvroEncoder:
    """The encoder of avro."""
    return AvroEncoder(AvroOptions(lambda database, table: f"{database}_{table}"), registry)


def encoder_of(protocol: str) -> Encoder:
    """The encoder of a protocol with the options that the case states."""
    match protocol:
        case "open":
            return OpenProtocol(OpenOptions())
        case "canal":
            return CanalJson(CanalOptions(enable_tidb_extension=True))
        case "debezium":
            return DebeziumEncoder(DebeziumOptions(debezium_disable_schema=True))
        case "avro":
            return avro(FirstId())
        case "csv":
            return CsvEncoder(CsvOptions())
    return SimpleEncoder()


class Encode:
    """Batches to messages; `raw`: stored rows to messages. Gives the bytes made."""

    def __init__(self, rows: int, updates: float, protocol: str, raw: bool) -> None:
        self._encoder = encoder_of(protocol)
        self._framed = protocol == "open"
        self._windows = Windows(rows, updates, numbered=self._encoder.numbered)
        self._batches = None if raw else list(self._windows.batches())

    def __call__(self) -> int:
        made = 0
        for batch in self._windows.batches() if self._batches is None else self._batches:
            messages = self._encoder.rows(batch)
            if messages.keys is not None and self._framed:
                frames = framed(messages, np.arange(len(batch)), _NO_BREAKS, _BATCH_EVENTS, _BATCH_BYTES)
                made += frames.keys.nbytes
                made += frames.values.nbytes
            else:
                made += messages.values.nbytes
        return made


class PlainEncode:
    """Decoded columns to values of open-protocol, row by row. Gives the bytes made."""

    def __init__(self, rows: int, updates: float) -> None:
        self._batches = list(Windows(rows, updates).batches())

    def __call__(self) -> int:
        made = 0
        for batch in self._batches:
            flags = flags_of(batch.version.table, batch.handle)
            facts = [
                {"t": one.tp, **({"h": True} if one in batch.handle else {}), "f": flags[one.id]}
                for one in batch.columns
            ]
            blobs = [one.tp in _BLOBS for one in batch.columns]
            names = [one.name for one in batch.columns]
            sides = [_rows(arrays) for arrays in (batch.new, batch.old)]

            def side(row: list[Any], names: Any = names, facts: Any = facts, blobs: Any = blobs) -> dict[str, Any]:
                return {
                    name: {**fact, "v": base64.b64encode(value.encode()).decode() if blob and value else value}
                    for name, fact, blob, value in zip(names, facts, blobs, row, strict=True)
                }

            for new_at, old_at in zip(batch.new_at.tolist(), batch.old_at.tolist(), strict=True):
                value = {"u": side(sides[0][new_at])} if new_at >= 0 else {"d": side(sides[1][old_at])}
                if new_at >= 0 and old_at >= 0:
                    value["p"] = side(sides[1][old_at])
                made += len(orjson.dumps(value))
        return made


class PlainAvro:
    """Decoded columns to values of avro, row by row. Gives the bytes made."""

    def __init__(self, rows: int, updates: float) -> None:
        registry = FirstId()
        encoder = avro(registry)
        self._batches = list(Windows(rows, updates, numbered=encoder.numbered).batches())
        encoder.rows(self._batches[0])
        [text] = [text for subject, text in registry.schemas.items() if subject.endswith("-value")]
        fields = orjson.loads(text)["fields"]
        kinds = [one["type"][-1] if isinstance(one["type"], list) else one["type"] for one in fields]
        self._decimals = [kind.get("logicalType") == "decimal" for kind in kinds]
        self._schema = fastavro.parse_schema(orjson.loads(text))

    def __call__(self) -> int:
        made = 0
        for batch in self._batches:
            names = [one.name for one in batch.columns]
            rows = _rows(batch.new)
            for at in batch.new_at.tolist():
                values = zip(names, rows[at], self._decimals, strict=True)
                record = {name: Decimal(one) if is_decimal and one else one for name, one, is_decimal in values}
                out = io.BytesIO()
                fastavro.schemaless_writer(out, self._schema, record)
                made += out.tell()
        return made


def _rows(arrays: Any) -> list[list[Any]]:
    columns = [array.to_pylist() if isinstance(array, pa.Array) else list(array) for array in arrays]
    return [list(row) for row in zip(*columns, strict=True)]
