"""What a file's watermarks take once they are written out, by its footer, before anything is unpacked. Pure.

Every dispatcher holds all of a file's watermarks at once, and so does a batch to a sorter; a few kilobytes can be
millions of equal rows, or one row whose `after` names millions of logs. So rows and values are counted with their
width, however few bytes they are stored in. What dictionaries leave out of keys is found when they are read
(tistream.format.unpacking).
"""

from __future__ import annotations

from collections.abc import Iterable

from tistream.format.parquet_footer import Group

# Two and a half rows of each of 200,000 regions that a store leads, with keys as of rows (19 bytes); it leads tens of
# thousands. More would not fit into the 64 MiB that a sorter takes in one request, and stop the whole tenant there.
BYTES_MAX = 60 << 20

_INT32, _INT64 = 4, 8
# Of each value: a list's offset goes with its leaves, of which each row has one at least, also where it is null.
_WIDTHS = {
    "type": _INT32,
    "region_id": _INT64,
    "region_version": _INT64,
    "log_index": _INT64,
    "key": _INT32,  # its offset; its bytes are what it unpacks to
    "end_key": _INT32,
    "first_index": _INT64,
    "base_ts": _INT64,
    "resolved_ts": _INT64,
    "after": _INT64,
}
_ROUTED = 12  # a batch has two more columns


def stated_bytes(groups: Iterable[Group]) -> int:
    """What these row groups take at least, or unpack to if that is more."""
    size = 0
    for group in groups:
        size += _ROUTED * group.rows
        for chunk in group.chunks:
            if chunk.column in _WIDTHS:
                size += max(chunk.unpacked, _WIDTHS[chunk.column] * chunk.values)
    return size
