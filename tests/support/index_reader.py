"""The simplest reader of the version index: every row of every object, in a dictionary. What it reads is compared with
what was committed."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import pyarrow as pa

from tistream.format.run import IndexPart, RunRef
from tistream.format.segment import OP_PUT, SCHEMA, SegmentRef
from tistream.format.task_view import TaskView
from tistream.model.span import KeySpan
from tistream.model.ts import MAX_TS, Window
from tistream.pool.lineage import LogSpan
from tistream.pool.rows import read_rows
from tistream.pool.run_rows import read_run
from tistream.storage.object_store import ObjectStore


@dataclass(frozen=True, slots=True)
class Version:
    """One version of a key."""

    table_id: int
    start_ts: int
    op: int
    value: bytes | None
    txn_source: int | None


Versions = dict[tuple[bytes, int], Version]  # by key and commit_ts


def versions_of(rows: pa.Table) -> Versions:
    """The rows of a segment or a run."""
    names = ("key", "commit_ts", "table_id", "start_ts", "op", "value", "txn_source")
    columns = [rows.column(name).to_pylist() for name in names]
    found = {(key, ts): Version(*rest) for key, ts, *rest in zip(*columns, strict=True)}
    assert len(found) == rows.num_rows, "a version is there twice"
    return found


def inside(versions: Versions, span: KeySpan, low: int = -1, high: int = MAX_TS) -> Versions:
    """Versions of keys of the span in the window (low, high]."""
    return {at: one for at, one in versions.items() if at[0] in span and low < at[1] <= high}


def newest(versions: Versions, ts: int) -> Versions:
    """Of each key the newest version at or below `ts`, unless it is a delete."""
    found: dict[bytes, int] = {}
    for key, commit_ts in versions:
        if commit_ts <= ts:
            found[key] = max(found.get(key, 0), commit_ts)
    return {at: versions[at] for at in found.items() if versions[at].op == OP_PUT}


def run_versions(objects: ObjectStore, runs: Iterable[RunRef], span: KeySpan) -> Versions:
    """The versions of run objects with keys in `span`; none of them twice."""
    out: Versions = {}
    for run in runs:
        found = inside(versions_of(read_run(objects, run)), span)
        assert not found.keys() & out.keys(), f"{run.key} repeats a version"
        out |= found
    return out


def part_versions(objects: ObjectStore, part: IndexPart, segments: Iterable[SegmentRef], span: KeySpan) -> Versions:
    """All versions of a part of an index that a reader can meet, clipped to `span`."""
    piece = part.span.clip(span)
    if piece is None:
        return {}
    out = run_versions(objects, (*part.runs, *part.basis), piece)
    window = Window(part.indexed_ts, MAX_TS)
    for segment in segments:
        out |= inside(versions_of(read_rows(objects, segment, window, columns=SCHEMA.names)), piece)
    return out


def state_at(objects: ObjectStore, covers: Iterable[LogSpan], ts: int) -> Versions:
    """The rows of a tenant at `ts`, read as the contract of tistream.format.run says."""
    out: Versions = {}
    for cover in covers:
        for part in parts_of(cover.log.view):
            assert part.base_ts <= ts, f"{ts} is below the base {part.base_ts}"
            out |= newest(part_versions(objects, part, cover.log.segments, cover.span), ts)
    return out


def parts_of(view: TaskView) -> tuple[IndexPart, ...]:
    """The parts of a task's index. Without an index, all is read from segments."""
    if view.index:
        return view.index
    assert view.last is not None
    return (IndexPart(view.last.span, 0, 0, 0),)
