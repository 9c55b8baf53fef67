"""Announced files: each reader gets all of them once, or is told that it lost some."""

from __future__ import annotations

import threading

from hypothesis import given
from hypothesis import strategies as st

from support.waiting import PATIENCE_S
from tistream.clock import SystemClock
from tistream.wire.meta import Announcement
from tistream_meta.owner.announcements import AnnouncementBoard, AnnouncementRing


def announced(ts: int) -> Announcement:
    return Announcement(cluster_id="7", tenant_id="acme", store_id=1, ts=ts)


@given(st.lists(st.integers(0, 3), max_size=30), st.integers(1, 8))
def test_a_reader_gets_everything_once_or_learns_that_it_lost_some(bursts, capacity):
    ring = AnnouncementRing(3, capacity)
    at, seen, told = ring.last, [], 0
    for burst in bursts:
        for _ in range(burst):
            told += 1
            ring.add(announced(told))
        answer = ring.after(at)
        at = answer.next_after
        stamps = [announcement.ts for announcement in answer.announcements]
        assert answer.lost == (burst > capacity)
        assert stamps == list(range(told - min(burst, capacity) + 1, told + 1))
        seen += stamps
    assert len(seen) == len(set(seen))


def test_a_sequence_of_an_earlier_owner_is_none_of_ours():
    before, now = AnnouncementRing(1, 10), AnnouncementRing(2, 10)
    before.add(announced(1))
    now.add(announced(2))
    answer = now.after(before.last)
    assert answer.lost
    assert [announcement.ts for announcement in answer.announcements] == [2]
    assert not now.after(answer.next_after).lost
    assert now.after(0).lost


def test_a_waiting_reader_is_woken():
    board = AnnouncementBoard(1, 10, SystemClock())
    at = board.after(0, 0).next_after
    got = []
    reader = threading.Thread(target=lambda: got.append(board.after(at, int(PATIENCE_S * 1000))))
    reader.start()
    board.add(announced(5))
    reader.join(PATIENCE_S)
    assert [announcement.ts for announcement in got[0].announcements] == [5]
    assert board.after(got[0].next_after, 10).announcements == []
