"""A log backup as TiKV writes it, as large as wanted: slices of `write` and `default`, metadata, a checkpoint."""

from __future__ import annotations

import random
from dataclasses import dataclass

import numpy as np

from bench.inputs.mixed_rows import STEP, TABLE_ID
from support.log_bytes import PUT, Entry, Log, Part, record, row_key
from tistream.logbackup import metadata
from tistream.logbackup.prefix import METAS
from tistream.storage.object_store import ObjectStore

START_TS = 1_000 * STEP
STORES, FLUSHES, REGIONS = 4, 5, 8
VALUE_BYTES, LONG_BYTES = 127, 300
LONG_EACH = 20  # every so many changes the value is an entry of `default`, as TiKV does above 255 bytes
ROWS_SHARE = 2  # changes of each row


@dataclass(frozen=True, slots=True)
class Written:
    """What the log has. bytes: of its slices, unpacked; entries: of both column families, repeats too."""

    changes: int
    entries: int
    bytes: int
    end_ts: int


def put_log(target: ObjectStore, changes: int) -> Written:
    """Write a log of that many changes of REGIONS tables, incompressible values, each commit_ts once."""
    rng, numbers = random.Random(1), np.random.default_rng(1)
    log, entries, size = Log(), 0, 0
    log.begin(start_version=START_TS)
    made = 0
    for flush in range(STORES * FLUSHES):
        parts: list[Part] = []
        for region in range(REGIONS):
            count = changes // (STORES * FLUSHES * REGIONS)
            handles = numbers.integers(0, changes // REGIONS // ROWS_SHARE, count).tolist()
            writes: list[Entry] = []
            values: list[Entry] = []
            for handle in handles:
                made += 1
                key, commit_ts = row_key(TABLE_ID + region, handle), START_TS + STEP * made
                start_ts = commit_ts - STEP // 2
                if made % LONG_EACH:
                    writes.append((key, commit_ts, record(PUT, start_ts, rng.randbytes(VALUE_BYTES))))
                else:
                    writes.append((key, commit_ts, record(PUT, start_ts)))
                    values.append((key, start_ts, rng.randbytes(LONG_BYTES)))
            stated = {"table_id": TABLE_ID + region, "region_id": region + 1}
            parts.append(Part(writes, min_begin_ts=writes[0][1] - STEP // 2, changed=stated))
            parts.append(Part(values, cf="default", changed=stated))
        parts += parts[:2]  # a region's changes are in the log twice, as after a leader's move
        log.flush(*parts, store_id=1 + flush % STORES)
        entries += sum(len(part.entries) for part in parts)
    end_ts = START_TS + STEP * (made + 1)
    log.checkpoint(end_ts)
    for info in log.objects.list_after(""):
        body = log.objects.get(info.key)
        target.put(info.key, body)
        if info.key.startswith(METAS):
            size += sum(one.plain for one in metadata.parse(info.key, body).slices)
    return Written(made, entries, size, end_ts)
