"""The slice rule (design.md 3): what connects, what waits, and what must never be believed."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.effort import examples
from tistream.format.manifest import KIND_SEAL, Manifest
from tistream.model.ids import TenantKey
from tistream.model.span import WHOLE, KeySpan
from tistream.wire.file_batch import WATERMARKS
from tistream_sorter.watermark.inherited_slices import inherited_slices
from tistream_sorter.watermark.slice_history import SliceHistory
from tistream_sorter.watermark.slices import SliceMap

SNAPSHOT = 10


def row(
    span: tuple[bytes, bytes],
    region: int,
    version: int,
    indexes: tuple[int, int],
    resolved_ts: int,
    *,
    base_ts: int | None = None,
    after: Sequence[tuple[int, int]] = (),
) -> dict[str, Any]:
    named = [{"region_id": r, "log_index": i} for r, i in after]
    return {
        "file": 0,
        "task_id": 1,
        "start_key": span[0],
        "end_key": span[1],
        "region_id": region,
        "region_version": version,
        "first_index": indexes[0],
        "log_index": indexes[1],
        "base_ts": base_ts,
        "resolved_ts": resolved_ts,
        "after": named or None,
    }


class Arrivals:
    """A slice map and the files that it has taken."""

    def __init__(self, span: KeySpan = WHOLE) -> None:
        self.slices = SliceMap(span, SNAPSHOT)
        self.history = SliceHistory()
        self.seq = 0

    def file(self, *rows: dict[str, Any], store: int = 1) -> int:
        clipped = []
        for one in rows:
            piece = KeySpan(one["start_key"], one["end_key"]).clip(self.slices.span)
            if piece is not None:
                clipped.append({**one, "start_key": piece.start, "end_key": piece.end})
        table = pa.Table.from_pylist(clipped, schema=WATERMARKS)
        deque(self.slices.applying(table, store, 1000 + self.seq, self.seq, self.history), 0)
        self.seq += 1
        return self.slices.watermark()


def begun() -> Arrivals:
    """Region 1, version 1, covers everything; its scan from the snapshot has arrived up to index 10."""
    arrivals = Arrivals()
    assert arrivals.file(row((b"", b""), 1, 1, (6, 10), 100, base_ts=SNAPSHOT)) == 100
    return arrivals


def test_a_new_tenant_waits_for_a_scan_or_a_base_that_the_snapshot_reaches() -> None:
    arrivals = Arrivals()
    assert arrivals.file(row((b"", b""), 1, 1, (6, 10), 100)) == SNAPSHOT
    assert "a scan or the log before it" in arrivals.slices.waits_for(arrivals.slices.waiting[0])
    assert arrivals.file(row((b"", b""), 1, 1, (6, 6), 90, base_ts=SNAPSHOT + 1)) == SNAPSHOT
    assert arrivals.file(row((b"", b""), 1, 1, (4, 5), 80, base_ts=SNAPSHOT)) == 100
    assert arrivals.slices.waiting == []


def test_a_new_leaders_file_before_the_old_ones() -> None:
    """The bug of TiKV-CDC, TiCDC, Flink CDC and CockroachDB: the new leader's higher watermark arrives first."""
    arrivals = begun()
    new_leader = row((b"", b""), 1, 1, (16, 20), 300)
    assert arrivals.file(new_leader, store=2) == 100
    (waiting,) = arrivals.slices.waiting
    assert arrivals.slices.waits_for(waiting) == "region 1 log index 11..15"
    assert arrivals.file(row((b"", b""), 1, 1, (11, 15), 200), store=1) == 300
    assert arrivals.slices.waiting == []


