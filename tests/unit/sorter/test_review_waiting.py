"""What waits behind a gap stays small, and connects all the same."""

from __future__ import annotations

from test_slices import SNAPSHOT, begun, row

from tistream_sorter.watermark.slices import SliceMap
from tistream_sorter.watermark.watermark_rows import merge_rows, to_table


def test_an_hour_behind_a_missing_file_is_one_waiting_row() -> None:
    arrivals = begun()
    for number in range(500):
        assert arrivals.file(row((b"", b""), 1, 1, (16 + number, 16 + number), 300 + number), store=2) == 100
    (waiting,) = arrivals.slices.waiting
    assert (waiting.first_index, waiting.log_index, waiting.resolved_ts) == (16, 515, 799)
    assert arrivals.slices.waits_for(waiting) == "region 1 log index 11..15"
    assert arrivals.file(row((b"", b""), 1, 1, (11, 15), 200), store=1) == 799
    assert arrivals.slices.waiting == []


def test_a_second_gap_behind_the_first_stays_a_gap() -> None:
    arrivals = begun()
    arrivals.file(row((b"", b""), 1, 1, (21, 25), 400))
    arrivals.file(row((b"", b""), 1, 1, (13, 18), 300))
    assert len(arrivals.slices.waiting) == 2
    assert arrivals.file(row((b"", b""), 1, 1, (11, 12), 200)) == 300
    assert arrivals.file(row((b"", b""), 1, 1, (19, 20), 350)) == 400


def test_a_later_row_that_promises_less_is_not_joined() -> None:
    """A new leader's resolver begins lower: joined, the higher promise would be told of indexes that it is not of."""
    arrivals = begun()
    arrivals.file(row((b"", b""), 1, 1, (13, 18), 300))
    arrivals.file(row((b"", b""), 1, 1, (19, 20), 250))
    assert [w.log_index for w in arrivals.slices.waiting] == [18, 20]


def test_a_row_behind_a_scan_is_joined_to_it_but_no_scan_to_another_row() -> None:
    arrivals = begun()
    arrivals.file(row((b"", b""), 1, 1, (31, 30), 300, base_ts=200))
    arrivals.file(row((b"", b""), 1, 1, (31, 33), 310))
    arrivals.file(row((b"", b""), 1, 1, (34, 33), 320, base_ts=305))
    assert [(w.first_index, w.log_index, w.base_ts) for w in arrivals.slices.waiting] == [(31, 33, 200), (34, 33, 305)]
    assert arrivals.file(row((b"", b""), 1, 1, (11, 10), 210)) == 320


def test_joined_rows_are_restated_by_a_manifest() -> None:
    arrivals = begun()
    arrivals.file(row((b"m", b""), 2, 2, (5, 8), 300, after=[(1, 12)]))
    arrivals.file(row((b"m", b""), 2, 2, (9, 9), 310))
    again = SliceMap.from_tables(arrivals.slices.span, *arrivals.slices.to_tables())
    assert again.waiting == arrivals.slices.waiting == merge_rows(arrivals.slices.waiting)
    assert to_table(again.waiting).num_rows == 1
    assert again.watermark() > SNAPSHOT
