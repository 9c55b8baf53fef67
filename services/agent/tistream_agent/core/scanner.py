"""Parses received ChangeDataEvents to tables of numbers. Pure.

The bytes of keys and values stay in the received buffer until rows are copied for a file (subscription.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tistream.arrays import Bytes
from tistream.errors import TiStreamError
from tistream_agent.core import kernels, region_error, scan_kernel
from tistream_agent.core.region_error import RegionError

Table = npt.NDArray[np.int64]
# TiKV's messages have rows of tens of bytes. One of 256 MiB may name millions of empty ones.
TABLES_BYTES_MAX = 512 << 20


class BrokenMessage(TiStreamError):
    """Raised if a message of a stream is not a ChangeDataEvent. The stream must end, and its regions are registered
    again."""

    code = "broken-message"

    def __init__(self, number: int, size: int, reason: str) -> None:
        super().__init__(f"message {number} of {size} bytes: {reason}")


@dataclass(frozen=True, slots=True)
class Scanned:
    """Parsed messages as tables, with one column for each element. The module `kernels` names the tables' rows.

    Attributes:
        data: the concatenated messages.
        items: ITEM_COLUMNS x items; one item for each Event and for each region of a ResolvedTs, in order of arrival.
        rows: ROW_COLUMNS x rows; `items[ROW_FIRST]` and `items[ROW_BEYOND]` say which rows an Event has.
    """

    data: Bytes
    items: Table
    rows: Table

    def error(self, item: int) -> RegionError:
        """Parse the error of an item of kind ERROR. This cannot fail, because `scan` has checked the bytes."""
        begin, end = self.items[kernels.ERROR_AT, item], self.items[kernels.ERROR_END, item]
        return region_error.parse(self.data[begin:end].tobytes())


def scan(messages: Sequence[bytes]) -> Scanned:
    """Parse messages. Raises BrokenMessage, whose text has the number of a message: the first one that is malformed, or
    the largest one if the events and rows of all messages together would need more than TABLES_BYTES_MAX."""
    data = np.frombuffer(b"".join(messages), np.uint8)
    bounds = np.zeros(len(messages) + 1, np.int64)
    np.cumsum([len(message) for message in messages], out=bounds[1:])
    groups = np.zeros(64, np.int64)
    none_items, none_rows = np.zeros((kernels.ITEM_COLUMNS, 0), np.int64), np.zeros((kernels.ROW_COLUMNS, 0), np.int64)
    count, rows_max, broken = scan_kernel.scan(data, bounds, none_items, none_rows, groups)
    if broken >= 0:
        raise BrokenMessage(broken, len(messages[broken]), "its bytes are not a ChangeDataEvent")
    if (count * kernels.ITEM_COLUMNS + rows_max * kernels.ROW_COLUMNS) * 8 > TABLES_BYTES_MAX:
        largest = max(range(len(messages)), key=lambda number: len(messages[number]))
        raise BrokenMessage(largest, len(messages[largest]), f"{count} events and {rows_max} rows are too many at once")
    items = np.zeros((kernels.ITEM_COLUMNS, count), np.int64)
    rows = np.zeros((kernels.ROW_COLUMNS, rows_max), np.int64)
    _, row_count, _ = scan_kernel.scan(data, bounds, items, rows, groups)
    found = Scanned(data, items, rows[:, :row_count])
    for item in np.flatnonzero(items[kernels.KIND] == kernels.ERROR).tolist():
        try:
            found.error(item)
        except ValueError as error:
            number = int(np.searchsorted(bounds, items[kernels.ERROR_AT, item], side="right")) - 1
            raise BrokenMessage(number, len(messages[number]), f"its error cannot be read: {error}") from error
    return found
