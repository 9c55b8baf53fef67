"""What the sorter's own rule makes of an agent's files: up to where their watermarks count."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

import pyarrow as pa

from tistream.model.span import WHOLE, KeySpan
from tistream.storage.backends.memory import MemoryObjectStore
from tistream.storage.change_reader import open_change_file, read_watermarks
from tistream.wire.file_batch import WATERMARKS
from tistream_sorter.watermark.slice_history import SliceHistory
from tistream_sorter.watermark.slices import SliceMap


def counted(files: Iterable[tuple[str, bytes]], snapshot_ts: int, span: KeySpan = WHOLE) -> SliceMap:
    """The slices of one task after all files (key, bytes), in order."""
    objects, slices = MemoryObjectStore(), SliceMap(span, snapshot_ts)
    for key, data in files:
        objects.put(key, data)
        opened = open_change_file(objects, key)
        rows = read_watermarks(objects, opened).to_pylist()
        table = pa.Table.from_pylist([{**row, "file": 0, "task_id": 1} for row in rows], schema=WATERMARKS)
        deque(slices.applying(table, opened.store_id, opened.ts, 0, SliceHistory()), 0)
    return slices
