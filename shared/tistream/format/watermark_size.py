"""Estimates, from a change file's footer, how much memory its watermark rows will need. Pure.

A dispatcher holds all watermarks of a file in memory, and so does a sorter that receives them in a batch. A few
kilobytes can unpack to millions of equal rows, or to one row whose list `after` (the logs of regions that the
watermark's log continues) has millions of elements. So the estimate counts each row and value with its width in memory,
independent of its stored size. A dictionary may repeat a long key; such keys are counted later, when they are read
(tistream.format.unpacking).
"""

from __future__ import annotations

from collections.abc import Iterable

from tistream.format.parquet_footer import RowGroup

# Enough for 2.5 rows of each of 200,000 regions with keys of 19 bytes; a store leads tens of thousands of regions. More
# would not fit into a request of 64 MiB to a sorter, and would block the whole tenant.
BYTES_MAX = 60 << 20

_INT32, _INT64 = 4, 8
# Bytes in memory per value. The offset of a list is counted with its leaves, of which each row has at least one, even
# if the list is null.
_WIDTHS = {
    "type": _INT32,
    "region_id": _INT64,
    "region_version": _INT64,
    "log_index": _INT64,
    "key": _INT32,  # the offset; the key's bytes are in the unpacked size
    "end_key": _INT32,
    "first_index": _INT64,
    "base_ts": _INT64,
    "resolved_ts": _INT64,
    "after": _INT64,
}
_ROUTED = 12  # bytes per row of the two columns that a batch adds


def stated_bytes(groups: Iterable[RowGroup]) -> int:
    """Estimate how many bytes of memory the watermark rows of these row groups need. Each column in _WIDTHS counts
    with the larger of its values' width and its stated unpacked size; each row counts with _ROUTED more bytes.
    Other columns do not count."""
    size = 0
    for group in groups:
        size += _ROUTED * group.rows
        for chunk in group.chunks:
            if chunk.column in _WIDTHS:
                size += max(chunk.unpacked, _WIDTHS[chunk.column] * chunk.values)
    return size
