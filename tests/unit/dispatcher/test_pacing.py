"""When the dispatcher looks, tries again and sends again."""

from __future__ import annotations

from tistream_dispatcher.damage import PAUSE_MAX_MS, Suspects
from tistream_dispatcher.pacing import Pace, PollSettings
from tistream_dispatcher.sorter_link import PAUSE_MAX_MS as SEND_PAUSE_MAX_MS
from tistream_dispatcher.sorter_link import SorterLink


def test_polls_become_rare_while_they_find_nothing_and_frequent_once_one_does():
    pace, now, pauses = Pace(PollSettings(250, 2000, 500)), 0, []
    for found in (False, False, False, False, True, False):
        assert pace.poll_due(now)
        pace.polled(now, found=found)
        before = now
        now = next(at for at in range(before, before + 3000) if pace.poll_due(at))
        pauses.append(now - before)
    assert pauses == [500, 1000, 2000, 2000, 250, 500]


def test_stores_are_looked_for_at_their_own_pace_or_at_once():
    pace = Pace(PollSettings(250, 2000, 500))
    assert pace.discovery_due(1000)
    assert not pace.discovery_due(1499)
    assert pace.discovery_due(1500)
    pace.polled(1500, found=False)
    pace.hurry()
    assert pace.discovery_due(1501)
    assert pace.poll_due(1501)


def test_an_unreadable_file_is_tried_again_for_ever_ever_more_rarely():
    suspects, now, pauses = Suspects(), 0, []
    for _ in range(14):
        assert suspects.failed(7, "v1", "bad", now) == now
        due = suspects.next_ms()
        assert due is not None
        assert suspects.due(due - 1) == []
        assert suspects.due(due) == [7]
        pauses.append(due - now)
        now = due
    assert pauses[:5] == [500] * 4 + [1000]
    assert pauses == sorted(pauses)
    assert pauses[-1] == PAUSE_MAX_MS
    assert suspects.failed(7, "v2", "bad", now) == 0
    suspects.cleared(7)
    assert suspects.next_ms() is None
    assert 7 not in suspects


def test_a_sorter_that_fails_is_left_alone_for_a_while():
    link = SorterLink("http://s", (1,))
    waits = []
    for _ in range(7):
        link.failed("no answer", 1000, busy=False)
        assert link.sync_ms == link.send_ms
        waits.append(link.send_ms - 1000)
    assert waits[:3] == [100, 200, 400]
    assert waits[-1] == SEND_PAUSE_MAX_MS
    link.worked()
    link.failed("full", 1000, busy=True)
    assert (link.send_ms, link.busy) == (1100, True)


def test_a_store_that_is_not_taken_waits_alone():
    link = SorterLink("http://s", (1,))
    link.stall(3, 0)
    assert link.stalled_now(99) == {3}
    assert link.stalled_now(100) == set()
    link.stall(3, 100)
    assert link.stalled_now(299) == {3}
    link.went_on(3)
    assert link.stalled_now(100) == set()
