"""Encodes change files (design.md 2): Arrow tables become the bytes of one Parquet object. Pure.

Equal arguments give equal bytes under one version of pyarrow.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from tistream.format.change_file import SCHEMA, VERSION
from tistream.model.ids import TenantKey

GROUP_ROWS, GROUP_BYTES = 65_536, 8 << 20  # size of a row group of changes that the push contract recommends

DICTIONARY = ("type", "op_type", "region_id", "region_version", "log_index", "start_ts", "commit_ts", "txn_source")
_STATISTICS = ["key"]


@dataclass(frozen=True, slots=True)
class FileIdentity:
    """The tenant and the store that a change file states, and `prev_ts`: the ts of the previous file in the store's
    chain (0: the file begins a chain)."""

    tenant: TenantKey
    store_id: int
    prev_ts: int


class _Sink:
    """A file object that collects the bytes that a Parquet writer writes, and their checksum since `crc32` was set. The
    bytes of a row group are final once the writer has written it."""

    closed = False

    def __init__(self) -> None:
        self.crc32 = 0
        self._parts: list[bytes] = []
        self._size = 0

    @property
    def data(self) -> bytes:
        """What was written."""
        return b"".join(self._parts)

    def write(self, data: Any) -> int:
        self._parts.append(bytes(data))  # a copy, unless it is one already: the writer uses its buffers again
        self._size += len(data)
        self.crc32 = zlib.crc32(data, self.crc32)
        return len(data)

    def tell(self) -> int:
        return self._size

    def flush(self) -> None:
        """Do nothing, because this object buffers no bytes."""

    def close(self) -> None:
        self.closed = True

    def readable(self) -> bool:
        return False

    def writable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return False


def write_change_file(
    identity: FileIdentity,
    groups: Iterable[pa.Table],
    watermarks: pa.Table,
    dictionary: Sequence[str] = DICTIONARY,
    schema: pa.Schema = SCHEMA,
    metadata: Mapping[str, str] | None = None,
) -> bytes:
    """Encode a change file.

    Args:
        groups: changes, one table for each row group, with `schema`.
        watermarks: rows of type WATERMARK, which become the last row group. There is no such row group if the table is
            empty.
        dictionary: the columns that are dictionary-encoded.
        schema: change_file.SCHEMA, or that with columns of the writer's own, which readers of version 1 ignore.
        metadata: further footer metadata of the writer, which readers of version 1 ignore.
    """
    sink = _Sink()
    crcs: list[int] = []
    with pq.ParquetWriter(
        pa.PythonFile(sink, mode="w"),
        schema,
        compression="zstd",
        compression_level=1,
        use_dictionary=list(dictionary),
        write_statistics=_STATISTICS,
        store_schema=False,
    ) as writer:

        def add(table: pa.Table) -> None:
            sink.crc32 = 0
            writer.write_table(table, row_group_size=max(1, table.num_rows))
            crcs.append(sink.crc32)

        for table in groups:
            add(table)
        changes = len(crcs)
        if watermarks.num_rows:
            add(watermarks)
        writer.add_key_value_metadata({**(metadata or {}), **_metadata(identity, crcs, changes)})
    return sink.data


def _metadata(identity: FileIdentity, crcs: list[int], changes: int) -> dict[str, str]:
    return {
        "tistream.version": VERSION,
        "tistream.cluster_id": identity.tenant.cluster_id,
        "tistream.tenant_id": identity.tenant.tenant_id,
        "tistream.store_id": str(identity.store_id),
        "tistream.prev_ts": str(identity.prev_ts),
        "tistream.first_watermark_row_group": str(changes),
        "tistream.old_value": "1",
        "tistream.row_group_crc32": ",".join(f"{crc:08x}" for crc in crcs),
    }