def test_a_split_off_region_before_the_parents_last_file() -> None:
    arrivals = begun()
    child = row((b"m", b""), 2, 2, (5, 8), 300, after=[(1, 12)])
    assert arrivals.file(child, store=2) == 100
    assert arrivals.slices.waits_for(arrivals.slices.waiting[0]) == "region 1 log index 11..12"
    parent_goes_on = row((b"", b"m"), 1, 2, (13, 15), 250)
    assert arrivals.file(row((b"", b""), 1, 1, (11, 12), 200), parent_goes_on) == 250
    assert [(s.start, s.region_id, s.resolved_ts) for s in arrivals.slices.states()] == [(b"", 1, 250), (b"m", 2, 300)]


def test_a_scan_of_the_left_half_after_a_split_does_not_vouch_for_the_right_half() -> None:
    """Entries 11..12 of the old region were lost unpushed. The left half is scanned; the right half is not."""
    arrivals = begun()
    right = row((b"m", b""), 2, 2, (5, 8), 300, after=[(1, 12)])
    left_scan = row((b"", b"m"), 1, 2, (13, 15), 300, base_ts=100)
    assert arrivals.file(right, store=2) == 100
    assert arrivals.file(left_scan) == 100
    assert [(s.start, s.resolved_ts) for s in arrivals.slices.states()] == [(b"", 300), (b"m", 100)]
    assert arrivals.file(row((b"m", b""), 2, 2, (9, 9), 400), store=2) == 100
    assert arrivals.file(row((b"m", b""), 2, 2, (10, 10), 500, base_ts=100), store=2) == 300


def test_an_older_epoch_may_raise_resolved_ts_and_nothing_else() -> None:
    arrivals = begun()
    arrivals.file(row((b"", b"m"), 1, 2, (11, 12), 110), row((b"m", b""), 2, 2, (1, 3), 110, after=[(1, 10)]))
    before = [(s.region_id, s.region_version, s.index) for s in arrivals.slices.states()]
    assert arrivals.file(row((b"", b""), 1, 1, (11, 99), 130)) == 130
    assert [(s.region_id, s.region_version, s.index) for s in arrivals.slices.states()] == before


def test_a_merge_needs_both_logs() -> None:
    arrivals = begun()
    arrivals.file(row((b"", b"m"), 1, 2, (11, 12), 110), row((b"m", b""), 2, 2, (1, 3), 110, after=[(1, 10)]))
    merged = row((b"", b""), 1, 4, (14, 16), 300, after=[(2, 5)])
    assert arrivals.file(merged) == 110
    assert arrivals.file(row((b"", b"m"), 1, 2, (13, 13), 200)) == 110
    assert arrivals.file(row((b"m", b""), 2, 3, (4, 5), 200)) == 300
    assert len(arrivals.slices) == 1


def test_resolved_ts_and_index_never_go_down() -> None:
    arrivals = begun()
    assert arrivals.file(row((b"", b""), 1, 1, (6, 8), 50)) == 100
    (state,) = arrivals.slices.states()
    assert (state.index, state.resolved_ts) == (10, 100)


def test_tables_round_trip() -> None:
    arrivals = begun()
    arrivals.file(row((b"m", b""), 2, 2, (5, 8), 300, after=[(1, 12)]), row((b"", b"c"), 9, 7, (4, 4), 5, base_ts=400))
    again = SliceMap.from_tables(WHOLE, *arrivals.slices.to_tables())
    assert again.states() == arrivals.slices.states()
    assert again.waiting == arrivals.slices.waiting


def test_the_steady_path_equals_the_slow_one() -> None:
    fast, slow = begun(), begun()
    cut = [row((b"", b"m"), 1, 2, (11, 12), 110), row((b"m", b""), 2, 2, (1, 3), 110, after=[(1, 10)])]
    for arrivals in (fast, slow):
        arrivals.file(*cut)
    rows = [row((b"", b"m"), 1, 2, (13, 14), 140), row((b"m", b""), 2, 2, (4, 3), 150)]
    fast.file(*rows)
    for one in rows:
        slow.file(one, one)  # a repeated region takes the slow path
    assert [replace(s, store_id=0) for s in fast.slices.states()] == [
        replace(s, store_id=0) for s in slow.slices.states()
    ]


