"""Change files by the push contract, whole columns at a time: what a cluster's stores would push, second by second.

Each transaction writes one row; its commit follows within milliseconds, now and then in the next second's file.
"""

from __future__ import annotations

import io
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from bench.inputs import mixed_rows
from tistream.format.change_file import COMMIT, OP_PUT, PREWRITE, SCHEMA, VERSION, WATERMARK
from tistream.model.ids import TenantKey
from tistream.storage import layout

Ints = npt.NDArray[np.int64]

CLUSTER = "7"
TENANT = TenantKey(CLUSTER, "bench")
FIRST_MS = 1_790_000_000_000
FIRST_TABLE = 101
HANDLE_BITS = 43
GROUP_ROWS, GROUP_BYTES = 65_536, 8 << 20
DELAY_MS = 20  # the longest time between a prewrite and its commit
HOT_KEY_UPDATES = 100_000


@dataclass(frozen=True, slots=True)
class Load:
    """What to write. spread: keys at random everywhere; all of them in one region; one key written HOT_KEY_UPDATES
    times, among others at random."""

    transactions: int
    seconds: int = 10
    stores: int = 2
    regions: int = 8
    tables: int = 1
    value_bytes: int = 127
    old_value_bytes: int = 0
    spread: Literal["even", "region", "key"] = "even"
    seed: int = 1
    tenant: TenantKey = TENANT
    first_ms: int = FIRST_MS  # when it begins
    rows: bool = False  # values are rows of mixed_rows' tables, which can be decoded, not random bytes

    @property
    def first_table(self) -> int:
        """The lowest table id."""
        return mixed_rows.TABLE_ID if self.rows else FIRST_TABLE

    @property
    def entries(self) -> int:
        return 2 * self.transactions


@dataclass(frozen=True, slots=True)
class Written:
    """What was written: object keys by second, one per store, in chain order."""

    snapshot_ts: int
    end_ts: int
    keys: tuple[tuple[str, ...], ...]
    bytes: int


@dataclass(slots=True)
class _Events:
    """Entries of one second, in order of time. Prewrites have `value_at`, a row of this second's values."""

    position: Ints
    start_ts: Ints
    commit_ts: Ints  # 0 for a prewrite
    time: Ints


@dataclass(frozen=True, slots=True)
class Second:
    """One second of files, in memory: (object key, body) by store."""

    files: tuple[tuple[str, bytes], ...]
    resolved_ts: int


def write(load: Load, root: Path) -> Written:
    """Write the objects below `root`, as a directory store keeps them."""
    keys, total, end_ts = [], 0, 0
    for second in seconds(load):
        for key, body in second.files:
            path = root / key
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(body)
            total += len(body)
        keys.append(tuple(key for key, _ in second.files))
        end_ts = second.resolved_ts
    return Written(snapshot_ts(), end_ts, tuple(keys), total)


def snapshot_ts(first_ms: int = FIRST_MS) -> int:
    """Where a load begins."""
    return (first_ms << 18) - 1


def seconds(load: Load) -> Iterator[Second]:
    """Each second's files. After the last one every transaction has ended, and the watermark is above all of them."""
    rng = np.random.default_rng(load.seed)
    carried = _Events(*(np.zeros(0, np.int64) for _ in range(4)))
    last_index = np.full(load.regions, 10, np.int64)
    previous = dict.fromkeys(range(load.stores), 0)
    for number in range(load.seconds):
        last = number == load.seconds - 1
        count = load.transactions * (number + 1) // load.seconds - load.transactions * number // load.seconds
        events = _joined(carried, _transactions(load, rng, number, count))
        end_ms = load.first_ms + (number + 1) * 1000 + (DELAY_MS + 1 if last else 0)
        later = events.time >= end_ms << 18
        carried, events = _where(events, later), _where(events, ~later)
        order = np.argsort(events.time, kind="stable")
        events = _where(events, order)
        region = events.position * load.regions // (load.tables << HANDLE_BITS)
        resolved = int(min([end_ms << 18, *carried.start_ts.tolist()])) - 1
        files = []
        for store in range(load.stores):
            led = range(store, load.regions, load.stores)
            groups, marks = [], []
            for one in led:
                own = _where(events, region == one)
                first = int(last_index[one]) + 1
                last_index[one] += len(own.time)
                groups += _groups(load, rng, own, one, first)
                marks.append((one, first, int(last_index[one])))
            ts = (end_ms << 18) + store
            key = layout.change_file(load.tenant, store + 1, ts)
            groups.append(_watermarks(load, marks, resolved))
            files.append((key, file_of(load.tenant, groups, store + 1, previous[store])))
            previous[store] = ts
        yield Second(tuple(files), resolved)


