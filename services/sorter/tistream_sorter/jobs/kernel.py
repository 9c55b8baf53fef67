"""One shard's share of a tick, on whole columns: match, cut at the watermark, sort. Pure: tables in, tables out.

Delivery is at least once and in any order; `(key, start_ts)` identifies a change. See design.md 3 and 4.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa

from tistream.format import segment
from tistream.model.tidb_key import KeyKind, classify, table_ids
from tistream.model.ts import Window
from tistream_sorter.jobs import liveness
from tistream_sorter.jobs.contracts import (
    COMMIT,
    COMMITTED,
    PREWRITE,
    READY_SCHEMA,
    ROLLBACK,
    SCANS_SCHEMA,
    UNMATCHED_SCHEMA,
)

NEW = -1  # `part` of entries that came with this tick's files
IDENTITY = ("start_ts", "key")


@dataclass(frozen=True, slots=True)
class Matched:
    """What became of the entries. Tables keep input order unless said otherwise.

    committed: segment.SCHEMA in segment.ORDER, commit_ts inside the window.
    ready, unmatched: new pending entries plus those of consumed parts; `ready_parts`, `unmatched_parts` say which
    parts are consumed (numbers as given). repeats: (key, start_ts, commit_ts) at or below the window, to be looked
    up in the pool. stranded: commits inside the window whose prewrite never came (invariant 6).
    """

    committed: pa.Table
    ready: pa.Table
    unmatched: pa.Table
    ready_parts: frozenset[int]
    unmatched_parts: frozenset[int]
    repeats: pl.DataFrame
    stranded: pl.DataFrame
    counters: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class MatchRules:
    """The window to flush, and what is dropped unseen."""

    window: Window
    snapshot_ts: int
    keep_index_keys: bool = False
    parts_max: int = 4  # more pending parts of a kind than this are merged


def match(
    changes: pa.Table,
    unmatched: list[pa.Table],
    ready: list[pa.Table],
    history: pa.Table,
    scans: pa.Table,
    rules: MatchRules,
) -> Matched:
    """Run one shard. `changes` has contracts.CHANGE_COLUMNS and `seq`, the file's place in the tick.

    Of a pipelined transaction a prewrite of a higher generation, or the whole change, may come after its commit: its
    halves stay apart until the watermark has passed the commit, when everything has come.

    `history` and `scans` are tistream_sorter.slice_history.HISTORY and SCANS_SCHEMA of the same tick.
    """
    counters: dict[str, int] = {}
    changes = _wanted(changes, rules, counters)
    bank = _Bank(changes, unmatched, ready)
    entries = bank.entries()
    said = entries.filter(pl.col("type") == PREWRITE)
    prewrites = _best_prewrites(said)
    commits = _first(entries.filter(pl.col("type") == COMMIT))
    rollbacks = _first(entries.filter(pl.col("type") == ROLLBACK))
    whole = bank.ready_entries(offset=len(entries)).vstack(
        entries.filter(pl.col("type") == COMMITTED).select("row", "part", *IDENTITY, "commit_ts")
    )
    high, low = rules.window.high, rules.window.low
    pairs = prewrites.join(commits.select(*IDENTITY, "commit_ts"), on=IDENTITY, how="inner", suffix="_of_commit")
    early = pairs.filter((pl.col("generation").fill_null(0) > 0) & (pl.col("commit_ts_of_commit") > high))
    early = early.join(whole, on=IDENTITY, how="anti")
    pairs = pairs.join(early, on=IDENTITY, how="anti") if len(early) else pairs
    matched = pairs.select(
        "row", pl.lit(NEW, pl.Int32).alias("part"), *IDENTITY, pl.col("commit_ts_of_commit").alias("commit_ts")
    )
    settled = _first(pl.concat([whole, matched]))
    counters["duplicate_rows"] = len(whole) + len(matched) - len(settled)
    rows = _above_snapshot(settled, rules, counters)

    open_prewrites = prewrites.join(commits, on=IDENTITY, how="anti").join(rollbacks, on=IDENTITY, how="anti")
    open_prewrites = open_prewrites.join(settled, on=IDENTITY, how="anti")
    # A pipelined transaction's rollback stays for its other generations; it ends as any lock does.
    ended = prewrites.filter(pl.col("generation").fill_null(0) == 0)
    open_rollbacks = rollbacks.join(ended, on=IDENTITY, how="anti").join(settled, on=IDENTITY, how="anti")
    open_commits = commits.join(prewrites, on=IDENTITY, how="anti").join(settled, on=IDENTITY, how="anti")
    open_commits = _above_snapshot(open_commits, rules, counters)

    locks = pl.concat([open_prewrites, open_rollbacks.select(open_prewrites.columns)])
    locks = _living(locks, said, history, scans, counters)
    fresh = rows.filter(pl.col("part") == NEW)
    repeats = pl.concat(
        [
            fresh.filter(pl.col("commit_ts") <= low).select(*IDENTITY, "commit_ts"),
            open_commits.filter(pl.col("commit_ts") <= low).select(*IDENTITY, "commit_ts"),
        ]
    )
    rows = rows.filter(pl.col("commit_ts") > low)
    stranded = open_commits.filter((pl.col("commit_ts") > low) & (pl.col("commit_ts") <= high))
    waiting = pl.concat(
        [
            locks,
            open_commits.filter(pl.col("commit_ts") > high).select(locks.columns),
            *(half.join(early, on=IDENTITY, how="semi").select(locks.columns) for half in (prewrites, commits)),
        ]
    )

    flushed = rows.filter(pl.col("commit_ts") <= high)
    kept = rows.filter(pl.col("commit_ts") > high)
    ready_parts = _consumed(kept, [table.num_rows for table in ready], rules.parts_max)
    unmatched_parts = _consumed(waiting, [table.num_rows for table in unmatched], rules.parts_max)
    return Matched(
        committed=bank.committed(flushed),
        ready=bank.ready_rows(_rewritten(kept, ready_parts)),
        unmatched=bank.unmatched_rows(_rewritten(waiting, unmatched_parts)),
        ready_parts=ready_parts,
        unmatched_parts=unmatched_parts,
        repeats=repeats,
        stranded=stranded.select(*IDENTITY, "commit_ts"),
        counters=counters | {"committed_rows": len(flushed)},
    )


def _wanted(changes: pa.Table, rules: MatchRules, counters: dict[str, int]) -> pa.Table:
    """Record and meta keys; index keys too where the tenant keeps them. Anything else is counted and dropped."""
    kind = classify(changes["key"])
    keep = (kind == KeyKind.RECORD) | (kind == KeyKind.META)
    if rules.keep_index_keys:
        keep |= kind == KeyKind.INDEX
    counters["index_entries"] = int((kind == KeyKind.INDEX).sum())
    counters["foreign_entries"] = int((kind == KeyKind.OTHER).sum())
    return changes if keep.all() else changes.filter(pa.array(keep))


class _Bank:
    """All entries of the tick as one table, so that values are gathered once, by final row number."""

    def __init__(self, changes: pa.Table, unmatched: list[pa.Table], ready: list[pa.Table]) -> None:
        self._ready_counts = [table.num_rows for table in ready]
        seq = changes["seq"].cast(pa.int64())
        fresh = changes.drop_columns(["seq"]).append_column("floor", pa.nulls(changes.num_rows, pa.int64()))
        tables = [fresh.select(UNMATCHED_SCHEMA.names).cast(UNMATCHED_SCHEMA), *unmatched]
        self._table = pa.concat_tables(tables)
        counts = [changes.num_rows, *(table.num_rows for table in unmatched)]
        self._part = np.repeat(np.arange(len(counts), dtype=np.int32) - 1, counts)
        carried = np.full(self._table.num_rows - changes.num_rows, -1, np.int64)
        self._seq = np.concatenate([seq.to_numpy(), carried])
        self._ready = pa.concat_tables([READY_SCHEMA.empty_table(), *ready])

    def entries(self) -> pl.DataFrame:
        """Everything but the values, one row per entry."""
        names = [name for name in UNMATCHED_SCHEMA.names if name not in ("value", "old_value")]
        frame = pl.from_arrow(self._table.select(names))
        assert isinstance(frame, pl.DataFrame)
        valued = np.asarray(self._table["value"].is_valid().to_numpy(zero_copy_only=False))
        return frame.with_columns(
            pl.Series("row", np.arange(len(frame), dtype=np.int64)),
            pl.Series("part", self._part),
            pl.Series("seq", self._seq),
            pl.Series("valued", valued),
            pl.Series("pending", self._part >= 0),
        )

    def ready_entries(self, offset: int) -> pl.DataFrame:
        """The ready rows, numbered after the entries."""
        frame = pl.from_arrow(self._ready.select([*IDENTITY, "commit_ts"]))
        assert isinstance(frame, pl.DataFrame)
        part = np.repeat(np.arange(len(self._ready_counts), dtype=np.int32), self._ready_counts)
        row = np.arange(offset, offset + len(frame), dtype=np.int64)
        return frame.select(pl.Series("row", row), pl.Series("part", part), *IDENTITY, "commit_ts")

    def _gather(self, rows: pl.DataFrame) -> pa.Table:
        """READY_SCHEMA rows, in the order of `rows`; commit_ts from `rows`, the rest from where the row points."""
        renamed = self._table.select(["key", "start_ts", "op_type", "value", "old_value", "txn_source"])
        renamed = renamed.rename_columns(["key", "start_ts", "op", "value", "old_value", "txn_source"])
        ready = self._ready.select(renamed.column_names)
        both = pa.concat_tables([renamed, ready.cast(renamed.schema)]).combine_chunks()
        taken = both.take(pa.array(rows["row"].to_numpy()))
        taken = taken.append_column("commit_ts", pa.array(rows["commit_ts"].to_numpy()))
        return taken.select(READY_SCHEMA.names).cast(READY_SCHEMA)

    def ready_rows(self, rows: pl.DataFrame) -> pa.Table:
        return self._gather(rows) if len(rows) else READY_SCHEMA.empty_table()

    def committed(self, rows: pl.DataFrame) -> pa.Table:
        """segment.SCHEMA in segment.ORDER."""
        if not len(rows):
            return segment.SCHEMA.empty_table()
        ordered = rows.with_columns(pl.Series("table_id", table_ids(rows["key"].to_arrow()))).sort(list(segment.ORDER))
        taken = self._gather(ordered).append_column("table_id", ordered["table_id"].to_arrow())
        return taken.select(segment.SCHEMA.names).cast(segment.SCHEMA)

    def unmatched_rows(self, rows: pl.DataFrame) -> pa.Table:
        """UNMATCHED_SCHEMA rows, with the place and floor that `rows` say."""
        if not len(rows):
            return UNMATCHED_SCHEMA.empty_table()
        taken = self._table.combine_chunks().take(pa.array(rows["row"].to_numpy()))
        for name in ("region_version", "log_index", "floor"):
            at = taken.schema.get_field_index(name)
            taken = taken.set_column(at, name, rows[name].to_arrow())
        return taken.cast(UNMATCHED_SCHEMA)


def _first(entries: pl.DataFrame) -> pl.DataFrame:
    """One entry per identity, the first in order (carried ones and ready rows come before their repeats)."""
    return entries.unique(subset=list(IDENTITY), keep="first", maintain_order=True)


def _best_prewrites(prewrites: pl.DataFrame) -> pl.DataFrame:
    """One prewrite per identity: the highest generation, then one with a value; its place is the highest of all.

    The first copy at the highest place also says when that place came (`seq`) and since when it is covered (`floor`):
    a later one would look like a repeat of something settled, and a repeat at a higher place must be covered anew
    before a row can prove the lock dead. An identity of which one copy
    was pending is pending, and leaves the part it lay in.
    """
    if len(prewrites) == prewrites.select(pl.struct(IDENTITY).n_unique()).item():
        return prewrites
    identity, place = list(IDENTITY), ["region_version", "log_index"]
    highest = (
        prewrites.sort([*place, "floor", "seq"], descending=[True, True, True, False], nulls_last=True)
        .unique(subset=identity, keep="first", maintain_order=True)
        .select(*identity, *place, "floor", "seq")
    )
    copies = prewrites.group_by(identity).agg(pl.col("pending").any(), pl.len().alias("copies"))
    best = (
        prewrites.with_columns(pl.col("generation").fill_null(0).alias("rank"))
        .sort(["rank", "valued", *place], descending=True)
        .unique(subset=identity, keep="first", maintain_order=True)
        .drop("rank", *place, "floor", "seq", "pending")
    )
    joined = best.join(highest, on=identity, how="left").join(copies, on=identity, how="left")
    part = pl.when(pl.col("copies") > 1).then(pl.lit(NEW, pl.Int32)).otherwise(pl.col("part")).alias("part")
    return joined.with_columns(part).select(prewrites.columns)


def _above_snapshot(rows: pl.DataFrame, rules: MatchRules, counters: dict[str, int]) -> pl.DataFrame:
    kept = rows.filter(pl.col("commit_ts") > rules.snapshot_ts)
    counters["below_snapshot"] = counters.get("below_snapshot", 0) + len(rows) - len(kept)
    return kept


def _living(
    locks: pl.DataFrame, prewrites: pl.DataFrame, history: pa.Table, scans: pa.Table, counters: dict[str, int]
) -> pl.DataFrame:
    """Drop the dead and the repeats of what is settled; note the floors of the others. `prewrites`: every copy."""
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
    """The verdict on each, and whether it came where all was covered, as something settled does that comes again."""
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
    # No row ends a pipelined lock, so one that a late scan brings back would stay for ever (docs/adr/0005).
    excused = liveness.in_scan(facts, scans) & (facts.generation == 0)
    return verdict, verdict.covered_on_arrival & ~excused


def _came_before(
    settled: pl.DataFrame, locks: pl.DataFrame, prewrites: pl.DataFrame, history: pa.Table, scans: pa.Table
) -> npt.NDArray[np.bool_]:
    """Which of `locks` look settled by their highest copy, but have another in this tick that came to an open place:
    since then they are pending."""
    copies = prewrites.join(settled, on=IDENTITY, how="semi")
    if len(copies) == len(settled):
        return np.zeros(len(locks), bool)
    _, repeats = _judged(copies, history, scans)
    opened = copies.filter(pl.Series(~repeats)).select(*IDENTITY).unique().with_columns(pl.lit(True).alias("opened"))
    marked = locks.select(*IDENTITY).join(opened, on=IDENTITY, how="left", maintain_order="left")
    result: npt.NDArray[np.bool_] = marked["opened"].fill_null(False).to_numpy()
    return result


def _consumed(survivors: pl.DataFrame, sizes: list[int], parts_max: int) -> frozenset[int]:
    """Parts that lost a row must be written anew; all of them if there are too many; and those of which this shard's
    keys hold nothing (any more), or they would be carried along for ever."""
    if len(sizes) > parts_max:
        return frozenset(range(len(sizes)))
    alive = np.bincount(survivors["part"].to_numpy() + 1, minlength=len(sizes) + 1)[1 : len(sizes) + 1]
    held = np.asarray(sizes, np.int64)
    return frozenset(int(part) for part in np.flatnonzero((alive != held) | (held == 0)))


def _rewritten(survivors: pl.DataFrame, consumed: frozenset[int]) -> pl.DataFrame:
    return survivors.filter((pl.col("part") == NEW) | pl.col("part").is_in(sorted(consumed)))


__all__ = ["SCANS_SCHEMA", "MatchRules", "Matched", "match"]
