"""Decides which unmatched prewrites and rollbacks (locks) are dead, and which repeat a settled change (design.md 3).
Pure.

A lock's place is `(region_version, log_index)`. Slices and watermark rows compare with it lexicographically, because
for overlapping keys a higher version is newer, and an equal version is the same region. TiKV never raises a region's
resolved_ts past a live lock that is already in its log. So once the slice of a key covers a lock's place, the sorter
stores `floor = max(start_ts, the slice's resolved_ts)`. If a watermark row connects later, its last index is greater
than the lock's, and its resolved_ts is above the floor, then the lock has ended. The entry that ended it has a higher
index, so it has arrived. It was not a commit, because then the prewrite would be matched.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl
import pyarrow as pa

from tistream.arrays import Bools, Int64s
from tistream_sorter.match.key_range import inside

NO_FLOOR = np.int64(-1)


@dataclass(frozen=True, slots=True)
class Locks:
    """Unmatched prewrites or rollbacks, as columns. `seq`: position of the entry's file in the tick; -1 if the entry
    was pending before. `floor`: NO_FLOOR while the slice has not covered the lock's place in the log."""

    key: pl.Series
    start_ts: Int64s
    region_version: Int64s
    log_index: Int64s
    generation: Int64s
    seq: Int64s
    floor: Int64s


@dataclass(frozen=True, slots=True)
class Verdict:
    """The decision for each lock, as arrays: whether it is dead; whether a slice had already covered its place when it
    arrived, so that it may be a repeat; its floor (glossary: floor of a lock) after the tick."""

    dead: Bools
    covered_on_arrival: Bools
    floor: Int64s


def judge(locks: Locks, history: pa.Table) -> Verdict:
    """Decide whether each lock is dead, by comparing it with the successive states of its slice. `history`: the changes
    of slices in order (watermark.slice_history.HISTORY)."""
    count = len(locks.key)
    if count == 0:
        return Verdict(np.zeros(0, bool), np.zeros(0, bool), np.zeros(0, np.int64))
    cell, steps = _steps(locks.key, history)
    dead = np.zeros(count, bool)
    on_arrival = np.zeros(count, bool)
    floor = locks.floor.copy()
    for step in range(steps["seq"].shape[1]):
        at = {name: values[cell, step] for name, values in steps.items()}
        real = at["version"] >= 0
        beyond = _after(at["row_version"], at["row_index"], locks) & (at["row_version"] >= 0)
        later = at["seq"] >= locks.seq
        known = floor != NO_FLOOR
        dead |= real & later & known & (locks.generation == 0) & beyond & (at["row_resolved_ts"] > floor)
        scanned = (at["scan_index"] >= 0) & _after(at["row_version"], at["scan_index"], locks)
        dead |= real & later & (locks.generation > 0) & scanned
        covers = real & ~_before(at["version"], at["index"], locks)
        # Whether the place was covered on arrival depends on the last state before the lock's file.
        on_arrival = np.where(real & ~later, covers, on_arrival)
        next_later = _next_is_later(steps, cell, step, locks.seq)
        begins = covers & ~known & (later | next_later)
        floor = np.where(begins, np.maximum(locks.start_ts, at["resolved_ts"]), floor)
    return Verdict(dead, on_arrival, floor)


def in_scan(locks: Locks, scans: pa.Table) -> Bools:
    """Whether each lock was pushed by a scan, in the file that has the scan's watermark. `scans`: SCANS_SCHEMA."""
    out = np.zeros(len(locks.key), bool)
    for scan in scans.to_pylist():
        same_file = (locks.seq == scan["seq"]) & (locks.log_index == scan["log_index"])
        mask = same_file & (locks.region_version == scan["region_version"])
        if mask.any():
            out |= mask & inside(locks.key, scan["start_key"], scan["end_key"]).to_numpy()
    return out


def _after(version: Int64s, index: Int64s, locks: Locks) -> Bools:
    same = (version == locks.region_version) & (index > locks.log_index)
    result: Bools = (version > locks.region_version) | same
    return result


def _before(version: Int64s, index: Int64s, locks: Locks) -> Bools:
    same = (version == locks.region_version) & (index < locks.log_index)
    result: Bools = (version < locks.region_version) | same
    return result


def _next_is_later(steps: dict[str, Int64s], cell: Int64s, step: int, seq: Int64s) -> Bools:
    """For each lock, whether `step` was its slice's state when the lock arrived: the state after `step` came with the
    lock's file or after it."""
    following = steps["seq"][cell, step + 1] if step + 1 < steps["seq"].shape[1] else None
    if following is None:
        return np.ones(len(seq), bool)
    ended = steps["version"][cell, step + 1] < 0
    result: Bools = ended | (following >= seq)
    return result


def _steps(keys: pl.Series, history: pa.Table) -> tuple[Int64s, dict[str, Int64s]]:
    """Find the states with which the locks of each key must be compared. A cell is a key range without a slice boundary
    inside; a step is one state in the history of a cell. Returns (the cell of each key; for each column an array of
    shape [cell, step]). Unused steps have version -1."""
    frame = pl.from_arrow(history)
    assert isinstance(frame, pl.DataFrame)
    bounds = pl.concat([frame["start_key"], frame["end_key"]]).unique().sort()
    cell = bounds.search_sorted(keys, side="right").to_numpy().astype(np.int64) - 1
    used, row_of_key = np.unique(cell, return_inverse=True)
    first = bounds.search_sorted(frame["start_key"], side="left").to_numpy().astype(np.int64)
    last = bounds.search_sorted(frame["end_key"], side="left").to_numpy().astype(np.int64)
    last = np.where((frame["end_key"].bin.size() == 0).to_numpy(), len(bounds), last)
    low, high = np.searchsorted(used, first), np.searchsorted(used, last)
    lengths = high - low
    event = np.repeat(np.arange(len(frame)), lengths)
    row = np.repeat(low, lengths) + (np.arange(len(event)) - np.repeat(np.cumsum(lengths) - lengths, lengths))
    order = np.lexsort((event, row))
    row, event = row[order], event[order]
    starts = np.searchsorted(row, np.arange(len(used)))
    step = np.arange(len(row)) - starts[row]
    width = int(step.max()) + 1 if len(step) else 0
    out: dict[str, Int64s] = {}
    names = ("seq", "version", "index", "resolved_ts", "row_version", "row_index", "row_resolved_ts", "scan_index")
    for name in names:
        values = np.full((len(used), width), -1, np.int64)
        values[row, step] = frame[name].to_numpy()[event]
        out[name] = values
    return row_of_key.astype(np.int64), out
