"""How the work of a tick is cut, when early segments are named, and whose turn it is to be swept. Pure."""

from __future__ import annotations

from itertools import pairwise

import pyarrow as pa
import pytest

from tistream.format.manifest import READY, SEALED, UNMATCHED, PendingPart
from tistream.format.segment import RowGroupInfo
from tistream.model.span import WHOLE, KeySpan
from tistream.model.ts import MAX_TS
from tistream.wire.file_batch import RowGroupRef
from tistream_sorter.jobs.pruning import ReadRules
from tistream_sorter.jobs.shard import ShardFile
from tistream_sorter.task.promotion import promoted
from tistream_sorter.upkeep.shards import ROW_BYTES, CutRules, cut
from tistream_sorter.upkeep.sweep import AGAIN_MS, BYTES_MAX, EVERY_MS, Sweeps
from tistream_sorter.watermark.slice_cuts import SliceCuts
from tistream_sorter.watermark.slice_history import SliceHistory
from tistream_sorter.watermark.watermark_rows import Watermark


def file_of(*groups: tuple[bytes, int, int]) -> ShardFile:
    """(lowest key, bytes, rows) of each row group; each ends where the next begins."""
    refs = [RowGroupRef(at, 0, size, rows, 0, low, low + b"\xff") for at, (low, size, rows) in enumerate(groups)]
    return ShardFile(0, "file", 1, 1, tuple(refs), tuple(range(len(refs))))


def part(name: str, kind: str = UNMATCHED, **more: object) -> PendingPart:
    facts: dict[str, object] = {"size": 100, "rows": 1_000, "commit_ts_min": MAX_TS, "span": KeySpan(b"", b"")}
    return PendingPart(name, kind=kind, checksum="", start_ts_min=50, start_ts_max=60, **{**facts, **more})  # type: ignore[arg-type]


@pytest.mark.parametrize("slots", [1, 2, 3])
@pytest.mark.parametrize(("groups", "rows"), [(40, 10), (400, 1), (40, 1_000)])
def test_no_shard_has_too_much_work_and_the_slots_end_together(slots: int, groups: int, rows: int) -> None:
    work_max, each = 50_000, 1_000 + rows * ROW_BYTES
    file = file_of(*((at.to_bytes(2, "big"), 1_000, rows) for at in range(groups)))
    found = cut(WHOLE, [file], [], ReadRules(0, 500), CutRules(slots, 1, work_max))
    assert found.work == groups * each
    assert (found.spans[0].start, found.spans[-1].end) == (b"", b"")
    assert all(left.end == right.start for left, right in pairwise(found.spans))
    held = [sum(at.to_bytes(2, "big") in span for at in range(groups)) * each for span in found.spans]
    assert max(held) <= max(1.3 * work_max, 1.3 * found.work / slots if found.work < work_max else 0, 2 * each)
    assert len(found.spans) % slots == 0


def test_more_shards_than_slots_where_pointers_bring_much() -> None:
    groups = file_of(*((bytes([at]), 1_000, 100) for at in range(10)))
    rules = CutRules(2, 5_000, 200_000)
    assert len(cut(WHOLE, [groups], [], ReadRules(0, 500), rules).spans) == 2
    pointing = part("p", rows=100_000, pointed_bytes=100_000 * 2_000)  # 200,000 bytes for each row group
    found = cut(WHOLE, [groups], [pointing], ReadRules(0, 500), rules)
    assert len(found.spans) >= 9
    elsewhere = part("p", rows=100_000, pointed_bytes=100_000 * 2_000, span=KeySpan(b"\xf0", b"\xf1"))
    assert len(cut(WHOLE, [groups], [elsewhere], ReadRules(0, 500), rules).spans) == 2


def test_commits_that_the_window_reaches_are_work_without_any_row_group() -> None:
    """A pipelined transaction whose halves have waited for the watermark."""
    halves = [
        part("commits", rows=100_000, commit_ts_min=70, span=KeySpan(b"a", b"b")),
        part("prewrites", rows=100_000, pointed_bytes=100_000 * 500, span=KeySpan(b"a", b"b")),
    ]
    assert cut(WHOLE, [], halves, ReadRules(69, 500), CutRules(2, 1)).work == 0
    assert cut(WHOLE, [], halves, ReadRules(70, 500), CutRules(2, 1)).work > 100_000 * 500


