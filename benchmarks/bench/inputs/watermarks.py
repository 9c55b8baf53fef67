"""Change files of a large cluster in which nothing is written: watermarks of every region, every second."""

from __future__ import annotations

import io
import zlib
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from bench.inputs.changes import FIRST_MS, TENANT
from tistream.arrays import Int64s
from tistream.format.change_file import SCHEMA, VERSION, WATERMARK
from tistream.storage import layout

SNAPSHOT_TS = FIRST_MS << 18
REGIONS_A_TABLE = 10
ENTRIES_A_SECOND = 3  # of each region's log


@dataclass(frozen=True, slots=True)
class _Regions:
    """Of one store, in the order of their ids."""

    ids: Int64s
    start: pa.Array
    end: pa.Array


class IdleCluster:
    """`regions` spread over `stores` at random; each store tells of all of its regions in one file a second."""

    def __init__(self, regions: int, stores: int = 100, seed: int = 1) -> None:
        rng = np.random.default_rng(seed)
        starts = [b"", *(_key(number) for number in range(1, regions))]
        start, end = pa.array(starts, pa.binary()), pa.array([*starts[1:], b""], pa.binary())
        ids, store = rng.permutation(regions) + 1_000, rng.integers(0, stores, regions)
        self.stores = range(1, stores + 1)
        self._of: dict[int, _Regions] = {}
        for number in self.stores:
            at = np.flatnonzero(store == number - 1)
            at = at[np.argsort(ids[at])]
            self._of[number] = _Regions(ids[at], start.take(pa.array(at)), end.take(pa.array(at)))

    def file(self, store: int, second: int) -> tuple[str, bytes]:
        """(key, body) of a store's file of a second, from 0 on. The first one's watermarks reach back to the
        snapshot."""
        regions = self._of[store]
        count = len(regions.ids)
        last = 100 + ENTRIES_A_SECOND * second
        same = {
            "type": WATERMARK,
            "op_type": 0,
            "region_version": 1,
            "log_index": last,
            "first_index": last + 1 - (ENTRIES_A_SECOND if second else 0),
            "base_ts": None if second else SNAPSHOT_TS,
            "resolved_ts": _ts(second),
        }
        own = {"region_id": pa.array(regions.ids), "key": regions.start, "end_key": regions.end}
        columns = [own.get(field.name, _filled(field, same.get(field.name), count)) for field in SCHEMA]
        key = layout.change_file(TENANT, store, _ts(second) + store)
        prev_ts = _ts(second - 1) + store if second else 0
        return key, _encoded(pa.Table.from_arrays(columns, schema=SCHEMA), store, prev_ts)


def _ts(second: int) -> int:
    return (FIRST_MS + 1_000 * (second + 1)) << 18


def _key(number: int) -> bytes:
    table, handle = divmod(number, REGIONS_A_TABLE)
    return b"t" + (table + (1 << 63)).to_bytes(8, "big") + b"_r" + (handle * 100_000 + (1 << 63)).to_bytes(8, "big")


def _filled(field: pa.Field, value: int | None, count: int) -> pa.Array:
    return pa.nulls(count, field.type) if value is None else pc.cast(pa.repeat(value, count), field.type)


def _encoded(rows: pa.Table, store: int, prev_ts: int) -> bytes:
    sink = io.BytesIO()
    with pq.ParquetWriter(
        sink, SCHEMA, compression="zstd", compression_level=1, use_dictionary=["type"], write_statistics=["key"]
    ) as writer:
        writer.write_table(rows, row_group_size=rows.num_rows)
        metadata = {
            "version": VERSION,
            "cluster_id": TENANT.cluster_id,
            "tenant_id": TENANT.tenant_id,
            "store_id": str(store),
            "prev_ts": str(prev_ts),
            "first_watermark_row_group": "0",
            "old_value": "1",
            "row_group_crc32": f"{zlib.crc32(sink.getbuffer()[4:]):08x}",
        }
        writer.add_key_value_metadata({f"tistream.{name}": text for name, text in metadata.items()})
    return sink.getvalue()
