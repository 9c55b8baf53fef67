"""The very last entry of a log counts, and what waits behind what waits goes on at once."""

from __future__ import annotations

from test_slices import begun, row

from support.kernel_ticks import Ticks, entry, record_key, rows_of
from tistream_sorter.match.contracts import COMMIT, COMMITTED, PREWRITE


def test_a_merge_waits_for_the_very_last_entry_of_its_source() -> None:
    """The source's entry 9 is a commit: without it the merged region's watermark would pass it."""
    arrivals = begun()
    left, right = row((b"", b"m"), 1, 2, (13, 15), 250), row((b"m", b""), 2, 2, (5, 8), 250, after=[(1, 12)])
    assert arrivals.file(row((b"", b""), 1, 1, (11, 12), 200), left, right) == 250
    assert arrivals.file(row((b"", b""), 1, 4, (16, 18), 400, after=[(2, 9)]), store=2) == 250
    (waiting,) = arrivals.slices.waiting
    assert arrivals.slices.waits_for(waiting) == "region 2 log index 9..9"
    assert arrivals.file(row((b"m", b""), 2, 2, (9, 9), 300)) == 400


def test_what_waits_behind_a_waiting_row_connects_with_it() -> None:
    """A region that was split off from one split off: both wait for the same lost file, the grandchild's row first."""
    arrivals = begun()
    arrivals.file(row((b"m", b"z"), 2, 2, (5, 8), 300, after=[(1, 12)]), store=2)
    arrivals.file(row((b"m", b"p"), 3, 3, (5, 6), 400, after=[(2, 8)]), store=3)
    assert len(arrivals.slices.waiting) == 2
    arrivals.file(row((b"", b""), 1, 1, (11, 12), 200))
    assert arrivals.slices.waiting == []
    found = [(state.start, state.region_id, state.resolved_ts) for state in arrivals.slices.states()]
    assert found == [(b"", 1, 200), (b"m", 3, 400), (b"p", 2, 300), (b"z", 1, 200)]


def test_a_whole_change_closes_the_prewrite_that_is_pending() -> None:
    """A scan brings the whole change of a transaction whose prewrite has come and whose commit was lost: nothing is
    left to wait for."""
    world = Ticks()
    world.tick([entry(PREWRITE, b"a", 5)], high=10)
    assert world.waiting() == [(PREWRITE, 5)]
    out = world.tick([entry(COMMITTED, b"a", 5, 20)], high=20)
    assert [commit_ts for _, _, commit_ts, _ in rows_of(out)] == [20]
    assert world.waiting() == []


def test_rows_of_one_transaction_stand_in_key_order_however_they_came() -> None:
    """Over two files, both halves of each, the keys from the last to the first."""
    world = Ticks()
    names = [bytes([number]) for number in range(40, 0, -1)]
    world.tick([entry(PREWRITE, name, 5) for name in names[:20]], high=10)
    late = [entry(PREWRITE, name, 5) for name in names[20:]]
    out = world.tick([*late, *(entry(COMMIT, name, 5, 20, log_index=2) for name in names)], high=20)
    assert [key for key, *_ in rows_of(out)] == sorted(record_key(name) for name in names)