def test_whatever_a_tick_reads_is_work() -> None:
    """Else its shards are fewer than they must be, and it stands in everybody's way."""
    rules, far, near = CutRules(2, 1), KeySpan(b"x", b"y"), KeySpan(b"a", b"c")
    waiting = [part("waiting", rows=100_000, span=far)]
    assert cut(WHOLE, [], waiting, ReadRules(1, 500), rules).work == 0
    assert cut(WHOLE, [], waiting, ReadRules(1, 500, scanned=[near]), rules).work == 0
    read = 100 + 100_000 * ROW_BYTES
    assert cut(WHOLE, [], waiting, ReadRules(1, 500, scanned=[far]), rules).work == read
    assert cut(WHOLE, [], waiting, ReadRules(1, 500, swept={"waiting"}), rules).work == read
    assert cut(WHOLE, [], [part("small", rows=499)], ReadRules(1, 500), rules).work == 100 + 499 * ROW_BYTES
    heavy = [part("few rows, but heavy", READY, rows=499, size=512 << 20, commit_ts_min=70)]
    assert cut(WHOLE, [], heavy, ReadRules(1, 500), rules).work == 0
    early = [part("early", SEALED, rows=10_000, commit_ts_min=70, row_groups=(RowGroupInfo(1_000, 7, 7, 70, 70),))]
    assert cut(WHOLE, [], early, ReadRules(1, 500), rules).work == 0
    touching = file_of((b"m", 1_000, 10))
    assert cut(WHOLE, [touching], early, ReadRules(1, 500), rules).work > 10_000 * 50


def test_a_segment_written_early_is_named_when_the_window_reaches_it_and_not_before() -> None:
    groups = (RowGroupInfo(1_000, 7, 7, 70, 70),)
    sealed = part("sealed", SEALED, commit_ts_min=70, row_groups=groups)
    others = (part("ready", READY, commit_ts_min=70), part("unmatched"))
    assert promoted((sealed, *others), 69) == ((), (sealed, *others))
    segments, left = promoted((sealed, *others), 70)
    assert left == others
    (segment,) = segments
    assert (segment.key, segment.size, segment.rows, segment.row_groups) == ("sealed", 100, 1_000, groups)


def history(*rows: tuple[bytes, bytes, int]) -> SliceHistory:
    """Rows that connected, of (start, end, resolved_ts)."""
    out = SliceHistory()
    for start, end, ts in rows:
        cuts = SliceCuts(pa.array([b"", *([start] if start else []), *([end] if end else [])], pa.binary()), b"")
        row = Watermark(start, end, 1, 1, 1, 9, None, ts, (), 1, 1)
        out.note(0, cuts, 1 if start else 0, (1, 9, ts), row, connected=True)
    return out


def test_a_part_is_swept_when_a_row_may_have_ended_a_lock_of_it_and_not_too_often() -> None:
    sweeps = Sweeps()
    one = part("one", span=KeySpan(b"a", b"b"))
    later = history((b"a", b"b", 51))
    assert sweeps.due([one], later, 0, 0) == frozenset()  # seen for the first time
    assert sweeps.due([one], later, 0, EVERY_MS - 1) == frozenset()
    now_ms = EVERY_MS
    for other in (history((b"a", b"b", 50)), history((b"b", b"", 99)), history((b"", b"a", 99)), history()):
        assert sweeps.due([one], other, 0, now_ms) == frozenset()
        now_ms += AGAIN_MS
    assert sweeps.due([one], history((b"", b"", 51)), 0, now_ms) == {"one"}
    assert sweeps.due([one], later, 0, now_ms) == {"one"}  # that tick was not committed
    sweeps.swept(frozenset({"one"}), now_ms)
    assert sweeps.due([one], later, 0, now_ms + EVERY_MS - 1) == frozenset()
    assert sweeps.due([one], later, 0, now_ms + EVERY_MS) == {"one"}
    assert sweeps.due([one], later, 1_001, now_ms + EVERY_MS) == frozenset()  # small parts are read anyway


def test_parts_take_turns() -> None:
    sweeps, later = Sweeps(), history((b"", b"", 99))
    parts = [part(f"part-{at}", size=BYTES_MAX // 2 + 1) for at in range(3)]
    now_ms, seen = 0, []
    sweeps.due(parts, later, 0, now_ms)
    for _ in range(3):
        now_ms += EVERY_MS
        chosen = sweeps.due(parts, later, 0, now_ms)
        assert len(chosen) == 1
        sweeps.swept(chosen, now_ms)
        seen += sorted(chosen)
    assert sorted(seen) == ["part-0", "part-1", "part-2"]