def _transactions(load: Load, rng: np.random.Generator, number: int, count: int) -> _Events:
    """`count` prewrites and their commits, begun in this second."""
    ms = load.first_ms + number * 1000 + np.arange(count) * 1000 // max(count, 1)
    start_ts = (ms << 18) + 2 * np.arange(count) % 4096
    commit_ts = ((ms + rng.integers(1, DELAY_MS, count)) << 18) + 4096 + np.arange(count) % 8192
    position = rng.integers(0, load.tables << HANDLE_BITS, count)
    if load.spread == "region":
        position //= load.regions
    elif load.spread == "key":
        position[rng.random(count) < HOT_KEY_UPDATES / load.transactions] = load.tables << (HANDLE_BITS - 1)
    none = np.zeros(count, np.int64)
    return _Events(
        np.concatenate([position, position]),
        np.concatenate([start_ts, start_ts]),
        np.concatenate([none, commit_ts]),
        np.concatenate([start_ts, commit_ts]),
    )


def _joined(left: _Events, right: _Events) -> _Events:
    names = ("position", "start_ts", "commit_ts", "time")
    return _Events(*(np.concatenate([getattr(left, name), getattr(right, name)]) for name in names))


def _where(events: _Events, which: npt.NDArray[np.bool_] | Ints) -> _Events:
    return _Events(events.position[which], events.start_ts[which], events.commit_ts[which], events.time[which])


def keys_of(position: Ints, first_table: int = FIRST_TABLE) -> pa.Array:
    """The record keys of positions, 19 bytes each: table by table, handle by handle."""
    out = np.zeros((len(position), 19), np.uint8)
    out[:, 0], out[:, 9], out[:, 10] = ord("t"), ord("_"), ord("r")
    for at, number in ((1, (position >> HANDLE_BITS) + first_table), (11, position & ((1 << HANDLE_BITS) - 1))):
        big_endian = (number.astype(np.uint64) ^ np.uint64(1 << 63)).astype(">u8")
        out[:, at : at + 8] = big_endian.view(np.uint8).reshape(-1, 8)
    return _binary(out)


def _binary(rows: npt.NDArray[np.uint8]) -> pa.Array:
    offsets = np.arange(len(rows) + 1, dtype=np.int32) * rows.shape[1]
    return pa.Array.from_buffers(pa.binary(), len(rows), [None, pa.py_buffer(offsets), pa.py_buffer(rows)])


