"""Files in a local folder, through which the rows of a release go from the tasks that read shards to the tasks that
write change files, if all tasks run on one machine. Spark's shuffle would copy them through the JVM, which takes more
processor time than reading them from files."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa

from tistream.errors import Unavailable
from tistream_ingest.jobs.joining import ROWS
from tistream_ingest.jobs.shard_io import Prepared

_OPTIONS = pa.ipc.IpcWriteOptions(compression="lz4")  # the folder must have room for a whole release


def put_parts(folder: str, shard: int, parts: Sequence[Prepared]) -> tuple[int, ...]:
    """Write the rows of a shard to a file of the folder, with one record batch for each change file that gets some of
    them. Returns the numbers of these change files, in the order of the batches. Raises Unavailable if the disk is
    full."""
    try:
        with pa.OSFile(_path(folder, shard), "wb") as sink, pa.ipc.new_file(sink, ROWS, options=_OPTIONS) as writer:
            for _, rows in parts:
                writer.write_table(rows.combine_chunks())
    except OSError as error:
        raise Unavailable(f"the rows of a shard cannot be written below {folder}: {error}") from error
    return tuple(number for number, _ in parts)


def part(folder: str, shard: int, batch: int) -> pa.Table:
    """Read a record batch, by its index `batch`, of the file of a shard. Raises Unavailable."""
    try:
        source = pa.memory_map(_path(folder, shard))
    except OSError as error:
        raise Unavailable(f"the rows of a shard cannot be read: {error}") from error
    return pa.Table.from_batches([pa.ipc.open_file(source).get_batch(batch)])


def _path(folder: str, shard: int) -> str:
    return str(Path(folder) / f"shard-{shard}.arrow")
