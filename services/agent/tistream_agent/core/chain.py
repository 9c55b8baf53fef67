"""The chain of the files of a territory (the span of keys that one agent reads): how they are named, and where an agent
continues the chain. Pure.

A file is named by its ts, which is the ts of the file before it plus 1, and each PUT is conditional. So once an agent
that takes over has put a file under the next name, the previous agent can put none any more (it is fenced). The last
file is the only durable state: its watermark rows and its metadata `tistream.agent_spans` say from which ts on the
changes of each key must be requested.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import pyarrow as pa

from tistream.errors import CorruptObject
from tistream.model.span import WHOLE, KeySpan, merge_spans

NONCE = "tistream.agent_nonce"
EPOCH = "tistream.agent_epoch"
SPANS = "tistream.agent_spans"
CHILDREN = "tistream.agent_children"
SOURCE = "tistream.source"
SOURCE_CDC = "tikv-cdc"
SEALED = "sealed"  # in place of the nonce of a last file, after which no agent continues
SPANS_BYTES_MAX = 1 << 20  # of tistream.agent_spans
REMEDY = "run `tistream connect` with a new --territory (docs/agent.md)"


@dataclass(frozen=True, slots=True)
class Promise:
    """States that all changes of the span with commit_ts <= `ts` are in the chain's files."""

    span: KeySpan
    ts: int


@dataclass(frozen=True, slots=True)
class Position:
    """The place at which a chain continues: after file `prev_ts` (0 for a new chain). The promises state up to which ts
    the chain is complete; their spans cover the territory without gap and overlap.

    `next_ts` is the name of the next file: `prev_ts + 1`, or the tenant's snapshot_ts + 1 for a new chain.
    """

    prev_ts: int
    next_ts: int
    promises: tuple[Promise, ...]

    @property
    def lowest_ts(self) -> int:
        """The lowest ts of the promises. TiKV must still have all versions above it and, for old values, the newest
        version at or below it."""
        return min(promise.ts for promise in self.promises)


@dataclass(frozen=True, slots=True)
class Child:
    """A territory that a division has made, and its keys."""

    store_id: int
    span: KeySpan


@dataclass(frozen=True, slots=True)
class ChainEnd:
    """What the newest file of a chain states. `position` is None if the chain has no file. `sealed`: no agent may
    continue the chain. `children`: the territories among which the keys were divided; empty if they were not."""

    position: Position | None = None
    sealed: bool = False
    children: tuple[Child, ...] = ()


def new_chain(span: KeySpan, base_ts: int) -> Position:
    """The position of a chain without files. `base_ts` is the tenant's snapshot_ts.

    The first file is named after it, so two agents that find no file try the same name, and only one of them succeeds.
    """
    return Position(0, base_ts + 1, (Promise(span, base_ts),))


def begins_at(position: Position | None, base_ts: int) -> Position:
    """The position of a chain that begins anew at `base_ts`, for all keys. If the chain has files already (`position`),
    the next file follows them, but their promises no longer count."""
    begun = new_chain(WHOLE, base_ts)
    return begun if position is None else replace(position, promises=begun.promises)


def read_position(
    key: str, ts: int, metadata: Mapping[str, str], watermarks: pa.Table, span: KeySpan | None
) -> Position:
    """Read from the last file of a chain where the chain continues.

    Args:
        key, ts: the file's object key and ts.
        metadata: its footer metadata.
        watermarks: its watermark rows (`format.change_rows.WATERMARKS`).
        span: the territory, whose keys the promises must tile. None: it is not known, and the keys of all promises
            are its keys.

    Raises:
        CorruptObject: no agent wrote the file, or its promises leave out keys of the territory. The remedy is a
            new territory.
    """
    if metadata.get(SOURCE) != SOURCE_CDC:
        raise CorruptObject(
            key,
            f"{SOURCE} is {metadata.get(SOURCE)!r}: no agent wrote it, so it states no position; {REMEDY}",
        )
    rows = watermarks.select(["start_key", "end_key", "region_id", "resolved_ts"]).to_pylist()
    # An ended log and its successor can both have rows: the later log's row is the one that continues.
    found = [(row["region_id"], Promise(KeySpan(row["start_key"], row["end_key"]), row["resolved_ts"])) for row in rows]
    carried = [(0, promise) for promise in read_spans(key, metadata)]
    promises = [promise for _, promise in found + carried]
    spans = merge_spans((one.span for one in promises), max(1, len(promises))) if span is None else (span,)
    if not spans:
        raise CorruptObject(key, "it promises nothing for any key: a new territory has to take them")
    return Position(ts, ts + 1, tuple(one for its in spans for one in tiled(key, its, promises)))


