"""Arrow tables as bytes: the IPC stream format. Pure."""

from __future__ import annotations

import pyarrow as pa


def to_bytes(table: pa.Table) -> bytes:
    """The table as one IPC stream. Deterministic."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    body: bytes = sink.getvalue().to_pybytes()
    return body


def from_bytes(data: bytes) -> pa.Table:
    """The table of an IPC stream. Raises pyarrow.ArrowException, OSError if it is damaged."""
    return pa.ipc.open_stream(data).read_all()
