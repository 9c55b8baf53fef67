"""Adds a constant text before and after each text of a column."""

from __future__ import annotations

from typing import Any

from tistream.decode.json_lines import LineColumn, LineGroup, LineWriter
from tistream.decode.kernels.arrow_buffers import binary_array, flat_bytes, one_array, validity
from tistream.decode.kernels.render_kernel import Form


def enclosed(texts: Any, head: str, tail: str) -> Any:
    """A large_string array of each text between `head` and `tail`. Nulls stay null."""
    array = one_array(texts)
    flat = flat_bytes(
        LineWriter(len(array), [LineGroup(head, [LineColumn("", Form.RAW, array)])], tail).lines(text=True)
    )
    valid = validity(array) if array.null_count else None
    return binary_array(flat.data, flat.offsets, valid, text=True)
