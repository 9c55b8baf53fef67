"""Matches by joins on (key, start_ts), for any number and order of the entries of a change: the exact path. Pure.

Entries are delivered at least once and in any order (design.md 3 and 4). Changes with exactly one prewrite and one
commit were matched before, by the fast path in match/fast_match.py.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa

from tistream_sorter.match import liveness
from tistream_sorter.match.contracts import COMMIT, COMMITTED, PREWRITE, ROLLBACK

NEW = -1  # `part` of entries from this tick's files
IDENTITY = ("start_ts", "key")


@dataclass(frozen=True, slots=True)
class ExactMatch:
    """The result of the exact path. settled: changes whose outcome is known, as (row, part, start_ts, key, commit_ts).
    waiting: entries that stay pending whatever the window is. commits: commits whose prewrite has not arrived."""

    settled: pl.DataFrame
    waiting: pl.DataFrame
    commits: pl.DataFrame


def resolve(
    entries: pl.DataFrame,
    ready: pl.DataFrame,
    high: int,
    history: pa.Table,
    scans: pa.Table,
    counters: dict[str, int],
) -> ExactMatch:
    """Match `entries` (columns of ShardEntries.facts), and return them with `ready`, the rows that an earlier tick
    matched (row, part, start_ts, key, commit_ts). `high`: the upper end of the window to flush, inclusive. `history`:
    the changes of slices in this tick (slice_history.HISTORY). `scans`: its scans (contracts.SCANS_SCHEMA). Sets counts
    of dropped entries in `counters`.

    In a pipelined transaction a prewrite of a higher generation, or a COMMITTED entry, may arrive after the commit. So
    its prewrite and commit stay pending until `high` has reached the commit_ts: then all entries have arrived.
    """
    said = entries.filter(pl.col("type") == PREWRITE)
    prewrites = _best_prewrites(said)
    commits = _first(entries.filter(pl.col("type") == COMMIT))
    rollbacks = _first(entries.filter(pl.col("type") == ROLLBACK))
    whole = ready.vstack(entries.filter(pl.col("type") == COMMITTED).select("row", "part", *IDENTITY, "commit_ts"))
    pairs = prewrites.join(commits.select(*IDENTITY, "commit_ts"), on=IDENTITY, how="inner", suffix="_of_commit")
    early = pairs.filter((pl.col("generation").fill_null(0) > 0) & (pl.col("commit_ts_of_commit") > high))
    early = early.join(whole, on=IDENTITY, how="anti")
    pairs = pairs.join(early, on=IDENTITY, how="anti") if len(early) else pairs
    matched = pairs.select(
        "row", pl.lit(NEW, pl.Int32).alias("part"), *IDENTITY, pl.col("commit_ts_of_commit").alias("commit_ts")
    )
    settled = _first(pl.concat([whole, matched]))
    counters["duplicate_rows"] = len(whole) + len(matched) - len(settled)

    open_prewrites = prewrites.join(commits, on=IDENTITY, how="anti").join(rollbacks, on=IDENTITY, how="anti")
    open_prewrites = open_prewrites.join(settled, on=IDENTITY, how="anti")
    # The rollback of a pipelined transaction is kept, because it also ends other generations. It is dropped like any
    # dead lock.
    ended = prewrites.filter(pl.col("generation").fill_null(0) == 0)
    open_rollbacks = rollbacks.join(ended, on=IDENTITY, how="anti").join(settled, on=IDENTITY, how="anti")
    open_commits = commits.join(prewrites, on=IDENTITY, how="anti").join(settled, on=IDENTITY, how="anti")

    locks = pl.concat([open_prewrites, open_rollbacks.select(open_prewrites.columns)])
    locks = _living(locks, said, history, scans, counters)
    halves = (half.join(early, on=IDENTITY, how="semi").select(locks.columns) for half in (prewrites, commits))
    return ExactMatch(settled, pl.concat([locks, *halves]), open_commits.select(locks.columns))


def _first(entries: pl.DataFrame) -> pl.DataFrame:
    """The first entry of each change (key, start_ts). Pending entries and READY rows come before their repeats in the
    input."""
    return entries.unique(subset=list(IDENTITY), keep="first", maintain_order=True)


def _best_prewrites(prewrites: pl.DataFrame) -> pl.DataFrame:
    """Merge the copies of each prewrite into one row.

    The values come from the copy with the highest generation; among equals from one with a value, then from the one at
    the highest place (`region_version`, `log_index`). The place is the highest of all copies. `seq` and `floor` are
    those of the first copy at that place, because a later copy would look like a repeat of a settled prewrite. A lock
    that is repeated at a higher place can be proven dead only once that place is covered. If one copy was pending, the
    merged row is pending and moves to a new part.
    """
    if len(prewrites) == prewrites.select(pl.struct(IDENTITY).n_unique()).item():
        return prewrites
    identity, place = list(IDENTITY), ["region_version", "log_index"]
    highest = (
        prewrites.sort(
            [*place, "floor", "seq"], descending=[True, True, True, False], nulls_last=True, maintain_order=True
        )
        .unique(subset=identity, keep="first", maintain_order=True)
        .select(*identity, *place, "floor", "seq")
    )
    copies = prewrites.group_by(identity).agg(pl.col("pending").any(), pl.len().alias("copies"))
    best = (
        prewrites.with_columns(pl.col("generation").fill_null(0).alias("rank"))
        .sort(["rank", "valued", *place], descending=True, maintain_order=True)
        .unique(subset=identity, keep="first", maintain_order=True)
        .drop("rank", *place, "floor", "seq", "pending")
    )
    joined = best.join(highest, on=identity, how="left").join(copies, on=identity, how="left")
    part = pl.when(pl.col("copies") > 1).then(pl.lit(NEW, pl.Int32)).otherwise(pl.col("part")).alias("part")
    return joined.with_columns(part).select(prewrites.columns)


def _living(
    locks: pl.DataFrame, prewrites: pl.DataFrame, history: pa.Table, scans: pa.Table, counters: dict[str, int]
) -> pl.DataFrame:
    """Drop dead locks and repeats of settled prewrites. Returns the other locks, each with its floor (glossary: floor
    of a lock). `prewrites`: every copy."""
    if not len(locks):
        return locks
    verdict, repeats = _judged(locks, history, scans)
    settled = (locks["pending"].not_() & (locks["type"] == PREWRITE)).to_numpy() & repeats
    if settled.any():
        settled &= ~_came_before(locks.filter(pl.Series(settled)), locks, prewrites, history, scans)
    counters["dead_locks"] = int((verdict.dead & ~settled).sum())
    counters["settled_repeats"] = int(settled.sum())
    floor = pl.Series("floor", verdict.floor)
    noted = locks.with_columns(pl.when(floor == int(liveness.NO_FLOOR)).then(None).otherwise(floor).alias("floor"))
    return noted.filter(pl.Series(~(verdict.dead | settled)))


def _judged(locks: pl.DataFrame, history: pa.Table, scans: pa.Table) -> tuple[liveness.Verdict, npt.NDArray[np.bool_]]:
    """Decide for each lock whether it is dead, and whether it repeats a settled one: then its place was covered when it
    arrived, and it is not from a scan."""
    facts = liveness.Locks(
        key=locks["key"],
        start_ts=locks["start_ts"].to_numpy(),
        region_version=locks["region_version"].to_numpy(),
        log_index=locks["log_index"].fill_null(0).to_numpy(),
        generation=locks["generation"].fill_null(0).to_numpy(),
        seq=locks["seq"].to_numpy(),
        floor=locks["floor"].fill_null(int(liveness.NO_FLOOR)).to_numpy(),
    )
    verdict = liveness.judge(facts, history)
    # A watermark cannot end a pipelined lock, so one that a late scan repeats would stay for ever (docs/adr/0005).
    excused = liveness.in_scan(facts, scans) & (facts.generation == 0)
    return verdict, verdict.covered_on_arrival & ~excused


def _came_before(
    settled: pl.DataFrame, locks: pl.DataFrame, prewrites: pl.DataFrame, history: pa.Table, scans: pa.Table
) -> npt.NDArray[np.bool_]:
    """A mask of the `locks` that are kept as pending although the copy at their highest place looks like a repeat,
    because another copy of this tick arrived before its place was covered."""
    copies = prewrites.join(settled, on=IDENTITY, how="semi")
    if len(copies) == len(settled):
        return np.zeros(len(locks), bool)
    _, repeats = _judged(copies, history, scans)
    opened = copies.filter(pl.Series(~repeats)).select(*IDENTITY).unique().with_columns(pl.lit(True).alias("opened"))
    marked = locks.select(*IDENTITY).join(opened, on=IDENTITY, how="left", maintain_order="left")
    result: npt.NDArray[np.bool_] = marked["opened"].fill_null(False).to_numpy()
    return result
