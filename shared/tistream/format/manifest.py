"""The manifest: the only source of truth about a task (design.md 4, docs/formats.md).

A task's manifests are numbered from 1 without a hole. Each is one object, created by a conditional put:

    b"TSMF" | u32 LE version = 6 | u32 LE crc32 of the rest | zstd( u32 LE header length | header JSON | Arrow IPC )

The Arrow part consists of one IPC stream each for `slices` and `waiting` (tistream_sorter.watermark.slices). A manifest
restates all positions, pending parts, slices and waiting watermarks. Only segments are incremental. The version index
(`index`) is restated when it changes and in checkpoints; without an index the header does not have the field.
"""

from __future__ import annotations

import json
import struct
import zlib
from dataclasses import astuple, dataclass, field
from typing import Any

import pyarrow as pa
import zstandard

from tistream import arrow_ipc
from tistream.errors import CorruptObject
from tistream.format.backfill.cover_json import cover_from_json, cover_to_json
from tistream.format.run import Index, IndexPart
from tistream.format.segment import RowGroupInfo, SegmentRef
from tistream.format.source_file import SourceFile
from tistream.model.base_cover import Cover
from tistream.model.ids import TenantKey
from tistream.model.span import KeySpan

MAGIC = b"TSMF"
VERSION = 6
KNOWN_VERSIONS = (1, 2, 3, 4, 5, 6)  # 1 has no sources and row_groups in pending parts; others: `Manifest`

KIND_CLAIM = "claim"  # empty: records only that an epoch has begun
KIND_TICK = "tick"
KIND_CHECKPOINT = "checkpoint"  # a tick that also restates every live segment
KIND_SEAL = "seal"  # ends the task and names its children

READY = "ready"  # a pending part of matched rows above the watermark
UNMATCHED = "unmatched"  # a pending part of prewrites, commits and rollbacks without their counterpart
SEALED = "sealed"  # a pending part with the format of a segment, of one commit_ts above the watermark


