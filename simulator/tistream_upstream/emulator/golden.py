"""Reads a recorded change history (Raft log, changes of regions and stores, locks in memory), and plays it as the
timeline of an emulated cluster."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from pathlib import Path
from typing import Any

import orjson
import pyarrow.parquet as pq

from tistream.errors import InvalidRequest
from tistream.model.ts import LOGICAL_BITS, from_physical_ms, physical_ms
from tistream_upstream.emulator.model.meta_rows import meta_rows
from tistream_upstream.emulator.model.region import Region
from tistream_upstream.emulator.model.store import StoreConfig
from tistream_upstream.emulator.model.timeline import (
    Command,
    Congested,
    Item,
    RegionsChange,
    Row,
    StoreFault,
)
from tistream_upstream.emulator.model.upstream import Options, Upstream

_FORMAT = 1
_ROW_COLUMNS = (
    "type",
    "op_type",
    "key",
    "value",
    "old_value",
    "start_ts",
    "commit_ts",
    "txn_source",
    "generation",
    "expire_ts",
)


class GoldenSource:
    """The timeline of a recorded set: `log.parquet`, `cluster.jsonl` and `memory_locks.parquet` in `folder`."""

    def __init__(self, folder: Path, base_ts: int) -> None:
        self.base_ts = base_ts
        self._last_tso = base_ts
        self._items = list(_ordered(folder))
        self._next = 0
        locks = pq.read_table(folder / "memory_locks.parquet").sort_by("from_us").to_pydict()
        self._memory = list(zip(locks["from_us"], locks["to_us"], locks["ts"], strict=True))
        self._starts: list[int] = locks["from_us"]
        self._taken = 0
        self._live: list[tuple[int, int]] = []  # ts, to_us: a heap by ts

    @property
    def last_us(self) -> int:
        """The time of the last item, in microseconds since the beginning."""
        return self._items[-1].at_us if self._items else 0

    def items(self, to_us: int) -> Iterator[Item]:
        """Return the items that happen up to `to_us`, in order; each item is returned once."""
        while self._next < len(self._items) and self._items[self._next].at_us <= to_us:
            self._next += 1
            yield self._items[self._next - 1]

    def tso(self, now_us: int, count: int) -> int:
        """Take `count` timestamps. Returns the last one."""
        self._last_tso = max(self._last_tso, self._floor(now_us)) + count
        return self._last_tso

    def resolved_limit(self, store_id: int, now_us: int) -> int:  # noqa: ARG002  # one record for all stores
        """Implement TimelineSource.resolved_limit: the present ts, or the start_ts of the lowest lock in memory, if
        that is lower."""
        upto = bisect_right(self._starts, now_us)
        for _, to_us, ts in self._memory[self._taken : upto]:
            heappush(self._live, (ts, to_us))
        self._taken = max(self._taken, upto)
        while self._live and self._live[0][1] < now_us:
            heappop(self._live)
        low = self._floor(now_us)
        return min(low, self._live[0][0]) if self._live else low

    def _floor(self, now_us: int) -> int:
        return max(self.base_ts, from_physical_ms(physical_ms(self.base_ts) + now_us // 1_000))


@dataclass(frozen=True, slots=True)
class GoldenSet:
    """A recorded change history in `folder`. `meta`: its `meta.json`."""

    folder: Path
    meta: Mapping[str, Any]

    @classmethod
    def read(cls, folder: Path) -> GoldenSet:
        """Read `meta.json`. Raises InvalidRequest if the folder has no such file, or if the file has another format."""
        try:
            meta = orjson.loads((folder / "meta.json").read_bytes())
        except (OSError, orjson.JSONDecodeError) as error:
            raise InvalidRequest(f"{folder} is no recorded change history: {error}") from error
        if meta.get("format") != _FORMAT:
            raise InvalidRequest(f"{folder}/meta.json has format {meta.get('format')!r}; this version reads {_FORMAT}")
        return cls(folder, meta)

    @property
    def end_ts(self) -> int:
        """The highest commit_ts of the recording."""
        return int(self.meta["end_ts"])

    @property
    def end_us(self) -> int:
        """The time, in microseconds since the beginning, at which PD's timestamps exceed `end_ts`."""
        return ((self.end_ts >> LOGICAL_BITS) - physical_ms(self.meta["base_ts"]) + 1) * 1_000

    def upstream(
        self, seed: int = 1, schema: Path | None = None, version: str = "", busy: float | None = None
    ) -> Upstream:
        """Make the emulated cluster that plays the recording. `schema`: the schema_snap that reads of the `m` keys show
        before the first change. `version` (of all stores) and `busy` (the share of registrations that are refused as
        busy) replace the recorded values."""
        meta = self.meta
        config = StoreConfig(meta["cluster_id"], meta["api"], meta["busy_rate"] if busy is None else busy)
        stores = {int(k): (version or v["version"], dict(v["labels"])) for k, v in meta["stores"].items()}
        rows: Iterator[Row] = iter(()) if schema is None else meta_rows(orjson.loads(schema.read_bytes()))
        options = Options(seed, meta["min_ts_interval_ms"] * 1_000)
        source = GoldenSource(self.folder, meta["base_ts"])
        return Upstream(source, config, map(_region, meta["regions"]), stores, rows, options)


