"""`python -m support.held_pulls`: in a process of its own, what a pull holds whose client has stopped reading. JSON on
stdout, by format and content coding: bytes of one of several, each from another place, without what the allocators can
give back and without the cache that all share."""

from __future__ import annotations

import gc
import json
import re
import sys
import threading
from pathlib import Path

import pyarrow.compute as pc

from bench.inputs.changes import TENANT
from bench.inputs.mixed_rows import STEP, committed, schema_snap
from support.effort import cases
from support.pull_world import World
from tistream.pool.segment_index import SegmentIndex
from tistream.pool.writer import write_segment
from tistream.read.cursor import Position
from tistream.read.group_cache import GroupCache
from tistream.read.source import TenantSource
from tistream.schema.history import History
from tistream.schema.tidb.snapshot import parse_snapshot
from tistream.storage.backends.memory import MemoryObjectStore
from tistream_api.admission.memory_limit import give_back

SNAPSHOT_TS = 1_790_000_000_000 << 18
ROWS, SEGMENT_ROWS = 262_144, 131_072
PULLS, APART = 2, 34_000
SENT_BYTES = 4 << 20  # what a connection's buffers take before its client's not reading is felt
CODINGS = {
    "ndjson": cases([None, "zstd"], ["gzip"]),
    "arrow": cases([None], ["zstd", "gzip"]),
    "parquet": [None],
}


def mixed_world() -> World:
    """A tenant whose rows have ten columns of mixed types, each with its old row."""
    objects, index = MemoryObjectStore(), SegmentIndex()
    rows = committed(ROWS, SNAPSHOT_TS, updates=1.0)
    refs = []
    for at in range(0, ROWS, SEGMENT_ROWS):
        body, ref = write_segment(rows.slice(at, SEGMENT_ROWS).combine_chunks(), f"segment-{at}")
        objects.put(ref.key, body)
        refs.append(ref)
    index.update(tuple(refs))
    end_ts = int(pc.max(rows["commit_ts"]).as_py())
    snapshot = parse_snapshot("schema_snap", schema_snap(SNAPSHOT_TS))
    history = History(snapshot.snapshot_ts)
    history.apply(snapshot.records)
    history.advance(end_ts)
    source = TenantSource(threading.RLock(), lambda: history, lambda: [index], GroupCache(objects, 1), lambda: None)
    return World(TENANT, SNAPSHOT_TS, end_ts, objects, [index], history, source)


def held_bytes(world: World, form: str, coding: str | None, pulls: int = PULLS) -> int:
    """Of one pull."""
    before = _resident()
    answers = []
    for number in range(pulls):
        start = Position(SNAPSHOT_TS + number * APART * STEP)
        answer = world.answer(start=start, form=form, coding=coding)
        sent, piece = 0, b""
        while sent < SENT_BYTES:
            piece = next(answer)
            sent += len(piece)
        answers.append((answer, piece))
    return (_resident() - before) // pulls


def _resident() -> int:
    gc.collect()
    give_back()
    found = re.search(r"VmRSS:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert found is not None
    return int(found[1]) << 10


def main() -> int:
    """One measurement."""
    world = mixed_world()
    for form in CODINGS:  # what is loaded and compiled once is nobody's share; the cache always keeps a row group
        held_bytes(world, form, None, 1)
    told = {
        f"{form} {coding or 'plain'}": held_bytes(world, form, coding) for form in CODINGS for coding in CODINGS[form]
    }
    print(json.dumps(told))
    return 0


if __name__ == "__main__":
    sys.exit(main())
