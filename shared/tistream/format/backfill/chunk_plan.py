"""The plan of a backfill, and its end: two JSON objects beside its chunks (docs/backfill.md). Pure.

plan  {"version":1,"spans":[["start hex","end hex"],…],"min_ts":"T"}      created once, by a conditional put
    done  {"version":1,"chunks":N}                                            written after the last chunk

The spans are in key order and do not overlap. Each lies in the record keys of one physical table id. Chunk n has the
n-th span, counted from 0. Its base_ts may be any ts at or above `min_ts`, because the log has every change above
`min_ts`. A source that encodes rows itself, instead of copying the bytes that TiKV stores, sets `"exact":false` in its
plan. Then the encoded values may differ from those in the log, and are not compared with them.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

from tistream.errors import CorruptObject
from tistream.model.span import KeySpan, shown_key
from tistream.model.ts import MAX_TS

VERSION = 1
SPANS_MAX = 1_000_000
BYTES_MAX = 256 << 20
RECORD_PREFIX_BYTES = 11


@dataclass(frozen=True, slots=True)
class ChunkPlan:
    """The plan of a backfill: which keys each of its chunks covers. `spans`: chunk n covers spans[n]; in key order,
    without overlaps. No chunk may have a base_ts below `min_ts`. `exact`: the chunks have the bytes that TiKV
    stores."""

    spans: tuple[KeySpan, ...]
    min_ts: int
    exact: bool = True


def encode_plan(plan: ChunkPlan) -> bytes:
    """Encode the plan as the bytes of its object. Equal plans give equal bytes."""
    spans = [[span.start.hex(), span.end.hex()] for span in plan.spans]
    data = {"version": VERSION, "spans": spans, "min_ts": str(plan.min_ts)} | ({} if plan.exact else {"exact": False})
    return json.dumps(data, separators=(",", ":")).encode()


def decode_plan(key: str, body: bytes) -> ChunkPlan:
    """Decode the plan that `encode_plan` encoded. Raises CorruptObject, also if spans overlap or are out of order; the
    error names them."""
    if len(body) > BYTES_MAX:
        raise CorruptObject(key, f"has {len(body)} bytes; no more than {BYTES_MAX} are read")
    try:
        data = json.loads(body)
        version, listed, min_ts = data["version"], data["spans"], int(data["min_ts"])
        if version != VERSION:
            raise CorruptObject(key, f"plan version {version!r}; this program knows {VERSION}")
        if not isinstance(listed, list) or len(listed) > SPANS_MAX:
            raise ValueError(f"`spans` is not a list of at most {SPANS_MAX} spans")
        bounds = [(bytes.fromhex(start), bytes.fromhex(end)) for start, end in listed]
        exact = data.get("exact", True)
        if not isinstance(exact, bool):
            raise ValueError("`exact` is not a boolean")
    except (ValueError, KeyError, TypeError) as error:
        raise CorruptObject(key, f"is not a valid plan: {error!r}") from error
    if not 0 < min_ts <= MAX_TS:
        raise CorruptObject(key, f"its min_ts {min_ts} is not a TSO")
    before = b""
    for number, (start, end) in enumerate(bounds):
        if end and start >= end:
            raise CorruptObject(key, f"span {number} ends at {shown_key(end)}, not above its start {shown_key(start)}")
        if not _in_one_table(start, end):
            shown = f"[{shown_key(start)}, {shown_key(end)})"
            raise CorruptObject(
                key, f"span {number}, {shown}, is not in the record keys (t…_r) of one physical table id"
            )
        if start < before:
            raise CorruptObject(key, f"span {number} from {shown_key(start)} overlaps the span before it")
        before = end
    return ChunkPlan(tuple(KeySpan(start, end) for start, end in bounds), min_ts, exact)


def table_id_of(span: KeySpan) -> int:
    """The physical table id of a plan's span, all of whose keys are record keys of one table."""
    return int.from_bytes(span.start[1:9], "big") - (1 << 63)


def _in_one_table(start: bytes, end: bytes) -> bool:
    prefix = start[:RECORD_PREFIX_BYTES]
    record = len(prefix) == RECORD_PREFIX_BYTES and prefix[:1] == b"t" and prefix[9:] == b"_r"
    return record and bool(end) and end <= prefix[:-1] + b"s"


def encode_done(chunks: int) -> bytes:
    """Encode the object `done`, which states that the backfill is complete and has `chunks` chunks."""
    return json.dumps({"version": VERSION, "chunks": chunks}).encode()


def decode_done(key: str, body: bytes) -> int:
    """Decode the number of chunks from the object `done`. Raises CorruptObject."""
    try:
        data = json.loads(body)
        version, chunks = data["version"], data["chunks"]
    except (ValueError, KeyError, TypeError) as error:
        raise CorruptObject(key, f"is not a valid end of a backfill: {error!r}") from error
    if version != VERSION:
        raise CorruptObject(key, f"done version {version!r}; this program knows {VERSION}")
    if not isinstance(chunks, int) or isinstance(chunks, bool) or chunks < 0:
        raise CorruptObject(key, f"states {chunks!r} chunks")
    return chunks