def read_spans(key: str, metadata: Mapping[str, str]) -> list[Promise]:
    """Parse the promises in the footer metadata `tistream.agent_spans`; empty if the file has none. Raises
    CorruptObject, with the file's object key `key`, if they are malformed."""
    try:
        listed = json.loads(metadata.get(SPANS, "[]"))
        return [Promise(KeySpan(bytes.fromhex(start), bytes.fromhex(end)), int(base)) for start, end, base in listed]
    except (ValueError, TypeError, AssertionError) as error:
        raise CorruptObject(key, f"{SPANS} is not a list of [start, end, base_ts]: {error}; {REMEDY}") from error


def spans_text(promises: Sequence[Promise], lowest_ts: int) -> str:
    """Encode promises, which are in key order, as the text of `tistream.agent_spans`, which `read_spans` parses.

    A text beyond SPANS_BYTES_MAX would make the footer too large for readers (formats.md). So neighbours are joined
    until it is short enough: a joined promise has the lowest ts of its parts, or `lowest_ts`, which holds for all keys
    of the territory, if there are other keys between them.
    """
    joined, together = promises, 1
    while len(text := _spans_text(joined)) > SPANS_BYTES_MAX and len(joined) > 1:
        together *= 2
        runs = (promises[at : at + together] for at in range(0, len(promises), together))
        joined = [_joined(run, lowest_ts) for run in runs]
    return text


def _joined(run: Sequence[Promise], lowest_ts: int) -> Promise:
    whole = all(left.span.end == right.span.start for left, right in pairwise(run))
    ts = min(promise.ts for promise in run) if whole else lowest_ts
    return Promise(KeySpan(run[0].span.start, run[-1].span.end), ts)


def _spans_text(promises: Sequence[Promise]) -> str:
    return json.dumps([[p.span.start.hex(), p.span.end.hex(), str(p.ts)] for p in promises], separators=(",", ":"))


def read_children(key: str, metadata: Mapping[str, str]) -> tuple[Child, ...]:
    """Parse the footer metadata `tistream.agent_children`; empty if the file has none. Raises CorruptObject, with the
    file's object key `key`, if it is malformed."""
    try:
        listed = json.loads(metadata.get(CHILDREN, "[]"))
        return tuple(Child(int(one), KeySpan(bytes.fromhex(start), bytes.fromhex(end))) for one, start, end in listed)
    except (ValueError, TypeError, AssertionError) as error:
        raise CorruptObject(key, f"{CHILDREN} is not a list of [store_id, start, end]: {error}; {REMEDY}") from error


def children_text(children: Sequence[Child]) -> str:
    """Encode children as the text of `tistream.agent_children`, which `read_children` parses."""
    listed = [[str(one.store_id), one.span.start.hex(), one.span.end.hex()] for one in children]
    return json.dumps(listed, separators=(",", ":"))


def tiled(key: str, span: KeySpan, promises: Sequence[Promise]) -> tuple[Promise, ...]:
    """Cut the span into promises without gap and overlap. Where given promises overlap, the one with the highest ts
    counts, because every promise of a file is true. Raises CorruptObject, with the file's `key`, if the promises leave
    out keys of the span."""
    inside = [(piece, p.ts) for p in promises if (piece := p.span.clip(span)) is not None]
    bounds = sorted({span.start} | {piece.start for piece, _ in inside} | {p.end for p, _ in inside if p.end})
    bounds = [bound for bound in bounds if bound in span]
    out: list[Promise] = []
    starts = sorted(inside, key=lambda one: one[0].start)
    active: list[tuple[KeySpan, int]] = []
    at = 0
    for number, bound in enumerate(bounds):
        piece = KeySpan(bound, bounds[number + 1] if number + 1 < len(bounds) else span.end)
        while at < len(starts) and starts[at][0].start <= bound:
            active.append(starts[at])
            at += 1
        active = [one for one in active if not one[0].end or one[0].end > bound]
        if not active:
            raise CorruptObject(key, f"it promises nothing for keys from {piece.start.hex()}; {REMEDY}")
        out.append(Promise(piece, max(ts for _, ts in active)))
    return tuple(out)