def _region(found: Mapping[str, Any]) -> Region:
    return Region(
        found["id"],
        bytes.fromhex(found["start"]),
        bytes.fromhex(found["end"]),
        found["version"],
        found["conf_ver"],
        found["store"],
        {int(store): peer for store, peer in found["peers"].items()},
    )


def _ordered(folder: Path) -> Iterator[Item]:
    """The recorded Raft commands, and the changes of regions and stores, in order. A change comes before the command
    whose first row has the number in its member `row`."""
    commands = _commands(folder)
    happenings = [orjson.loads(line) for line in (folder / "cluster.jsonl").read_bytes().splitlines()]
    at = 0
    for first_row, command in commands:
        while at < len(happenings) and happenings[at]["row"] <= first_row:
            yield _happening(happenings[at], command.at_us)
            at += 1
        yield command
    for one in happenings[at:]:
        yield _happening(one, one["at_us"])


def _happening(one: Mapping[str, Any], latest_us: int) -> Item:
    at_us = min(one["at_us"], latest_us)
    what = one["what"]
    if what == "congested":
        return Congested(at_us, one["region"])
    if what in ("reset", "down", "up"):
        return StoreFault(at_us, one["store"], what)
    regions: Sequence[Region] = [_region(found) for found in one["regions"]]
    return RegionsChange(at_us, regions, one.get("gone", ()), one.get("pd_delay_us", 0), one.get("silent", False))


def _commands(folder: Path) -> Iterator[tuple[int, Command]]:
    """The Raft commands of the recorded log, each with the number of its first row. Consecutive rows with the same
    region and index are one command."""
    table = pq.read_table(folder / "log.parquet")
    columns = [table[name].to_pylist() for name in _ROW_COLUMNS]
    heads = zip(*(table[name].to_pylist() for name in ("at_us", "region_id", "log_index")), strict=True)
    rows = map(_row, zip(*columns, strict=True))
    current: tuple[int, int, int] | None = None
    found: list[Row] = []
    first = 0
    for number, (head, row) in enumerate(zip(heads, rows, strict=True)):
        if head != current:
            if current is not None:
                yield first, Command(*current, found)
            current, found, first = head, [], number
        found.append(row)
    if current is not None:
        yield first, Command(*current, found)


def _row(fields: tuple[Any, ...]) -> Row:
    type_, op, key, value, old, *numbers = fields
    return Row(type_, op or 0, key, value or b"", old or b"", *(number or 0 for number in numbers))
