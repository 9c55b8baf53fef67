"""The whole pipeline as a few obvious lines: all files at once, match, drop repeats, commit order.

Slow on purpose (one dictionary per change), so that nobody has to argue about its correctness. It knows nothing of
slices, watermarks, ticks or tasks: when everything has arrived, none of them may make a difference. Its answer is
what the committed pool must hold (design.md 3 and 4).
"""

from __future__ import annotations

import io
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow.compute as pc
import pyarrow.parquet as pq

PREWRITE, COMMIT, ROLLBACK, COMMITTED, WATERMARK = 1, 2, 3, 4, 100

COLUMNS = {
    "key": pl.Binary,
    "start_ts": pl.Int64,
    "commit_ts": pl.Int64,
    "op": pl.Int8,
    "value": pl.Binary,
    "old_value": pl.Binary,
    "txn_source": pl.Int64,
}

ENTRY = [
    *("type", "op_type", "region_version", "log_index", "key", "value", "old_value", "start_ts", "commit_ts"),
    *("txn_source", "generation"),
]

Entry = dict[str, Any]
Source = bytes | Path


def entries(files: Iterable[Source]) -> list[Entry]:
    """Every change entry of the files (watermarks left out), as dictionaries of what `solve` looks at."""
    found: list[Entry] = []
    for file in files:
        source = io.BytesIO(file) if isinstance(file, bytes) else file
        rows = pq.ParquetFile(source).read(ENTRY)
        found += rows.filter(pc.not_equal(rows["type"], WATERMARK)).to_pylist()
    return found


def is_index_key(key: bytes) -> bool:
    """`t{table id}_i…` (upstream-formats 3.1)."""
    return key[:1] == b"t" and key[9:11] == b"_i"


@dataclass(frozen=True, slots=True)
class Oracle:
    """What must be in the pool, and what must not."""

    rows: pl.DataFrame
    rolled_back: set[tuple[bytes, int]]
    unmatched: set[tuple[bytes, int]]


def solve(files: Iterable[Source], snapshot_ts: int = 0, *, keep_index_keys: bool = False) -> Oracle:
    """Match all of the entries.

    Raises:
        AssertionError: the input itself is wrong: a commit without its prewrite, two commit_ts for one change, or a
            change both rolled back and committed. Nothing downstream could be right then.
    """
    prewrites: dict[tuple[bytes, int], Entry] = {}
    commits: dict[tuple[bytes, int], int] = {}
    rollbacks: set[tuple[bytes, int]] = set()
    whole: dict[tuple[bytes, int], Entry] = {}
    for entry in entries(files):
        change = (entry["key"], entry["start_ts"])
        match entry["type"]:
            case 1:
                known = prewrites.get(change)
                if known is None or _place(entry) > _place(known):
                    prewrites[change] = entry
            case 2:
                assert commits.setdefault(change, entry["commit_ts"]) == entry["commit_ts"], change
            case 3:
                rollbacks.add(change)
            case 4:
                known = whole.setdefault(change, entry)
                assert (known["commit_ts"], known["value"]) == (entry["commit_ts"], entry["value"]), change
            case other:
                raise AssertionError(f"type {other}")
    settled = {change: (commit_ts, prewrites.get(change, whole.get(change))) for change, commit_ts in commits.items()}
    for change, entry in whole.items():
        commit_ts, body = settled.get(change, (entry["commit_ts"], entry))
        assert body is not None
        assert commit_ts == entry["commit_ts"], change
        # Of a bulk transaction the last flush may have been lost with its agent: the scan has it.
        assert body["value"] == entry["value"] or body["generation"], change
        settled[change] = commit_ts, entry
    assert not rollbacks & settled.keys(), "rolled back and committed"
    # At or below the snapshot the prewrite may have been lost with its agent, and no scan tells it again.
    bodies = (body is not None for commit_ts, body in settled.values() if commit_ts > snapshot_ts)
    assert all(bodies), "a commit without its prewrite"
    table = [
        (key, start_ts, commit_ts, body["op_type"], body["value"], body["old_value"], body["txn_source"])
        for (key, start_ts), (commit_ts, body) in settled.items()
        if body is not None and commit_ts > snapshot_ts and (keep_index_keys or not is_index_key(key))
    ]
    rows = pl.DataFrame(table, schema=COLUMNS, orient="row").sort("commit_ts", "start_ts", "key")
    return Oracle(rows, rollbacks, prewrites.keys() - settled.keys() - rollbacks)


def _place(entry: Entry) -> tuple[int, int, int]:
    """Which of several prewrites of one (key, start_ts) is the last: generation, then where it stands in the logs."""
    return entry["generation"] or 0, entry["region_version"], entry["log_index"]


def committed_rows(files: Iterable[Source], snapshot_ts: int = 0, *, keep_index_keys: bool = False) -> pl.DataFrame:
    """The committed rows, in (commit_ts, start_ts, key) order: columns as in COLUMNS."""
    return solve(files, snapshot_ts, keep_index_keys=keep_index_keys).rows
