"""Encodes events of RawKV as lines of JSON and as Arrow record batches. Pure."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterator
from datetime import UTC, datetime

import numpy as np
import orjson
import pyarrow as pa

from tistream.arrays import Int64s
from tistream.model import raw_row
from tistream.read.events import Events, RawRows

VERSION = "1"
BATCH_ROWS = 16_384
EXPIRE_MAX = int(datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC).timestamp())  # the last time that RFC 3339 has

OPS = ("delete", "put")
RAW_SCHEMA = pa.schema(
    [
        pa.field("seq", pa.int64(), nullable=False),
        pa.field("op", pa.string(), nullable=False),
        pa.field("commit_ts", pa.int64(), nullable=False),
        pa.field("keyspace", pa.int64(), nullable=False),
        pa.field("key", pa.binary(), nullable=False),
        pa.field("value", pa.binary()),
        pa.field("expire_at", pa.timestamp("s", "UTC")),
    ],
    metadata={"tistream.version": VERSION, "tistream.type": "raw"},
)


def expire_at(expire_ts: int) -> str | None:
    """The time at which a value expires, in RFC 3339. `expire_ts` is in seconds of Unix time. None for 0, which means
    that the value never expires."""
    if not expire_ts:
        return None
    seconds = min(max(expire_ts, 0), EXPIRE_MAX)
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def lines(events: Events, piece_bytes: int) -> Iterator[bytes]:
    """Render each event as a line. Yields pieces of about `piece_bytes` bytes."""
    held: list[bytes] = []
    size = 0
    for start in range(0, len(events), BATCH_ROWS):
        rows, at = _of(events.between(start, start + BATCH_ROWS))
        columns = (rows.op, rows.commit_ts, rows.keyspace, rows.expire_ts)
        numbers = (column[at].tolist() for column in columns)
        taken = pa.array(at)
        texts = (column.take(taken).to_pylist() for column in rows.arrays)
        for op, commit_ts, keyspace, expire_ts, key, value in zip(*numbers, *texts, strict=True):
            put = op == 1
            line = orjson.dumps(
                {
                    "type": "raw",
                    "op": OPS[op],
                    "commit_ts": str(commit_ts),
                    "keyspace": str(keyspace),
                    "key": b64encode(key[raw_row.PREFIX_BYTES :]).decode(),
                    "value": b64encode(value or b"").decode() if put else None,
                    "expire_at": expire_at(expire_ts),
                },
                option=orjson.OPT_APPEND_NEWLINE,
            )
            held.append(line)
            size += len(line)
            if size >= piece_bytes:
                yield b"".join(held)
                held, size = [], 0
    if held:
        yield b"".join(held)


def record_batches(events: Events, seq: int) -> Iterator[pa.RecordBatch]:
    """Yield the events as batches of RAW_SCHEMA; `seq` is the number of the first event in the answer."""
    for start in range(0, len(events), BATCH_ROWS):
        rows, at = _of(events.between(start, start + BATCH_ROWS))
        taken = pa.array(at)
        puts, expire_ts = rows.op[at] == 1, rows.expire_ts[at]
        keys, values = (column.take(taken).cast(pa.binary()) for column in rows.arrays)
        stamps = pa.array(np.clip(expire_ts, 0, EXPIRE_MAX), mask=expire_ts == 0)
        columns = [
            pa.array(np.arange(len(at)) + seq + start),
            pa.array([OPS[op] for op in rows.op[at].tolist()], pa.string()),
            pa.array(rows.commit_ts[at]),
            pa.array(rows.keyspace[at]),
            pa.array([key[raw_row.PREFIX_BYTES :] for key in keys.to_pylist()], pa.binary()),
            pa.array(
                [(value or b"") if put else None for put, value in zip(puts.tolist(), values.to_pylist(), strict=True)],
                pa.binary(),
            ),
            stamps.cast(pa.timestamp("s", "UTC")),
        ]
        yield pa.RecordBatch.from_arrays(columns, schema=RAW_SCHEMA)


def is_raw(events: Events) -> bool:
    """Whether these are events of RawKV. An answer has either only such events or none."""
    return any(isinstance(one, RawRows) for one in events.sets)


def _of(events: Events) -> tuple[RawRows, Int64s]:
    assert len(events.sets) == 1, "a chunk of RawKV is one set"
    (rows,) = events.sets
    assert isinstance(rows, RawRows)
    return rows, events.at
