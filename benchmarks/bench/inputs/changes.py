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
from tistream.arrays import Int64s
from tistream.format.change_file import COMMIT, OP_PUT, PREWRITE, SCHEMA, VERSION, WATERMARK
from tistream.model.ids import TenantKey
from tistream.storage import layout

CLUSTER = "7"
TENANT = TenantKey(CLUSTER, "bench")
FIRST_MS = 1_790_000_000_000
FIRST_TABLE = 101
HANDLE_BITS = 43
GROUP_ROWS, GROUP_BYTES = 65_536, 8 << 20
DELAY_MS = 20  # the longest time between a prewrite and its commit
HOT_KEY_UPDATES = 100_000
SMALL_ROWS = 8_192  # regions with fewer rows in a file share row groups


@dataclass(frozen=True, slots=True)
class Load:
    """What to write. spread: keys at random everywhere; all of them in one region; one key written `hot_updates`
    times, among others at random."""

    transactions: int
    seconds: int = 10
    stores: int = 2
    regions: int = 8
    tables: int = 1
    value_bytes: int = 127
    old_value_bytes: int = 0
    spread: Literal["even", "region", "key"] = "even"
    hot_updates: int = HOT_KEY_UPDATES
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

    position: Int64s
    start_ts: Int64s
    commit_ts: Int64s  # 0 for a prewrite
    time: Int64s


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
        region = events.position // _region_width(load)
        by_region = np.argsort(region, kind="stable")
        events, region = _where(events, by_region), region[by_region]
        bounds = np.searchsorted(region, np.arange(load.regions + 1))
        first_index = last_index + 1
        last_index += np.diff(bounds)
        log_index = first_index[region] + np.arange(len(region)) - bounds[region]
        resolved = int(min([end_ms << 18, *carried.start_ts.tolist()])) - 1
        files = []
        for store in range(load.stores):
            led = np.arange(store, load.regions, load.stores)
            groups = []
            for rows in _shared(led, bounds):
                groups += _groups(load, rng, _where(events, rows), region[rows], log_index[rows])
            ts = (end_ms << 18) + store
            key = layout.change_file(load.tenant, store + 1, ts)
            groups.append(_watermarks(load, led, first_index[led], last_index[led], resolved))
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
        position[rng.random(count) < load.hot_updates / load.transactions] = load.tables << (HANDLE_BITS - 1)
    none = np.zeros(count, np.int64)
    return _Events(
        np.concatenate([position, position]),
        np.concatenate([start_ts, start_ts]),
        np.concatenate([none, commit_ts]),
        np.concatenate([start_ts, commit_ts]),
    )


def _region_width(load: Load) -> int:
    """Positions of a region; the last one has what is left."""
    return -(-(load.tables << HANDLE_BITS) // load.regions)


def _shared(regions: Int64s, bounds: Int64s) -> Iterator[Int64s]:
    """Rows of the regions, region by region, for row groups: of a large region its own, of small ones together."""
    small: list[Int64s] = []
    held = 0
    for one in regions[bounds[regions + 1] > bounds[regions]]:
        rows = np.arange(bounds[one], bounds[one + 1])
        if small and (len(rows) >= SMALL_ROWS or held + len(rows) > GROUP_ROWS):
            yield np.concatenate(small)
            small, held = [], 0
        if len(rows) >= SMALL_ROWS:
            yield rows
        else:
            small.append(rows)
            held += len(rows)
    if small:
        yield np.concatenate(small)


def _joined(left: _Events, right: _Events) -> _Events:
    names = ("position", "start_ts", "commit_ts", "time")
    return _Events(*(np.concatenate([getattr(left, name), getattr(right, name)]) for name in names))


def _where(events: _Events, which: npt.NDArray[np.bool_] | Int64s) -> _Events:
    return _Events(events.position[which], events.start_ts[which], events.commit_ts[which], events.time[which])


def keys_of(position: Int64s, first_table: int = FIRST_TABLE) -> pa.Array:
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


def _groups(load: Load, rng: np.random.Generator, events: _Events, region: Int64s, log_index: Int64s) -> list[pa.Table]:
    prewrite = events.commit_ts == 0
    per_row = 60 + (load.value_bytes + load.old_value_bytes) // 2
    step = max(1, min(GROUP_ROWS, GROUP_BYTES // per_row))
    count = len(prewrite)
    columns = {
        "type": pa.array(np.where(prewrite, PREWRITE, COMMIT).astype(np.int32)),
        "op_type": pa.array(np.where(prewrite, OP_PUT, 0).astype(np.int32)),
        "region_id": pa.array(region + 1),
        "region_version": pa.array(np.full(count, 1)),
        "log_index": pa.array(log_index),
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


def _watermarks(load: Load, regions: Int64s, first: Int64s, last: Int64s, resolved_ts: int) -> pa.Table:
    count = len(regions)
    inner = keys_of(np.arange(1, load.regions) * _region_width(load), load.first_table)
    edges = pa.concat_arrays([pa.array([b""], pa.binary()), inner, pa.array([b""], pa.binary())])
    columns = {
        "type": pa.array(np.full(count, WATERMARK, np.int32)),
        "op_type": pa.array(np.zeros(count, np.int32)),
        "region_id": pa.array(regions + 1),
        "region_version": pa.array(np.full(count, 1)),
        "log_index": pa.array(last),
        "first_index": pa.array(first),
        "key": edges.take(pa.array(regions)),
        "end_key": edges.take(pa.array(regions + 1)),
        "resolved_ts": pa.array(np.full(count, resolved_ts)),
        "base_ts": pa.array(np.full(count, snapshot_ts(load.first_ms)), mask=first != 11),
    }
    return table_of(columns, count)


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