def test_an_older_epoch_is_of_no_use_to_a_slice_that_it_has_alone() -> None:
    arrivals = begun()
    arrivals.file(row((b"", b"m"), 1, 2, (11, 12), 110), row((b"m", b""), 2, 2, (1, 3), 110, after=[(1, 10)]))
    assert arrivals.file(row((b"", b"m"), 1, 1, (11, 20), 130)) == 110
    assert [(s.index, s.resolved_ts) for s in arrivals.slices.states()] == [(12, 130), (3, 110)]


def test_a_scan_by_a_new_region_begins_its_index_anew() -> None:
    arrivals = begun()
    assert arrivals.file(row((b"", b""), 2, 5, (4, 5), 200, base_ts=100)) == 200
    assert arrivals.file(row((b"", b""), 2, 5, (8, 9), 300)) == 200
    assert arrivals.slices.waits_for(arrivals.slices.waiting[0]) == "region 2 log index 6..7"


def test_a_waiting_row_of_an_older_epoch_still_raises_resolved_ts() -> None:
    arrivals = begun()
    assert arrivals.file(row((b"", b""), 9, 2, (5, 6), 300)) == 100
    assert arrivals.file(row((b"", b""), 1, 3, (20, 20), 120, base_ts=100)) == 300
    assert arrivals.slices.waiting == []


def test_a_copy_leaves_its_original_alone() -> None:
    original = begun()
    copy = Arrivals()
    copy.slices = original.slices.copy()
    before = original.slices.states()
    assert copy.file(row((b"", b""), 1, 1, (11, 12), 200)) == 200
    assert original.slices.states() == before
    after = copy.slices.states()
    assert (
        original.file(row((b"", b"m"), 1, 2, (11, 12), 300), row((b"m", b""), 2, 2, (1, 3), 310, after=[(1, 10)]))
        == 300
    )
    assert copy.slices.states() == after


# -- any history, any order of arrival, any cut into tasks


@dataclass
class Region:
    region_id: int
    version: int
    start: bytes
    end: bytes
    index: int  # its last log index
    reported: int  # the last index that a row covers
    after: list[tuple[int, int]] = field(default_factory=list)


class Upstream:
    """Regions that write, split, merge, and lose what was not pushed. Each row is a file of its own.

    A commit is (key, commit_ts); the row whose range holds its entry, or a scan above whose base it lies, brings it.
    """

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.ts = SNAPSHOT
        self.regions = [Region(1, 1, b"", b"", 5, 5)]
        self.next_id = 2
        self.commits: list[tuple[bytes, int]] = []
        self.fresh: dict[int, list[tuple[bytes, int]]] = {1: []}
        self.files: list[tuple[dict[str, Any], list[tuple[bytes, int]]]] = []
        self.scan(self.regions[0], SNAPSHOT)

    def write(self, region: Region) -> None:
        self.ts += self.rng.randint(1, 5)
        region.index += 1
        low = region.start or b"\x00"
        key = bytes([self.rng.randint(low[0], (region.end[0] - 1) if region.end else 255)])
        self.commits.append((key, self.ts))
        self.fresh[region.region_id].append((key, self.ts))

    def report(self, region: Region) -> None:
        one = row(
            (region.start, region.end),
            region.region_id,
            region.version,
            (region.reported + 1, region.index),
            self.ts,
            after=region.after,
        )
        self.files.append((one, self.fresh[region.region_id]))
        self._reported(region)

    def scan(self, region: Region, base_ts: int) -> None:
        brought = [(k, ts) for k, ts in self.commits if k in KeySpan(region.start, region.end) and ts > base_ts]
        span = (region.start, region.end)
        one = row(span, region.region_id, region.version, (region.index + 1, region.index), self.ts, base_ts=base_ts)
        self.files.append((one, brought))
        self._reported(region)

    def lose(self, region: Region) -> None:
        """The range since the last report is never pushed."""
        self._reported(region)

    def _reported(self, region: Region) -> None:
        region.reported, region.after, self.fresh[region.region_id] = region.index, [], []

    def split(self, region: Region) -> None:
        low, high = (region.start or b"\x00")[0] + 1, (region.end or b"\xff")[0]
        if high - low < 2:
            return
        region.index += 1  # the split entry ends the range, with the old span
        (self.report if self.rng.random() < 0.8 else self.lose)(region)
        key, parent = bytes([self.rng.randint(low, high - 1)]), (region.region_id, region.index)
        region.version += 1
        child = Region(self.next_id, region.version, key, region.end, 5, 5, [parent])
        self.fresh[child.region_id] = []
        self.next_id += 1
        region.end = key
        self.regions.insert(self.regions.index(region) + 1, child)

    def merge(self, left: Region) -> None:
        at = self.regions.index(left)
        if at + 1 == len(self.regions):
            return
        source = self.regions[at + 1]
        for region in (source, left):
            region.index += 1
            (self.report if self.rng.random() < 0.8 else self.lose)(region)
        left.version = max(left.version, source.version + 1) + 1
        left.end, left.after = source.end, [(source.region_id, source.index)]
        self.regions.remove(source)


