"""Watermark rows of a task, as objects and, while they wait, as columns; and the tables in which a manifest stores
them. Pure."""

from __future__ import annotations

import heapq
import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa

from tistream.model.ts import MAX_TS


@dataclass(frozen=True, slots=True)
class Watermark:
    """One WATERMARK row, clipped to the task's span, with the store and the ts of the file that contained it."""

    start: bytes
    end: bytes
    region_id: int
    region_version: int
    first_index: int
    log_index: int
    base_ts: int | None
    resolved_ts: int
    after: tuple[tuple[int, int], ...]
    store_id: int
    file_ts: int

    def clipped(self, start: bytes, end: bytes) -> Watermark:
        """The row with these narrower bounds."""
        return replace(self, start=start, end=end)


_PLAIN = (
    "region_id",
    "region_version",
    "first_index",
    "log_index",
    "base_ts",
    "resolved_ts",
    "store_id",
    "file_ts",
)
_PAIR = 16  # bytes of a region's id and log index
WAITING = pa.schema(
    [
        pa.field("start_key", pa.binary()),
        pa.field("end_key", pa.binary()),
        *(pa.field(name, pa.int64()) for name in _PLAIN),
        pa.field("after", pa.list_(pa.list_(pa.int64()))),
    ]
)


def rows_of(rows: pa.Table, store_id: int, file_ts: int) -> list[Watermark]:
    """Convert a table of wire.file_batch.WATERMARKS to row objects."""
    return [
        Watermark(
            start=row["start_key"],
            end=row["end_key"],
            region_id=row["region_id"],
            region_version=row["region_version"],
            first_index=row["first_index"],
            log_index=row["log_index"],
            base_ts=row["base_ts"],
            resolved_ts=row["resolved_ts"],
            after=tuple((pair["region_id"], pair["log_index"]) for pair in row["after"] or ()),
            store_id=store_id,
            file_ts=file_ts,
        )
        for row in rows.to_pylist()
    ]


_JOINED_BY = ("start_key", "end_key", "region_version", "region_id")
_LOG_ORDER = (
    *_JOINED_BY,
    *("first_index", "log_index", "resolved_ts", "base_ts", "after", "store_id", "file_ts"),
)
_FRAME = {
    "start_key": pl.Binary,
    "end_key": pl.Binary,
    **dict.fromkeys(_PLAIN, pl.Int64),
    "after": pl.Binary,  # big-endian 64-bit numbers, so that the order of the bytes is the order of the pairs
}