@dataclass(frozen=True, slots=True)
class PendingPart:
    """A reference to pending entries, which are in no segment yet: those of one immutable Parquet file whose keys are
    in `span`.

    `rows` is an upper bound of their number. The ts bounds are inclusive; `commit_ts_min` is MAX_TS if no entry has a
    commit_ts. In a part of kind UNMATCHED, entries may point to a value in a change file instead of holding it:
    `sources` are the row groups of these files, and `pointed_bytes` is the estimated unpacked size of the values. A
    part of kind SEALED has the `row_groups` of the segment that it will become.
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
    """The position in one chain of a store's files: every file from `first_ts` through `at_ts` has been applied.

    `first_ts` is the ts of the chain's first file (with prev_ts 0) and identifies the chain. A store usually has one
    position. If its writer began a new chain before the old one was complete, the store has a position for each open
    chain and for the newest closed chains, oldest first.
    """

    first_ts: int
    at_ts: int


@dataclass(frozen=True, slots=True)
class IntakeCount:
    """How many bytes of change files were applied for a tenant (docs/adr/0014). Only one task of the tenant counts
    them: that with the first key.

    `hours`: bytes by hour, for the newest hours only. An hour is identified by its beginning, in ms since the Unix
    epoch. A file counts in the hour in which the first manifest that contains it was written. `through`: for each
    store, the positions up to which files were counted. They are needed after a merge, which moves the task's positions
    back, so that files arrive again.
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
    """A planned merge of tasks: the tasks `parents` end, and the task `child` takes over their keys, `span`.

    `parents` are in key order and include the task itself. The log of the first parent decides whether the merge
    happens (docs/adr/0020).
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
    """One decoded manifest. The header states it in JSON, keys in hexadecimal (docs/formats-fields.md is made of this):

    - `cluster_id`, `tenant_id`, `task_id`, `number`: identity
    - `kind`: `claim`, `tick`, `checkpoint` or `seal`
    - `task_epoch`, `nonce`: of the writer
    - `span`: `[start, end]`
    - `low_ts`, `flushed_ts`: the window `(low_ts, flushed_ts]`
    - `segments`: new segments: `key`, `size`, `checksum` (CRC-32 of the object), `rows`, `row_groups`, each `[rows,
      table_id_min, table_id_max, commit_ts_min, commit_ts_max]`
    - `live_segments`: checkpoints and seals: all segments; otherwise null
    - `pending`: all pending parts
    - `positions`: per store the chains `[first_ts, at_ts]`: all open ones, at most 1,024, and the newest closed ones,
      to eight in all (docs/adr/0003-several-chains-per-store.md)
    - `counters`: totals since the task began
    - `checkpoint`: number of the newest checkpoint at or below this manifest; 0: none
    - `children`: of a seal: `[task id, start, end]`
    - `stop_at`: no holder flushes, or reports progress, above it; null: no stop
    - `merge`: why it stops: `{"child":id,"span":[start,end],"parents":[ids in key order]}`; null without a stop; absent
      below version 5
    - `retained_ts`, `schema_retained_ts`: rows at or below may be gone; the same for the schema's keys, lower after
      some merges. Neither goes down. Absent below version 3
    - `heritage`: sealed tasks whose objects may still exist; the holder deletes these. Absent below version 3
    - `intake`: of the task with the tenant's first key: `hours` (beginning of the hour in ms → bytes of change files
      first contained in a manifest of it, the newest 72), `through` (as `positions`, where counting is ahead of them).
      Absent below version 4
    - `index`: the version index, if it changed, and in checkpoints: per part `span`, `begins_ts`, `base_ts`,
      `indexed_ts`, `runs`, and `basis`, the objects of backfills (tistream.format.run). Absent below version 6, and
      without an index
    - `cover`: in checkpoints, the keys of which backfills know all rows: `[start, end, base_ts]` in key order,
      without overlaps; else null. Absent below version 6
    - `written_ms`: the writer's wall clock, informative
    - `arrow`: lengths of the two Arrow streams in bytes: slices, and watermarks that wait
    """

    tenant: TenantKey
    task_id: int
    number: int
    task_epoch: int
    nonce: str
    kind: str
    span: KeySpan
    low_ts: int
    flushed_ts: int
    segments: tuple[SegmentRef, ...] = ()
    live_segments: tuple[SegmentRef, ...] | None = None
    cover: Cover | None = None  # the bases of backfills, in checkpoint manifests
    pending: tuple[PendingPart, ...] = ()
    positions: dict[int, tuple[ChainPosition, ...]] = field(default_factory=dict)
    counters: dict[str, int] = field(default_factory=dict)
    checkpoint: int = 0
    children: tuple[tuple[int, KeySpan], ...] = ()  # SEAL: (task_id, span)
    stop_at: int | None = None  # no holder may flush above it (merge, design.md 4)
    merge: Merging | None = None  # the merge that set stop_at; None although stop_at is set: written before version 5
    retained_ts: int = 0
    schema_retained_ts: int = 0
    heritage: tuple[int, ...] = ()
    written_ms: int = 0
    intake: IntakeCount = NOTHING_TAKEN
    slices: pa.Table | None = None
    waiting: pa.Table | None = None
    index: Index | None = None  # the version index (tistream.format.run); None: unchanged, or none in a checkpoint


def encode(manifest: Manifest) -> bytes:
    """Encode a manifest as the bytes of its object. Equal manifests give equal bytes."""
    slices, waiting = (
        b"" if table is None else arrow_ipc.to_bytes(table) for table in (manifest.slices, manifest.waiting)
    )
    live = manifest.live_segments
    header = {
        "cluster_id": manifest.tenant.cluster_id,
        "tenant_id": manifest.tenant.tenant_id,
        "span": [manifest.span.start.hex(), manifest.span.end.hex()],
        "segments": [segment.to_json() for segment in manifest.segments],
        "live_segments": None if live is None else [segment.to_json() for segment in live],
        "cover": None if manifest.cover is None else cover_to_json(manifest.cover),
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
    if manifest.index is not None:
        header["index"] = [part.to_json() for part in manifest.index]
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
    """Decode the bytes of a manifest object. Raises CorruptObject with `key` and the reason."""
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
    live, index = header["live_segments"], header.get("index")
    return Manifest(
        tenant=TenantKey(header["cluster_id"], header["tenant_id"]),
        span=KeySpan(*map(bytes.fromhex, header["span"])),
        segments=tuple(map(SegmentRef.from_json, header["segments"])),
        live_segments=None if live is None else tuple(map(SegmentRef.from_json, live)),
        cover=None if header.get("cover") is None else cover_from_json(header["cover"]),
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
        index=None if index is None else tuple(map(IndexPart.from_json, index)),
        intake=IntakeCount.from_json(header["intake"]) if "intake" in header else NOTHING_TAKEN,
        **{name: header[name] for name in _PLAIN},
    )


def _table(data: bytes) -> pa.Table | None:
    return arrow_ipc.from_bytes(data) if data else None