@settings(max_examples=examples(150, few=10), deadline=None)
@given(seed=st.integers(0, 2**32), cuts=st.lists(st.integers(1, 255), max_size=4, unique=True))
def test_no_watermark_passes_a_commit_that_has_not_arrived(seed: int, cuts: list[int]) -> None:
    any_history(seed, cuts)


@settings(max_examples=examples(150, few=10), deadline=None)
@given(seed=st.integers(0, 2**32), cuts=st.lists(st.integers(1, 255), max_size=4, unique=True))
def test_nor_while_tasks_are_split_and_merged_and_files_come_again(seed: int, cuts: list[int]) -> None:
    """What waits and what is covered is each key's own, whoever carries it on."""
    any_history(seed, cuts, recut=True)


def test_what_waits_goes_on_waiting_with_the_heirs_of_its_keys() -> None:
    arrivals = begun()
    assert arrivals.file(row((b"", b""), 1, 1, (13, 15), 200)) == 100
    (one,) = cut_anew([arrivals], [])
    left, right = cut_anew([one], [b"m"])
    assert [heir.file(row((b"", b""), 1, 1, (11, 12), 150)) for heir in (left, right)] == [200, 200]


def cut_anew(tasks: list[Arrivals], cuts: Sequence[bytes]) -> list[Arrivals]:
    """The same keys in the hands of others, who know what the seals of these say."""
    tenant = TenantKey("7", "acme")
    seals = []
    for task in tasks:
        slices, waiting = task.slices.to_tables()
        parts = {"slices": slices, "waiting": waiting}
        seals.append(Manifest(tenant, 1, 2, 1, "00", KIND_SEAL, task.slices.span, 100, 100, **parts))
    heirs = []
    for span in (KeySpan(start, end) for start, end in pairwise([b"", *sorted(cuts), b""])):
        heir = Arrivals(span)
        heir.slices = inherited_slices(span, [seal for seal in seals if seal.span.overlaps(span)])
        heirs.append(heir)
    return heirs


