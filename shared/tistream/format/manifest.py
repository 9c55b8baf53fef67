"""The manifest: the only truth about a task (design.md 4, docs/formats.md).

A task's manifests are numbered from 1 without a hole. Each is one object, created by a conditional put:

    b"TSMF" | u32 LE version = 5 | u32 LE crc32 of the rest | zstd( u32 LE header length | header JSON | Arrow IPC )

The Arrow part is one IPC stream each for `slices` and `waiting` (tistream_sorter.watermark.slices), concatenated; their
lengths stand in the header. What a manifest restates is complete: positions, pending parts, slices and waiting
watermarks. Only segments are incremental: `segments` are the new ones, and `live_segments` (checkpoint manifests
only) are all that readers need, those of this manifest included.
"""

from __future__ import annotations

import json
import struct
import zlib
from dataclasses import astuple, dataclass, field
from typing import Any

import pyarrow as pa
import zstandard

from tistream.errors import CorruptObject
from tistream.format.segment import RowGroupInfo, SegmentRef
from tistream.format.source_file import SourceFile
from tistream.model.ids import TenantKey
from tistream.model.span import KeySpan

MAGIC = b"TSMF"
VERSION = 5
# A part of version 1 has neither sources nor row_groups; before 3 nothing was collected: no retained_ts, no heritage;
# before 4 nothing was metered: no intake; before 5 a stop_at did not say what for: no merge.
KNOWN_VERSIONS = (1, 2, 3, 4, 5)

KIND_CLAIM = "claim"  # empty: only says that an epoch has begun
KIND_TICK = "tick"
KIND_CHECKPOINT = "checkpoint"  # a tick that also restates every live segment
KIND_SEAL = "seal"  # ends the task; names its children

READY = "ready"  # a pending part of matched rows above the watermark
UNMATCHED = "unmatched"  # a pending part of prewrites, commits and rollbacks that wait for their other half
SEALED = "sealed"  # a pending part that is a segment already, of one commit_ts above the watermark


@dataclass(frozen=True, slots=True)
class PendingPart:
    """One immutable Parquet file of pending entries, or what is left of it: its entries with keys in `span`.

    `rows` bounds their number from above; the ts bounds are inclusive, and `commit_ts_min` is MAX_TS where no entry
    has a commit_ts. Of an UNMATCHED part `sources` are the row groups that rows without a value of their own point
    into, and `pointed_bytes` about what those values weigh, unpacked. Of a SEALED part `row_groups` are the segment's.
    """

    key: str
    size: int
    checksum: str
    rows: int
    kind: str
    start_ts_min: int
    start_ts_max: int
    commit_ts_min: int
    span: KeySpan
    pointed_bytes: int = 0
    sources: tuple[SourceFile, ...] = ()
    row_groups: tuple[RowGroupInfo, ...] = ()

    def to_json(self) -> dict[str, Any]:
        out = {name: getattr(self, name) for name in self.__slots__}
        out["span"] = [self.span.start.hex(), self.span.end.hex()]
        out["sources"] = [source.to_json() for source in self.sources]
        out["row_groups"] = [list(astuple(group)) for group in self.row_groups]
        return {name: value for name, value in out.items() if value or name not in _OPTIONAL}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> PendingPart:
        more = {
            "span": KeySpan(*map(bytes.fromhex, data["span"])),
            "sources": tuple(map(SourceFile.from_json, data.get("sources", ()))),
            "row_groups": tuple(RowGroupInfo(*group) for group in data.get("row_groups", ())),
        }
        return cls(**{**data, **more})


_OPTIONAL = ("pointed_bytes", "sources", "row_groups")


@dataclass(frozen=True, slots=True)
class ChainPosition:
    """How far one chain of a store's files has been taken: every file from `first_ts` through `at_ts`.

    `first_ts` names the chain (the file with prev_ts 0). A store has one position, or, after restarts that began new
    chains before the old ones were complete, one per chain that is still open, and those of the newest closed ones,
    oldest first.
    """

    first_ts: int
    at_ts: int


@dataclass(frozen=True, slots=True)
class IntakeCount:
    """Bytes of the change files that were taken (docs/adr/0014), counted by the task with the tenant's first keys.

    `hours`: by the hour (its beginning, ms since the Unix epoch) in which the manifest was written that first
    contained them; only the newest hours. `through`: in each store's chains, what was counted already and is to come
    again, because a merge has taken the positions back.
    """

    hours: dict[int, int] = field(default_factory=dict)
    through: dict[int, tuple[ChainPosition, ...]] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        return {
            "hours": {str(hour): size for hour, size in self.hours.items()},
            "through": {
                str(store): [[chain.first_ts, chain.at_ts] for chain in chains]
                for store, chains in self.through.items()
            },
        }

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> IntakeCount:
        through = {
            int(store): tuple(ChainPosition(*chain) for chain in chains) for store, chains in data["through"].items()
        }
        return cls({int(hour): size for hour, size in data["hours"].items()}, through)


NOTHING_TAKEN = IntakeCount()


@dataclass(frozen=True, slots=True)
class Merging:
    """What a task stops for: to become the task `child`, of the keys `span`, with the other `parents`.

    These are all of them, in key order. The first leads: its log decides whether the others end too (docs/adr/0020).
    """

    child: int
    span: KeySpan
    parents: tuple[int, ...]

    def to_json(self) -> dict[str, Any]:
        span = [self.span.start.hex(), self.span.end.hex()]
        return {"child": self.child, "span": span, "parents": list(self.parents)}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Merging:
        return cls(data["child"], KeySpan(*map(bytes.fromhex, data["span"])), tuple(data["parents"]))


