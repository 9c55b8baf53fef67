"""The matching of one shard in a tick, on whole columns: match, select the rows up to the watermark, sort. Tables in,
tables out. Pure.

Delivery is at least once and in any order; `(key, start_ts)` identifies a change (design.md 3 and 4). Nearly all
changes are one prewrite and one commit, which match/fast_match.py matches. match/exact_match.py matches the others.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa

from tistream.arrays import Int64s
from tistream.model.tidb_key import KeyKind
from tistream.model.ts import Window
from tistream_sorter.match.exact_match import IDENTITY, NEW, resolve
from tistream_sorter.match.fast_match import settle
from tistream_sorter.match.order import segment_order
from tistream_sorter.match.shard_entries import ShardEntries


@dataclass(frozen=True, slots=True)
class Matched:
    """The result of one shard.

    committed: rows with commit_ts inside the window, with segment.SCHEMA's columns (binary ones may be views) in
    segment.ORDER. pointed: committed rows, inside the window or above it, whose values stay in change files
    (contracts.POINTED_WIDE). ready: committed rows above the window. unmatched: prewrites without a commit, and commits
    without a prewrite. `ready` and `unmatched` become new pending parts. They include the rows of the old parts that
    they replace, whose positions in the arguments of `match` are `ready_parts` and `unmatched_parts`. repeats: (key,
    start_ts, commit_ts) of entries of this tick's files at or below the window's low or served_ts. The caller looks
    them up in the pool, where they must be. stranded: other commits inside the window that have no prewrite, so their
    rows are not known; the task stops (invariant 6).
    """

    committed: pa.Table
    ready: pa.Table
    unmatched: pa.Table
    pointed: pa.Table
    ready_parts: frozenset[int]
    unmatched_parts: frozenset[int]
    repeats: pl.DataFrame
    stranded: pl.DataFrame
    counters: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class MatchRules:
    """The window to flush, and the rules of a match. Changes at or below snapshot_ts are dropped, and so are index keys
    without keep_index_keys. served_ts: the highest resolved_ts that readers have received; no new row may appear at or
    below it."""

    window: Window
    snapshot_ts: int
    served_ts: int = 0
    keep_index_keys: bool = False
    raw: bool = False  # whether the tenant is RawKV: its rows have raw keys, and entries with other keys are dropped
    parts_max: int = 4  # if there are more small pending parts of a kind than this, they are merged
    rows_small: int = 16_384  # a pending part with fewer rows is small


@dataclass(frozen=True, slots=True)
class _Rows:
    """Changes whose outcome is known, as parallel arrays: the number of the row with the values, the READY part that it
    came from (or NEW), and the commit_ts."""

    row: Int64s
    part: npt.NDArray[np.int32]
    commit_ts: Int64s

    def where(self, which: npt.NDArray[np.bool_]) -> _Rows:
        return self if which.all() else _Rows(self.row[which], self.part[which], self.commit_ts[which])


def match(
    changes: pa.Table,
    unmatched: list[pa.Table],
    ready: list[pa.Table],
    history: pa.Table,
    scans: pa.Table,
    rules: MatchRules,
) -> Matched:
    """Match one shard. `changes` has contracts.CHANGE_COLUMNS, `seq` (position of the file in the tick) and `pointer`.
    `unmatched` and `ready` are the rows of the pending parts of these kinds that were read. `history` and `scans` are
    tistream_sorter.watermark.slice_history.HISTORY and SCANS_SCHEMA of the same tick."""
    counters: dict[str, int] = {}
    shard = ShardEntries(changes, unmatched, ready)
    wanted = _wanted(shard, rules, counters)
    plain = settle(shard.plain(wanted))
    rest = np.sort(wanted[plain.rest])
    high, low = rules.window.high, rules.window.low
    entries = shard.facts(rest[rest < shard.pending])
    left = resolve(entries, shard.matched(rest[rest >= shard.pending]), high, history, scans, counters)
    rows = _above_snapshot(
        _joined(shard, wanted[plain.values_at], wanted[plain.commit_at], left.settled), rules, counters
    )
    open_commits = left.commits.filter(pl.col("commit_ts") > rules.snapshot_ts)
    counters["below_snapshot"] += len(left.commits) - len(open_commits)

    settled_ts = max(low, rules.served_ts)
    late = (rows.part == NEW) & (rows.commit_ts <= settled_ts)
    again, rows = rows.where(late), rows.where(~late)
    repeats = pl.concat(
        [
            _identities(shard, again),
            open_commits.filter(pl.col("commit_ts") <= settled_ts).select(*IDENTITY, "commit_ts"),
        ]
    )
    stranded = open_commits.filter((pl.col("commit_ts") > settled_ts) & (pl.col("commit_ts") <= high))
    waiting = pl.concat([left.waiting, open_commits.filter(pl.col("commit_ts") > max(settled_ts, high))])
    flushed = rows.where((rows.commit_ts > low) & (rows.commit_ts <= high))
    kept = rows.where(rows.commit_ts > high)
    ready_parts = _consumed(kept.part, [table.num_rows for table in ready], rules)
    unmatched_parts = _consumed(waiting["part"].to_numpy(), [table.num_rows for table in unmatched], rules)
    written = kept.where(_rewritten(kept.part, ready_parts))
    here, away = _apart(shard, flushed)
    written, written_away = _apart(shard, written)
    order = segment_order(here.commit_ts, shard.start_ts[here.row], shard.parts, shard.keys, here.row)
    return Matched(
        committed=shard.committed(here.row[order], here.commit_ts[order]),
        ready=shard.ready_rows(written.row, written.commit_ts),
        pointed=shard.pointed_rows(
            np.concatenate([away.row, written_away.row]), np.concatenate([away.commit_ts, written_away.commit_ts])
        ),
        unmatched=shard.unmatched_rows(waiting.filter(_rewritten(waiting["part"].to_numpy(), unmatched_parts))),
        ready_parts=ready_parts,
        unmatched_parts=unmatched_parts,
        repeats=repeats,
        stranded=stranded.select(*IDENTITY, "commit_ts"),
        counters=counters | {"committed_rows": len(flushed.row)},
    )


def _wanted(shard: ShardEntries, rules: MatchRules, counters: dict[str, int]) -> Int64s:
    """The numbers of the rows that a tick processes: record and meta keys, and index keys if the tenant keeps them; for
    a RawKV tenant, raw keys. Other entries of this tick's files are dropped and counted in `counters`. Entries of
    pending parts are always processed."""
    kind = shard.parts.kind[: shard.fresh]
    keep = kind == KeyKind.RAW if rules.raw else (kind == KeyKind.RECORD) | (kind == KeyKind.META)
    if rules.keep_index_keys and not rules.raw:
        keep |= kind == KeyKind.INDEX
    counters["index_entries"] = int((kind == KeyKind.INDEX).sum())
    counters["foreign_entries"] = int((~keep & (kind != KeyKind.INDEX)).sum())
    everything = np.arange(len(shard))
    return everything if keep.all() else np.concatenate([np.flatnonzero(keep), everything[shard.fresh :]])


def _joined(shard: ShardEntries, values_at: Int64s, commit_at: Int64s, settled: pl.DataFrame) -> _Rows:
    """Concatenate the results of the fast and the exact path. A pair that this tick matched has the part NEW, even if
    its prewrite came from a pending part."""
    part = np.where(values_at == commit_at, shard.part[values_at], np.int32(NEW))
    rows = _Rows(values_at, part, shard.commit_ts[commit_at])
    if not len(settled):
        return rows
    return _Rows(
        np.concatenate([rows.row, settled["row"].to_numpy()]),
        np.concatenate([rows.part, settled["part"].to_numpy()]),
        np.concatenate([rows.commit_ts, settled["commit_ts"].to_numpy()]),
    )


def _above_snapshot(rows: _Rows, rules: MatchRules, counters: dict[str, int]) -> _Rows:
    kept = rows.where(rows.commit_ts > rules.snapshot_ts)
    counters["below_snapshot"] = len(rows.row) - len(kept.row)
    return kept


def _identities(shard: ShardEntries, rows: _Rows) -> pl.DataFrame:
    """The columns start_ts, key and commit_ts of `rows`."""
    found = {"start_ts": shard.start_ts[rows.row], "key": shard.keys.gather(rows.row), "commit_ts": rows.commit_ts}
    return pl.DataFrame(found)


def _apart(shard: ShardEntries, rows: _Rows) -> tuple[_Rows, _Rows]:
    """Divide rows into (those whose values are in memory, those whose values must be read through a pointer)."""
    away = shard.away[rows.row]
    return rows.where(~away), rows.where(away)


def _consumed(part: npt.NDArray[np.int32], sizes: list[int], rules: MatchRules) -> frozenset[int]:
    """The numbers of the pending parts that must be replaced: the parts that lost a row; all small parts, if there are
    more than parts_max; and the parts without a row of this shard, which would otherwise be kept for ever. `part`: the
    part of each row that stays pending."""
    small = [number for number, size in enumerate(sizes) if size < rules.rows_small]
    merged = small if len(small) > rules.parts_max else []
    alive = np.bincount(part + 1, minlength=len(sizes) + 1)[1 : len(sizes) + 1]
    held = np.asarray(sizes, np.int64)
    return frozenset([*merged, *map(int, np.flatnonzero((alive != held) | (held == 0)))])


def _rewritten(part: npt.NDArray[np.int32], consumed: frozenset[int]) -> npt.NDArray[np.bool_]:
    """A mask of the rows that must be written to new parts, out of those that stay pending: new rows, and rows of
    consumed parts."""
    chosen: npt.NDArray[np.bool_] = (part == NEW) | np.isin(part, sorted(consumed))
    return chosen


__all__ = ["IDENTITY", "MatchRules", "Matched", "match"]
