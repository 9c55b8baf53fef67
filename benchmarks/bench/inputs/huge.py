"""One huge transaction among small ones, as change files of a timeline: prewrites for minutes, then commits, second by
second, and meanwhile a table beside it that is written as usual.

Rows of the huge transaction come in the order of its keys, region by region, every store with its own regions, as TiDB
sends them. A region's resolved_ts stays below the start_ts as long as it has a lock of it, as TiKV has it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from bench.inputs.changes import (
    FIRST_MS,
    GROUP_BYTES,
    GROUP_ROWS,
    HANDLE_BITS,
    TENANT,
    file_of,
    keys_of,
    snapshot_ts,
    table_of,
    values_of,
)
from tistream.arrays import Int64s
from tistream.format.change_file import COMMIT, OP_PUT, PREWRITE, WATERMARK
from tistream.storage import layout

HUGE, SMALL = 0, 1  # of the two tables, counted from FIRST_TABLE
SMALL_PER_SECOND = 500
SMALL_BYTES = 127
WARM_SECONDS = 5  # before the huge transaction begins, and after it has ended


@dataclass(frozen=True, slots=True)
class HugeLoad:
    """The huge transaction: so many rows with values of so many random bytes, prewritten and committed at a pace."""

    rows: int
    value_bytes: int
    prewrite_seconds: int
    commit_seconds: int
    stores: int = 3
    regions_per_store: int = 8

    @property
    def seconds(self) -> int:
        """Of the whole timeline."""
        return WARM_SECONDS + self.prewrite_seconds + self.commit_seconds + WARM_SECONDS

    @property
    def start_ts(self) -> int:
        return (FIRST_MS + WARM_SECONDS * 1000) << 18

    @property
    def commit_ts(self) -> int:
        return (FIRST_MS + (WARM_SECONDS + self.prewrite_seconds) * 1000) << 18


@dataclass(frozen=True, slots=True)
class Staged:
    """What was written: (key, path) of every file by second; `check` of the huge transaction's values."""

    seconds: tuple[tuple[tuple[str, Path], ...], ...]
    bytes: int
    check: int


@dataclass(slots=True)
class _Region:
    """A region: positions [low, high) in a table, rows of the huge transaction that it holds, and its log."""

    number: int
    table: int
    low: int
    high: int
    rows: int
    index: int = 10
    prewritten: int = 0
    committed: int = 0
    told: int | None = None  # last index of its last watermark row


@dataclass(slots=True)
class _Store:
    number: int
    regions: list[_Region]
    prev_ts: int = 0
    groups: list[pa.Table] = field(default_factory=list)


def first_key(table: int) -> bytes:
    """The first key of a table, where a region of its own begins and a task may."""
    return bytes(keys_of(np.array([table << HANDLE_BITS]))[0].as_py())


def stage(load: HugeLoad, root: Path) -> Staged:
    """Write all files of the timeline below `root`."""
    rng = np.random.default_rng(1)
    stores = _stores(load)
    seconds, total, check = [], 0, 0
    for number in range(load.seconds):
        files = []
        for store in stores:
            check += _fill(load, rng, store, number)
            ts = ((FIRST_MS + (number + 1) * 1000) << 18) + store.number
            groups = [*store.groups, _watermarks(load, store, number)]
            body = file_of(TENANT, groups, store.number, store.prev_ts)
            path = root / f"{number:05d}-{store.number}"
            path.write_bytes(body)
            total += len(body)
            files.append((layout.change_file(TENANT, store.number, ts), path))
            store.prev_ts = ts
            store.groups.clear()
        seconds.append(tuple(files))
    return Staged(tuple(seconds), total, check % (1 << 64))


def check_of(column: pa.ChunkedArray, value_bytes: int) -> int:
    """The sum of each value's first eight bytes: values are random, so that another one is another sum."""
    total = 0
    for chunk in column.chunks:
        plain = chunk.cast(pa.binary())
        data = np.frombuffer(plain.buffers()[2], np.uint8, len(plain) * value_bytes, plain.offset * value_bytes)
        total += int(_heads(data, value_bytes).sum(dtype=np.uint64))
    return total % (1 << 64)


def _heads(data: npt.NDArray[np.uint8], width: int) -> npt.NDArray[np.uint64]:
    heads: npt.NDArray[np.uint64] = np.ascontiguousarray(data.reshape(-1, width)[:, :8]).view(np.uint64).reshape(-1)
    return heads


