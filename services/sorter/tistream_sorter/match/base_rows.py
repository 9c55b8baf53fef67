"""Checks the rows of a base chunk against the log, and selects those that the log lacks (docs/adr/0030). Pure.

A chunk states all rows of a span as of base_ts S. The log has changes of the same keys, and the two must agree:

* a key whose newest logged version at or below S is a put must be in the chunk, with that value;
* a key whose newest logged version at or below S is a delete must not be in the chunk;
* the first change of a key above S has, as its old value, the chunk's value of the key (invariant 26). The changes of a
  log backup have an old value only where the pool had the row, so a missing old value proves nothing there.

If a chunk was read at another ts than it states, it violates one of these rules as soon as one of its rows changed in
between. Only rows without a logged version at or below S are selected: the log has the others, with their timestamps.
"""

from __future__ import annotations

from typing import Any

import polars as pl
import pyarrow as pa

from tistream.model.span import shown_key

CHUNK = pa.schema([("key", pa.binary()), ("value", pa.binary()), ("commit_ts", pa.int64())])
LOGGED = pa.schema([("key", pa.binary()), ("put", pa.bool_()), ("logged", pa.binary()), ("at_ts", pa.int64())])
FIRST = pa.schema([("key", pa.binary()), ("old_value", pa.binary()), ("first_ts", pa.int64())])


class Disagreement(ValueError):
    """The chunk and the log contradict each other, so the chunk does not have the rows as of its base_ts."""


def rows_that_count(
    chunk: pa.Table, logged: pa.Table, first: pa.Table, base_ts: int, *, exact: bool, old_values: bool = True
) -> pa.Table:
    """Select the rows of the chunk that become part of the base: those of which the log has no version at or below
    base_ts. Returns them in key order (CHUNK).

    Args:
        chunk: rows of CHUNK, each key once, in key order.
        logged: for each key of the same range that has a version at or below base_ts in the log, the newest one
            (LOGGED): whether it is a put, its value, its commit_ts.
        first: for each key of the range that has a change above base_ts, the old value of the first one (FIRST).
        exact: whether the chunk has the bytes that TiKV stores. Otherwise only the presence of keys is compared,
            because the same row can be encoded in several ways.
        old_values: whether a change without an old value had no row before.

    Raises:
        Disagreement: chunk and log contradict each other. The text names the key, and what both say about it.
    """
    joined = _frame(chunk, CHUNK).with_columns(there=pl.lit(True))
    for other, schema in ((logged, LOGGED), (first, FIRST)):
        joined = joined.join(_frame(other, schema), on="key", how="full", coalesce=True)
    there = pl.col("there").fill_null(False)
    was_there = pl.col("old_value").is_not_null()
    is_logged, is_changed = pl.col("at_ts").is_not_null(), pl.col("first_ts").is_not_null()
    proves = pl.lit(old_values)
    for wrong, said in (
        (is_logged & pl.col("put") & ~there, "is not in the chunk; the log has a row of it from {at_ts}"),
        (is_logged & ~pl.col("put") & there, "is in the chunk; the log deletes it at {at_ts}"),
        (is_changed & was_there & ~there, "is not in the chunk; its change at {first_ts} has an old value"),
        (is_changed & ~was_there & there & proves, "is in the chunk; its change at {first_ts} has no old value"),
    ):
        _refuse(joined, wrong, said, base_ts)
    if exact:
        other = is_logged & pl.col("put") & there & (pl.col("logged") != pl.col("value"))
        _refuse(joined, other, "has another value in the log, committed at {at_ts}", base_ts)
        old = is_changed & was_there & there & (pl.col("old_value") != pl.col("value"))
        _refuse(joined, old, "has another value than the old value of its change at {first_ts}", base_ts)
    kept = joined.filter(there & ~is_logged).select(CHUNK.names).sort("key")
    return kept.to_arrow().cast(CHUNK)


def _refuse(joined: pl.DataFrame, wrong: pl.Expr, said: str, base_ts: int) -> None:
    found = joined.filter(wrong).select("key", "at_ts", "first_ts").sort("key").head(1).to_dicts()
    if found:
        row: dict[str, Any] = found[0]
        detail = said.format(at_ts=row["at_ts"], first_ts=row["first_ts"])
        raise Disagreement(f"it is not as of its base_ts {base_ts}: key {shown_key(row['key'])} {detail}")


def _frame(table: pa.Table, schema: pa.Schema) -> pl.DataFrame:
    found = pl.from_arrow(table.select(schema.names).cast(schema))
    assert isinstance(found, pl.DataFrame)
    return found
