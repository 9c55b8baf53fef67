"""Compiles the numba code of message encoders and partition rules, by encoding two events in several protocols."""

from __future__ import annotations

import json

import numpy as np
import pyarrow as pa

from tistream import decode
from tistream.schema.records import TableText
from tistream.schema.tidb import table as t
from tistream.schema.visible import StoredTable, TableVersion
from tistream_changefeed.dispatch.partition_rule import PartitionBy, PartitionRule
from tistream_changefeed.fingerprints.hashes import event_hashes
from tistream_changefeed.protocols.avro.encoder import AvroEncoder
from tistream_changefeed.protocols.avro.options import AvroOptions
from tistream_changefeed.protocols.csv.encoder import CsvEncoder
from tistream_changefeed.protocols.csv.options import CsvOptions
from tistream_changefeed.protocols.debezium.encoder import DebeziumEncoder
from tistream_changefeed.protocols.debezium.options import DebeziumOptions
from tistream_changefeed.protocols.open_protocol.encoder import OpenOptions, OpenProtocol
from tistream_changefeed.protocols.open_protocol.frames import framed
from tistream_changefeed.rows.handle_key import handle_columns
from tistream_changefeed.rows.row_batch import RowBatch

_MAX_BYTES = 1 << 20
# By the type of a column, a value as the decoder gives it.
_VALUES = (
    (t.LONGLONG, pa.array([1], pa.int64())),
    (t.DOUBLE, pa.array([0.5], pa.float64())),
    (t.DECIMAL, pa.array(["1.5"], pa.large_string())),
    (t.JSON, pa.array(["{}"], pa.large_string())),
    (t.DATETIME, pa.array(["2026-01-02 03:04:05"], pa.large_string())),
    (t.TIMESTAMP, pa.array(["2026-01-02 03:04:05"], pa.large_string())),
    (t.DURATION, pa.array(["01:02:03"], pa.large_string())),
)


class _OneId:
    """A schema registry that gives all schemas the same id."""

    def id_of(self, subject: str, schema: str) -> int:  # noqa: ARG002
        return 1


def warm_kernels() -> None:
    """Compile all numba code of encoders and partition rules, or load it from the cache. Without a cache it takes some
    15 s."""
    decode.warm_messages()
    batch = _batch()
    PartitionRule(PartitionBy.INDEX).hashes(batch)
    messages = OpenProtocol(OpenOptions()).rows(batch)
    event_hashes(batch.commit_ts, (messages.values,))
    framed(messages, np.arange(len(batch)), np.array([], np.int64), 1, _MAX_BYTES)
    DebeziumEncoder(DebeziumOptions()).rows(batch)
    CsvEncoder(CsvOptions(output_old_value=True)).rows(batch)
    AvroEncoder(AvroOptions(lambda _, table: table), _OneId()).rows(batch)


def _batch() -> RowBatch:
    """A batch with an update and an insert, of a table that has a column of each type in _VALUES."""
    version = _version()
    rows = [array for _, array in _VALUES]
    count = 2
    return RowBatch(
        version=version,
        physical_id=version.table.id,
        columns=version.table.visible_columns,
        handle=handle_columns(version.table),
        new=rows,
        old=rows,
        new_at=np.zeros(count, np.int64),
        old_at=np.array([0, -1], np.int64),
        commit_ts=np.ones(count, np.int64),
        start_ts=np.zeros(count, np.int64),
        schema_version=np.zeros(count, np.int64),
        raw=pa.array([b"k"] * count, pa.binary()),
        at=np.arange(count),
    )


def _version() -> TableVersion:
    columns = [
        {
            "id": number,
            "name": {"O": f"c{number}", "L": f"c{number}"},
            "offset": number - 1,
            "type": {"Tp": tp, "Flag": 0 if number > 1 else t.FLAG_PRIMARY | t.FLAG_NOT_NULL, "Charset": "binary"},
            "state": t.STATE_PUBLIC,
        }
        for number, (tp, _) in enumerate(_VALUES, 1)
    ]
    name = {"O": "t", "L": "t"}
    info = {"id": 1, "name": name, "state": t.STATE_PUBLIC, "pk_is_handle": True, "cols": columns}
    return TableVersion(1, "d", StoredTable(TableText.pack(json.dumps(info).encode()), info))
