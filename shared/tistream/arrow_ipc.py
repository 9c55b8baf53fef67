"""Converts Arrow tables to bytes in the IPC stream format, and back. Pure."""

from __future__ import annotations

import pyarrow as pa


def to_bytes(table: pa.Table) -> bytes:
    """Encode the table as one IPC stream. Equal tables give equal bytes."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    body: bytes = sink.getvalue().to_pybytes()
    return body


def from_bytes(data: bytes) -> pa.Table:
    """Decode the table of an IPC stream. Raises pyarrow.ArrowException or OSError if it is damaged."""
    return pa.ipc.open_stream(data).read_all()