def any_history(seed: int, cuts: list[int], recut: bool = False) -> None:
    rng = random.Random(seed)
    edges = [b"", *(bytes([cut]) for cut in sorted(cuts)), b""]
    tasks = [Arrivals(KeySpan(start, end)) for start, end in pairwise(edges)]
    taken: list[dict[str, Any]] = []
    upstream = Upstream(rng)
    arrived: set[tuple[bytes, int]] = set()

    def deliver(at: int) -> None:
        one, brought = upstream.files.pop(at)
        arrived.update(brought)
        taken.append(one)
        offer(one)

    def offer(one: dict[str, Any]) -> None:
        for task in tasks:
            before = task.slices.watermark()
            assert task.file(one) >= before
            for key, ts in upstream.commits:
                if (key, ts) not in arrived:
                    for state in task.slices.states():
                        assert key not in KeySpan(state.start, state.end) or state.resolved_ts < ts

    def coverage(region: Region) -> int:
        span = KeySpan(region.start, region.end)
        states = [s for t in tasks if t.slices.span.overlaps(span) for s in t.slices.states(t.slices.span.clip(span))]
        return min(state.resolved_ts for state in states)

    for _ in range(60):
        region = rng.choice(upstream.regions)
        steps = {"write": 8, "report": 5, "split": 1, "merge": 1, "deliver": 6, "lose": 0.5, "scan": 1}
        steps |= {"recut": 2, "again": 3} if recut else {}
        step = rng.choices([*steps], [*steps.values()])[0]
        if step == "deliver":
            if upstream.files:
                deliver(rng.randrange(len(upstream.files)))
        elif step == "recut":
            tasks[:] = cut_anew(tasks, [bytes([cut]) for cut in rng.sample(range(1, 256), rng.randint(0, 4))])
        elif step == "again":
            if taken:
                offer(rng.choice(taken))
        elif step == "scan":
            upstream.scan(region, coverage(region))
        else:
            getattr(upstream, step)(region)
    while upstream.files:
        deliver(rng.randrange(len(upstream.files)))
    for region in upstream.regions:
        upstream.scan(region, coverage(region))
    while upstream.files:
        deliver(rng.randrange(len(upstream.files)))
    assert [task.slices.watermark() for task in tasks] == [upstream.ts] * len(tasks)
    assert [task.slices.waiting for task in tasks] == [[]] * len(tasks)


@settings(max_examples=examples(100, few=10), deadline=None)
@given(seed=st.integers(0, 2**32))
def test_many_rows_in_a_file_are_what_they_are_one_by_one(seed: int) -> None:
    rng = random.Random(seed)
    upstream = Upstream(rng)
    together, alone = Arrivals(), Arrivals()

    def told(arrivals: Arrivals) -> list[Any]:
        states = [(s.start, s.region_id, s.region_version, s.index, s.resolved_ts) for s in arrivals.slices.states()]
        return [state for at, state in enumerate(states) if not at or state[1:] != states[at - 1][1:]]

    for _ in range(80):
        region = rng.choice(upstream.regions)
        step = rng.choices(["write", "report", "split", "merge", "deliver", "lose", "scan"], [8, 8, 2, 1, 3, 0.3, 1])[0]
        if step == "deliver":
            count = rng.randint(0, len(upstream.files))
            rng.shuffle(upstream.files)
            rows, upstream.files = [one for one, _ in upstream.files[:count]], upstream.files[count:]
            together.file(*rows)
            for one in rows:
                alone.file(one)
            assert told(together) == told(alone)
        elif step == "scan":
            upstream.scan(region, alone.slices.watermark())
        else:
            getattr(upstream, step)(region)


def test_many_regions_in_steady_state() -> None:
    count = 20_000
    spans = [n.to_bytes(4, "big") for n in range(1, count)]
    edges = [b"", *spans, b""]
    arrivals = Arrivals()
    first = [row((edges[n], edges[n + 1]), n + 1, 1, (6, 5), 20, base_ts=SNAPSHOT) for n in range(count)]
    assert arrivals.file(*first) == 20
    again = [row((edges[n], edges[n + 1]), n + 1, 1, (6, 7), 30 + n) for n in range(count)]
    assert arrivals.file(*again) == 30
    assert len(arrivals.slices) == count


@pytest.mark.parametrize("span", [KeySpan(b"c", b"f"), KeySpan(b"x", b"")])
def test_rows_are_clipped_and_count_for_every_task_that_they_overlap(span: KeySpan) -> None:
    arrivals = Arrivals(span)
    assert arrivals.file(row((b"", b""), 1, 1, (6, 10), 100, base_ts=SNAPSHOT)) == 100