def _groups(load: Load, rng: np.random.Generator, events: _Events, region: int, first_index: int) -> list[pa.Table]:
    prewrite = events.commit_ts == 0
    per_row = 60 + (load.value_bytes + load.old_value_bytes) // 2
    step = max(1, min(GROUP_ROWS, GROUP_BYTES // per_row))
    count = len(prewrite)
    columns = {
        "type": pa.array(np.where(prewrite, PREWRITE, COMMIT).astype(np.int32)),
        "op_type": pa.array(np.where(prewrite, OP_PUT, 0).astype(np.int32)),
        "region_id": pa.array(np.full(count, region + 1)),
        "region_version": pa.array(np.full(count, 1)),
        "log_index": pa.array(np.arange(first_index, first_index + count)),
        "key": keys_of(events.position, load.first_table),
        "value": rows_of(rng, prewrite) if load.rows else values_of(rng, prewrite, load.value_bytes),
        "old_value": values_of(rng, prewrite, load.old_value_bytes),
        "start_ts": pa.array(events.start_ts),
        "commit_ts": pa.array(events.commit_ts, mask=prewrite),
    }
    table = table_of(columns, count)
    return [table.slice(at, step) for at in range(0, count, step)]


def values_of(rng: np.random.Generator, valid: npt.NDArray[np.bool_], width: int) -> pa.Array:
    """`width` random bytes where valid, else null."""
    if not width:
        return pa.nulls(len(valid), pa.binary())
    offsets = np.concatenate([[0], np.cumsum(valid) * width]).astype(np.int32)
    data = rng.bytes(int(offsets[-1]))
    bits = pa.py_buffer(np.packbits(valid, bitorder="little"))
    return pa.Array.from_buffers(pa.binary(), len(valid), [bits, pa.py_buffer(offsets), pa.py_buffer(data)])


def rows_of(rng: np.random.Generator, valid: npt.NDArray[np.bool_]) -> pa.Array:
    """Row values where valid, else null."""
    values = mixed_rows.values()
    return values.take(pa.array(rng.integers(0, len(values), len(valid)), mask=~valid))


def _watermarks(load: Load, marks: list[tuple[int, int, int]], resolved_ts: int) -> pa.Table:
    bounds = [-(-(one * (load.tables << HANDLE_BITS)) // load.regions) for one in range(load.regions + 1)]
    edges = [b"", *keys_of(np.array(bounds[1:-1], np.int64), load.first_table).to_pylist(), b""]
    regions, first, last = zip(*marks, strict=True)
    columns = {
        "type": pa.array([WATERMARK] * len(marks), pa.int32()),
        "op_type": pa.array([0] * len(marks), pa.int32()),
        "region_id": pa.array([one + 1 for one in regions]),
        "region_version": pa.array([1] * len(marks)),
        "log_index": pa.array(last),
        "first_index": pa.array(first),
        "key": pa.array([edges[one] for one in regions], pa.binary()),
        "end_key": pa.array([edges[one + 1] for one in regions], pa.binary()),
        "resolved_ts": pa.array([resolved_ts] * len(marks)),
        "base_ts": pa.array([snapshot_ts(load.first_ms) if low == 11 else None for low in first], pa.int64()),
    }
    return table_of(columns, len(marks))


def table_of(columns: dict[str, pa.Array], count: int) -> pa.Table:
    arrays = [columns.get(column.name, pa.nulls(count, column.type)) for column in SCHEMA]
    return pa.Table.from_arrays(arrays, schema=SCHEMA)


def file_of(tenant: TenantKey, groups: list[pa.Table], store_id: int, prev_ts: int) -> bytes:
    """As the simulated upstream writes them: zstd 1, statistics of keys, no dictionary for keys and values."""
    sink = io.BytesIO()
    crcs: list[int] = []
    plain = [name for name in SCHEMA.names if name not in ("key", "value", "old_value", "end_key", "after")]
    with pq.ParquetWriter(
        sink,
        SCHEMA,
        compression="zstd",
        compression_level=1,
        use_dictionary=plain,
        write_statistics=["key"],
        store_schema=False,
    ) as writer:
        for table in groups:
            start = sink.tell()
            writer.write_table(table, row_group_size=max(1, table.num_rows))
            crcs.append(zlib.crc32(sink.getbuffer()[start:]))
        writer.add_key_value_metadata(_metadata(tenant, store_id, prev_ts, crcs))
    return sink.getvalue()


def _metadata(tenant: TenantKey, store_id: int, prev_ts: int, crcs: list[int]) -> dict[str, str]:
    return {
        "tistream.version": VERSION,
        "tistream.cluster_id": tenant.cluster_id,
        "tistream.tenant_id": tenant.tenant_id,
        "tistream.store_id": str(store_id),
        "tistream.prev_ts": str(prev_ts),
        "tistream.first_watermark_row_group": str(len(crcs) - 1),
        "tistream.old_value": "1",
        "tistream.row_group_crc32": ",".join(f"{crc:08x}" for crc in crcs),
    }
