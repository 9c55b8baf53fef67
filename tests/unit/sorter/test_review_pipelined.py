"""Pipelined transactions whose flushes, outcome and scan arrive in any order; repeats that meet in one tick."""

from __future__ import annotations

from support.kernel_ticks import Ticks, entry, record_key, rows_of, scan, states
from tistream_sorter.match.contracts import COMMIT, COMMITTED, PREWRITE, ROLLBACK

COVERED = states((-1, 1, 10, 100, -1, -1, -1, -1), (0, 1, 15, 200, 1, 15, 200, -1))


def flush(generation: int, value: bytes, log_index: int) -> dict[str, object]:
    return entry(PREWRITE, b"a", 5, generation=generation, value=value, log_index=log_index)


def test_a_higher_generation_that_comes_after_the_commit_wins() -> None:
    """The old leader's file with the first flush and the new leader's with the commit come before the second flush."""
    world = Ticks()
    world.tick([flush(1, b"one", 3), entry(COMMIT, b"a", 5, 20, log_index=9)], high=10)
    world.tick([], high=11)
    world.tick([flush(2, b"two", 6)], high=12)
    assert [value for *_, value in rows_of(world.tick([], high=20))] == [b"two"]
    assert world.waiting() == []


def test_a_scans_whole_change_wins_over_a_lower_generation() -> None:
    """The second flush was lost unpushed: only the scan has its value."""
    world = Ticks()
    world.tick([flush(1, b"one", 3), entry(COMMIT, b"a", 5, 20, log_index=9)], high=10)
    world.tick([entry(COMMITTED, b"a", 5, 20, value=b"two", log_index=9)], high=11)
    assert [value for *_, value in rows_of(world.tick([], high=20))] == [b"two"]
    assert world.waiting() == []


def test_a_late_generation_of_a_rolled_back_transaction_does_not_wait_for_ever() -> None:
    world = Ticks()
    world.tick([flush(1, b"one", 3), entry(ROLLBACK, b"a", 5, log_index=9)], high=10)
    world.tick([flush(2, b"two", 6)], high=11)
    assert [kind for kind, _ in world.waiting()] == [ROLLBACK]
    ended = states((-1, 1, 15, 200, -1, -1, -1, -1), (0, 1, 16, 201, 1, 16, 201, -1))
    world.tick([], high=12, history=ended)
    assert world.waiting() == []


def test_a_new_lock_and_its_repeat_in_one_tick_is_no_repeat_of_something_settled() -> None:
    for copies in ((0, 1), (1, 0)):
        world = Ticks()
        world.tick([entry(PREWRITE, b"a", 5, log_index=12, seq=seq) for seq in copies], high=200, history=COVERED)
        assert world.waiting() == [(PREWRITE, 5)]


def test_a_late_scan_does_not_bring_back_a_pipelined_lock_that_was_settled() -> None:
    """Two leaders scanned; the newer scan and the commit came first. Nothing would ever end the lock."""
    world = Ticks()
    known = states((-1, 1, 18, 100, -1, -1, -1, -1))
    world.tick([flush(1, b"one", 16)], high=100, history=known, scans=scan(0, 1, 16))
    assert world.waiting() == []


def test_a_scan_keeps_a_pipelined_lock_that_is_pending() -> None:
    world = Ticks()
    world.tick([flush(1, b"one", 12)], high=100, history=COVERED)
    known = states((-1, 1, 18, 100, -1, -1, -1, -1))
    world.tick([flush(1, b"one", 16)], high=100, history=known, scans=scan(0, 1, 16))
    assert world.waiting() == [(PREWRITE, 5)]


def test_a_scan_in_the_same_tick_as_the_lock_does_not_settle_it() -> None:
    """The lock comes at an open place; a later file of the same tick covers it and a scan repeats it."""
    world = Ticks()
    known = states(
        (-1, 1, 10, 100, -1, -1, -1, -1),
        (0, 1, 15, 100, 1, 15, 100, -1),
        (1, 1, 15, 100, 1, 15, 100, 15),
    )
    again = {**flush(1, b"one", 15), "seq": 1}
    world.tick([flush(1, b"one", 12), again], high=4, history=known, scans=scan(1, 1, 15))
    assert world.waiting() == [(PREWRITE, 5)]
    later = states((-1, 1, 15, 100, -1, -1, -1, -1))
    out = world.tick([entry(COMMIT, b"a", 5, 120)], high=150, history=later)
    assert rows_of(out) == [(record_key(b"a"), 5, 120, b"one")]


def test_a_repeat_of_what_was_settled_stays_out_however_often_it_is_said() -> None:
    world = Ticks()
    known = states((-1, 1, 15, 100, -1, -1, -1, -1))
    copies = [flush(1, b"one", 12), {**flush(1, b"one", 14), "seq": 1}]
    world.tick(copies, high=150, history=known, scans=scan(1, 1, 14))
    assert world.waiting() == []
