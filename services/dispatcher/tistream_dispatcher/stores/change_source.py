"""Reads the parts of a change file that decide to which tasks it goes: its footer and its watermark rows, never its
changes."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from tistream.format.change_file import ChangeFile
from tistream.storage.change_reader import TAIL_BYTES, open_change_file, read_watermarks
from tistream.storage.object_store import ObjectStore
from tistream.wire.file_batch import FileRef, RowGroupRef
from tistream_dispatcher.delivery.router import Router
from tistream_dispatcher.delivery.window import RoutedFile
from tistream_dispatcher.stores.chain import SeenFile

GROUP_BYTES = 512  # bytes of one row group's reference in memory


@dataclass(frozen=True, slots=True)
class ReadFile:
    """The footer and the watermark rows of a change file, checked. `watermarks`: change_rows.WATERMARKS. `tail_bytes`:
    how many bytes at the end of the object contain them."""

    seen: SeenFile
    store_id: int
    cluster_id: str
    tenant_id: str
    key: str
    size: int
    footer_start: int
    arrived_ms: int
    groups: tuple[RowGroupRef, ...]
    watermarks: pa.Table
    tail_bytes: int

    @property
    def weight(self) -> int:
        """The bytes that the file takes in memory: exact for its watermarks, approximate for the rest."""
        bounds = sum(len(group.key_min or b"") + len(group.key_max or b"") for group in self.groups)
        return int(self.watermarks.get_total_buffer_size()) + bounds + GROUP_BYTES * (1 + len(self.groups))

    @property
    def change_bytes(self) -> int:
        return sum(group.length for group in self.groups)


def read_file(objects: ObjectStore, key: str, arrived_ms: int, tail_bytes: int = TAIL_BYTES) -> ReadFile:
    """Read the footer and the watermark rows of a change file. This is one request if the last `tail_bytes` of the
    object contain them, else two or three. `arrived_ms`: when the file was noticed, by the wall clock. Raises
    NotFoundYet, CorruptObject, Unavailable."""
    file = open_change_file(objects, key, tail_bytes)
    watermarks = read_watermarks(objects, file)
    fresh = file.prev_ts == 0 and watermarks.num_rows > 0 and watermarks["base_ts"].null_count == 0
    return ReadFile(
        seen=SeenFile(file.ts, file.prev_ts, fresh),
        store_id=file.store_id,
        cluster_id=file.tenant.cluster_id,
        tenant_id=file.tenant.tenant_id,
        key=file.key,
        size=file.size,
        footer_start=file.footer_start,
        arrived_ms=arrived_ms,
        groups=_references(file),
        watermarks=watermarks,
        tail_bytes=file.size - min([file.footer_start, *(group.offset for group in file.watermark_groups)]),
    )


def _references(file: ChangeFile) -> tuple[RowGroupRef, ...]:
    return tuple(
        RowGroupRef(g.index, g.offset, g.length, g.rows, g.crc32, g.key_min, g.key_max, g.unpacked)
        for g in file.change_groups
    )


def route(file: ReadFile, chain_ts: int, router: Router) -> RoutedFile:
    """Divide the file among the tasks of its tenant. `chain_ts`: the first ts of its chain."""
    ref = FileRef(
        cluster_id=file.cluster_id,
        tenant_id=file.tenant_id,
        store_id=file.store_id,
        ts=file.seen.ts,
        prev_ts=file.seen.prev_ts,
        chain_ts=chain_ts,
        key=file.key,
        size=file.size,
        footer_start=file.footer_start,
        arrived_ms=file.arrived_ms,
        groups=file.groups,
        row_groups=router.row_groups(file.groups),
    )
    return RoutedFile(ref, router.watermarks(file.watermarks))