@dataclass(frozen=True, slots=True)
class Manifest:
    """One manifest, decoded."""

    tenant: TenantKey
    task_id: int
    number: int
    task_epoch: int
    nonce: str
    kind: str
    span: KeySpan
    low_ts: int  # the window flushed by this manifest is (low_ts, flushed_ts]
    flushed_ts: int
    segments: tuple[SegmentRef, ...] = ()
    live_segments: tuple[SegmentRef, ...] | None = None
    pending: tuple[PendingPart, ...] = ()
    positions: dict[int, tuple[ChainPosition, ...]] = field(default_factory=dict)
    counters: dict[str, int] = field(default_factory=dict)  # totals since the task began
    checkpoint: int = 0  # number of the newest checkpoint manifest at or before this one; 0 = none
    children: tuple[tuple[int, KeySpan], ...] = ()  # SEAL: (task_id, span)
    stop_at: int | None = None  # a flushed_ts that binds later holders (merge, design.md 4)
    merge: Merging | None = None  # what it stops for; None with a stop_at: written before version 5
    retained_ts: int = 0  # rows at or below it may be gone from the pool (docs/adr/0009)
    schema_retained_ts: int = 0  # the same of the schema's keys; lower after a merge with a task that has none
    heritage: tuple[int, ...] = ()  # sealed tasks, of which objects may still be there
    written_ms: int = 0  # wall clock of the writer, for people
    intake: IntakeCount = NOTHING_TAKEN
    slices: pa.Table | None = None
    waiting: pa.Table | None = None


def _ipc(table: pa.Table | None) -> bytes:
    if table is None:
        return b""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())


def encode(manifest: Manifest) -> bytes:
    """The object's bytes. Deterministic: the same manifest gives the same bytes."""
    slices, waiting = _ipc(manifest.slices), _ipc(manifest.waiting)
    live = manifest.live_segments
    header = {
        "cluster_id": manifest.tenant.cluster_id,
        "tenant_id": manifest.tenant.tenant_id,
        "span": [manifest.span.start.hex(), manifest.span.end.hex()],
        "segments": [segment.to_json() for segment in manifest.segments],
        "live_segments": None if live is None else [segment.to_json() for segment in live],
        "pending": [part.to_json() for part in manifest.pending],
        "positions": {
            str(store): [[chain.first_ts, chain.at_ts] for chain in chains]
            for store, chains in sorted(manifest.positions.items())
        },
        "intake": manifest.intake.to_json(),
        "merge": None if manifest.merge is None else manifest.merge.to_json(),
        "children": [[task, span.start.hex(), span.end.hex()] for task, span in manifest.children],
        "arrow": [len(slices), len(waiting)],
    }
    for name in (*_PLAIN, *_SINCE_3):
        header[name] = getattr(manifest, name)
    text = json.dumps(header, sort_keys=True, separators=(",", ":")).encode()
    body = zstandard.compress(struct.pack("<I", len(text)) + text + slices + waiting, 3)
    return MAGIC + struct.pack("<II", VERSION, zlib.crc32(body)) + body


_PLAIN = (
    "task_id",
    "number",
    "task_epoch",
    "nonce",
    "kind",
    "low_ts",
    "flushed_ts",
    "counters",
    "checkpoint",
    "stop_at",
    "written_ms",
)
_SINCE_3 = ("retained_ts", "schema_retained_ts", "heritage")


def decode(key: str, data: bytes) -> Manifest:
    """Parse an object's bytes. Raises CorruptObject naming `key` and what is wrong."""
    if data[:4] != MAGIC or len(data) < 12:
        raise CorruptObject(key, "not a manifest (bad magic)")
    version, crc = struct.unpack_from("<II", data, 4)
    if version not in KNOWN_VERSIONS:
        raise CorruptObject(key, f"manifest version {version}; this program knows {KNOWN_VERSIONS}")
    if zlib.crc32(data[12:]) != crc:
        raise CorruptObject(key, "manifest fails its CRC-32")
    body = zstandard.decompress(data[12:])
    (length,) = struct.unpack_from("<I", body)
    header = json.loads(body[4 : 4 + length])
    slices_end = 4 + length + header["arrow"][0]
    live = header["live_segments"]
    return Manifest(
        tenant=TenantKey(header["cluster_id"], header["tenant_id"]),
        span=KeySpan(*map(bytes.fromhex, header["span"])),
        segments=tuple(map(SegmentRef.from_json, header["segments"])),
        live_segments=None if live is None else tuple(map(SegmentRef.from_json, live)),
        pending=tuple(map(PendingPart.from_json, header["pending"])),
        positions={
            int(store): tuple(ChainPosition(*chain) for chain in chains)
            for store, chains in header["positions"].items()
        },
        children=tuple(
            (task, KeySpan(bytes.fromhex(start), bytes.fromhex(end))) for task, start, end in header["children"]
        ),
        slices=_table(body[4 + length : slices_end]),
        waiting=_table(body[slices_end : slices_end + header["arrow"][1]]),
        retained_ts=header.get("retained_ts", 0),
        schema_retained_ts=header.get("schema_retained_ts", header.get("retained_ts", 0)),
        heritage=tuple(header.get("heritage", ())),
        merge=Merging.from_json(header["merge"]) if header.get("merge") else None,
        intake=IntakeCount.from_json(header["intake"]) if "intake" in header else NOTHING_TAKEN,
        **{name: header[name] for name in _PLAIN},
    )


def _table(data: bytes) -> pa.Table | None:
    return pa.ipc.open_stream(data).read_all() if data else None