def _stores(load: HugeLoad) -> list[_Store]:
    """Every store leads regions_per_store regions of the huge table side by side, and one of the small one."""
    count = load.stores * load.regions_per_store
    step = (1 << HANDLE_BITS) // count
    share = [load.rows * (at + 1) // count - load.rows * at // count for at in range(count)]
    out = []
    for number in range(load.stores):
        own = range(number * load.regions_per_store, (number + 1) * load.regions_per_store)
        regions = [_Region(at + 1, HUGE, at * step, (at + 1) * step, share[at]) for at in own]
        small = (1 << HANDLE_BITS) // load.stores
        low = (SMALL << HANDLE_BITS) + number * small
        regions.append(_Region(count + number + 1, SMALL, low, low + small, 0))
        out.append(_Store(number + 1, regions))
    return out


def _fill(load: HugeLoad, rng: np.random.Generator, store: _Store, number: int) -> int:
    """This second's changes of a store; the check of the huge values that it holds."""
    begun = number - WARM_SECONDS
    own = sum(region.rows for region in store.regions)
    check = 0
    if 0 <= begun < load.prewrite_seconds:
        due = own * (begun + 1) // load.prewrite_seconds - sum(region.prewritten for region in store.regions)
        check = _some(load, rng, store, due, committing=False)
    begun -= load.prewrite_seconds
    if 0 <= begun < load.commit_seconds:
        due = own * (begun + 1) // load.commit_seconds - sum(region.committed for region in store.regions)
        _some(load, rng, store, due, committing=True)
    _small(rng, store, number)
    return check


def _some(load: HugeLoad, rng: np.random.Generator, store: _Store, count: int, *, committing: bool) -> int:
    """So many rows, from the regions in order."""
    check = 0
    width = 0 if committing else load.value_bytes
    step = max(1, min(GROUP_ROWS, GROUP_BYTES // (60 + width)))
    for region in store.regions:
        done = region.committed if committing else region.prewritten
        while count and done < region.rows:
            rows = min(count, region.rows - done, step)
            at = np.arange(done, done + rows, dtype=np.int64)
            position = region.low + at * ((region.high - region.low) // region.rows)
            columns = _entries(region, position, load.start_ts, load.commit_ts if committing else None)
            if not committing:
                values = values_of(rng, np.ones(rows, bool), width)
                check += check_of(pa.chunked_array([values]), width)
                columns["value"] = values
            store.groups.append(table_of(columns, rows))
            done += rows
            count -= rows
        if committing:
            region.committed = done
        else:
            region.prewritten = done
    return check


def _small(rng: np.random.Generator, store: _Store, number: int) -> None:
    """Small transactions, each of one row, all begun and committed within the second."""
    region = store.regions[-1]
    count = SMALL_PER_SECOND // 3
    position = region.low + rng.integers(0, region.high - region.low, count)
    start_ts = ((FIRST_MS + number * 1000 + np.arange(count) * 900 // count) << 18) + region.number
    commit_ts = start_ts + (20 << 18)
    for commits in (None, commit_ts):
        columns = _entries(region, position, start_ts, commits)
        if commits is None:
            columns["value"] = values_of(rng, np.ones(count, bool), SMALL_BYTES)
        store.groups.append(table_of(columns, count))


def _entries(
    region: _Region, position: Int64s, start_ts: int | Int64s, commit_ts: int | Int64s | None
) -> dict[str, pa.Array]:
    """Prewrites, or commits, of one region, in the order of its log."""
    count = len(position)
    kind = PREWRITE if commit_ts is None else COMMIT
    first = region.index + 1
    region.index += count
    columns = {
        "type": np.full(count, kind, np.int32),
        "op_type": np.full(count, OP_PUT if commit_ts is None else 0, np.int32),
        "region_id": np.full(count, region.number),
        "region_version": np.full(count, 1),
        "log_index": np.arange(first, first + count),
        "start_ts": np.broadcast_to(np.asarray(start_ts, np.int64), count),
    }
    if commit_ts is not None:
        columns["commit_ts"] = np.broadcast_to(np.asarray(commit_ts, np.int64), count)
    return {"key": keys_of(position), **{name: pa.array(values) for name, values in columns.items()}}


def _watermarks(load: HugeLoad, store: _Store, number: int) -> pa.Table:
    """A row per region: up to now, or up to the huge transaction while it has locks there."""
    now = ((FIRST_MS + (number + 1) * 1000) << 18) - 1
    rows = []
    edge = load.stores * load.regions_per_store
    for region in store.regions:
        locked = region.prewritten > region.committed
        scan, first = region.told is None, 11 if region.told is None else region.told + 1
        region.told = region.index
        start = b"" if region.number == 1 else keys_of(np.array([region.low]))[0].as_py()
        last = region.number == edge + load.stores
        end = b"" if last else keys_of(np.array([_next(load, region)]))[0].as_py()
        resolved = load.start_ts - 1 if locked else now
        base_ts = snapshot_ts() if scan else None
        rows.append((region.number, start, end, first, region.index, resolved, base_ts))
    ids, starts, ends, firsts, indexes, resolved_ts, bases = zip(*rows, strict=True)
    count = len(rows)
    columns = {
        "type": pa.array([WATERMARK] * count, pa.int32()),
        "op_type": pa.array([0] * count, pa.int32()),
        "region_id": pa.array(ids),
        "region_version": pa.array([1] * count),
        "log_index": pa.array(indexes),
        "first_index": pa.array(firsts),
        "key": pa.array(starts, pa.binary()),
        "end_key": pa.array(ends, pa.binary()),
        "resolved_ts": pa.array(resolved_ts),
        "base_ts": pa.array(bases, pa.int64()),
    }
    return table_of(columns, count)


def _next(load: HugeLoad, region: _Region) -> int:
    """Where the region after this one begins."""
    if region.number == load.stores * load.regions_per_store:
        return SMALL << HANDLE_BITS
    if region.table == SMALL:
        return (SMALL << HANDLE_BITS) + (region.number - load.stores * load.regions_per_store) * (
            (1 << HANDLE_BITS) // load.stores
        )
    return region.high