class WaitingRows:
    """The watermark rows that wait, as columns, because a store may have hundreds of thousands of them, and every file
    may affect them. Immutable."""

    def __init__(self, frame: pl.DataFrame) -> None:
        self._frame = frame

    @classmethod
    def of(cls, rows: Iterable[Watermark]) -> WaitingRows:
        """Convert row objects; their order is kept."""
        plain = [
            (row.start, row.end, *(getattr(row, name) for name in _PLAIN), b"".join(map(_packed, row.after)))
            for row in rows
        ]
        return cls(pl.DataFrame(plain, schema=_FRAME, orient="row"))

    @classmethod
    def from_file(cls, rows: pa.Table, store_id: int, file_ts: int) -> WaitingRows:
        """Convert a table of wire.file_batch.WATERMARKS. `after` must be empty in all of its rows."""
        names = [name for name in _FRAME if name not in ("store_id", "file_ts", "after")]
        found = pl.DataFrame(pl.from_arrow(rows.select(names)))
        said = [pl.lit(store_id).alias("store_id"), pl.lit(file_ts).alias("file_ts"), pl.lit(b"").alias("after")]
        return cls(found.with_columns(said).select(list(_FRAME)).cast(pl.Schema(_FRAME)))

    def __len__(self) -> int:
        return self._frame.height

    @cached_property
    def rows(self) -> list[Watermark]:
        """The rows as objects, for status and tests."""
        return self.at(np.arange(len(self)))

    def at(self, places: npt.NDArray[np.int64]) -> list[Watermark]:
        """The rows at these positions, as objects."""
        found = self._frame[places]
        return [
            Watermark(start, end, region, version, first, last, base_ts, resolved_ts, _unpacked(after), store, file)
            for start, end, region, version, first, last, base_ts, resolved_ts, store, file, after in found.iter_rows()
        ]

    def of_store(self, store_id: int) -> list[Watermark]:
        """The first row of this store, as a list of one; empty if no row of the store waits."""
        return self.at(np.flatnonzero((self._frame["store_id"] == store_id).to_numpy())[:1])

    @cached_property
    def start(self) -> pa.Array:
        """The start key of each row."""
        return self._frame["start_key"].to_arrow().cast(pa.binary())

    @cached_property
    def end(self) -> pa.Array:
        """The end key of each row."""
        return self._frame["end_key"].to_arrow().cast(pa.binary())

    @cached_property
    def has_after(self) -> npt.NDArray[np.bool_]:
        """For each row, whether its `after` names other regions."""
        return np.asarray((self._frame["after"].bin.size() > 0).to_numpy(), bool)

    def numbers(self, name: str) -> npt.NDArray[np.int64]:
        """The column `name` as an array. A missing `base_ts` is MAX_TS, which no resolved_ts reaches."""
        return np.asarray(self._frame[name].fill_null(MAX_TS).to_numpy(), np.int64)

    def first_over(self, spans: Sequence[tuple[bytes, bytes]]) -> list[Watermark | None]:
        """For each span, the first waiting row that overlaps it, or None. The spans must be in key order and disjoint.
        The rows must be in log order, which sorts by start key first."""
        starts, ends = self.start.to_pylist(), self.end.to_pylist()
        found: list[int] = []
        # A heap of the rows that begin before the span's end; the first of them in log order is on top.
        come: list[int] = []
        at = 0
        for start, end in spans:
            while at < len(starts) and (not end or starts[at] < end):
                heapq.heappush(come, at)
                at += 1
            while come and ends[come[0]] and ends[come[0]] <= start:
                heapq.heappop(come)
            found.append(come[0] if come else -1)
        wanted = sorted(set(found) - {-1})
        rows = dict(zip(wanted, self.at(np.array(wanted, np.int64)), strict=True))
        return [rows.get(one) for one in found]

    def kept(self, keep: npt.NDArray[np.bool_]) -> WaitingRows:
        """Only the rows that the mask `keep` selects."""
        return WaitingRows(self._frame.filter(pl.Series(keep)))

    def and_also(self, *others: WaitingRows) -> WaitingRows:
        """These rows and then those of `others`. Rows that continue one another stay separate; `merged` merges them."""
        return WaitingRows(pl.concat([self._frame, *(other._frame for other in others)]))

    def merged(self) -> WaitingRows:
        """Merge rows as far as possible, and sort them in log order (by span, region and log index). So a missing file
        leaves one row for each region and gap after an hour, and not one for each push.

        A row without a scan and without `after` is merged into its predecessor in the same log if no entry is missing
        between the two, and neither its end nor its resolved_ts is lower than the predecessor's. Such a row cannot
        connect where its predecessor cannot, and the merged row states everything that both state.
        """
        once = self._frame.with_columns(pl.col("base_ts").fill_null(-1)).unique().sort(_LOG_ORDER)
        own_log = pl.all_horizontal(*(pl.col(name).eq(pl.col(name).shift(1)) for name in _JOINED_BY))
        plain = pl.col("base_ts").eq(-1) & pl.col("after").bin.size().eq(0)
        no_gap = pl.col("first_index") <= pl.col("log_index").shift(1) + 1
        no_less = (pl.col("log_index") >= pl.col("log_index").shift(1)) & (
            pl.col("resolved_ts") >= pl.col("resolved_ts").shift(1)
        )
        continues = once.select((own_log & plain & no_gap & no_less).fill_null(value=False)).to_series().to_numpy()
        first = np.flatnonzero(~continues)
        last = np.append(first[1:], once.height) - 1 if len(first) else first
        latest = [once[name][last] for name in ("log_index", "resolved_ts")]
        base_ts = pl.when(pl.col("base_ts") >= 0).then(pl.col("base_ts")).alias("base_ts")
        return WaitingRows(once[first].with_columns(latest).with_columns(base_ts))

    def to_table(self) -> pa.Table:
        """Convert the rows to the table WAITING, as a manifest stores it."""
        if not len(self):
            return WAITING.empty_table()
        plain = self._frame.drop("after").to_arrow().cast(pa.schema(list(WAITING)[:-1]))
        packed = self._frame["after"]
        lengths = packed.bin.size().to_numpy().astype(np.int64) // _PAIR
        pairs = np.frombuffer(b"".join(packed.to_list()), ">i8").astype(np.int64)
        each = pa.ListArray.from_arrays(pa.array(np.arange(0, len(pairs) + 1, 2), pa.int32()), pa.array(pairs))
        ends = pa.array(np.concatenate([[0], np.cumsum(lengths)]), pa.int32())
        return plain.append_column(WAITING.field("after"), pa.ListArray.from_arrays(ends, each)).cast(WAITING)

    @classmethod
    def from_table(cls, waiting: pa.Table) -> WaitingRows:
        """Rebuild the rows from a table that to_table returned."""
        if not waiting.num_rows:
            return cls.of(())
        after = [b"".join(_packed(pair) for pair in pairs or ()) for pairs in waiting["after"].to_pylist()]
        found = pl.DataFrame(pl.from_arrow(waiting.drop_columns(["after"])))
        named = pl.Series("after", after, pl.Binary)
        return cls(found.with_columns(named).select(list(_FRAME)).cast(pl.Schema(_FRAME)))


def _packed(pair: Sequence[int]) -> bytes:
    return struct.pack(">qq", *pair)


def _unpacked(after: bytes) -> tuple[tuple[int, int], ...]:
    return tuple((region, index) for region, index in struct.iter_unpack(">qq", after))


def merge_rows(rows: Iterable[Watermark]) -> list[Watermark]:
    """Merge rows as far as possible, and sort them by span, region and log index, as WaitingRows.merged does."""
    return WaitingRows.of(rows).merged().rows


def to_table(rows: Iterable[Watermark]) -> pa.Table:
    """Convert waiting watermark rows to the table WAITING, as a manifest stores it."""
    return WaitingRows.of(rows).to_table()


def from_table(waiting: pa.Table) -> list[Watermark]:
    """Convert the table WAITING of a manifest to waiting watermark rows."""
    return WaitingRows.from_table(waiting).rows
