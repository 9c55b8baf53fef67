"""When the dispatcher looks, tries again and sends again."""
# Attack: a tenant whose stores take long to LIST

from __future__ import annotations

from itertools import pairwise

from tistream_dispatcher.delivery.sorter_link import PAUSE_MAX_MS as SEND_PAUSE_MAX_MS
from tistream_dispatcher.delivery.sorter_link import SorterLink
from tistream_dispatcher.stores.pacing import REST_MAX_MS, ListSchedule, PollSettings
from tistream_dispatcher.stores.suspect_files import PAUSE_MAX_MS, SuspectFiles

SETTINGS = PollSettings(250, 2000, 500, idle_ms=60_000, announced_idle_ms=600_000)
HOUR_MS = 3_600_000


def polls(pace: ListSchedule, begin_ms: int, end_ms: int) -> list[int]:
    """When the files are LISTed meanwhile, in vain."""
    out, now = [], begin_ms
    while (now := max(now, pace.next_ms())) < end_ms:
        if pace.poll_due(now):
            pace.polled(now, found=False)
            out.append(now)
        pace.take_discovery(now)
    return out


def test_a_tenant_that_is_silent_is_looked_at_for_a_share_of_its_silence() -> None:
    pace = ListSchedule(SETTINGS, 0)
    seen = polls(pace, 0, HOUR_MS)
    for before, after in pairwise(seen):
        assert after - before <= max(2_000, before // 8)
        assert after - before <= 60_000
    assert len(seen) < 120
    assert len(polls(pace, HOUR_MS, 2 * HOUR_MS)) <= 61
    pace.polled(2 * HOUR_MS, found=True)
    assert pace.next_ms() <= 2 * HOUR_MS + 250


def test_whose_lists_take_long_leaves_most_of_the_time_to_others() -> None:
    pace, now, listing = ListSchedule(SETTINGS, 0), 0, 0
    while now < HOUR_MS:
        pace.polled(now, found=True, took_ms=6_000)
        listing += 6_000
        pace.list_now()  # whatever is said to be there
        pace.announced_early(now)
        pace.set_expecting(now, expecting=True)
        assert pace.take_discovery(now), "other stores are looked for"
        while not pace.poll_due(now):
            now += 100
    assert 0.3 < listing / now <= 1 / 3


def test_lists_that_failed_or_took_very_long_are_tried_again_soon() -> None:
    for took_ms, failed, most_ms in ((600_000, True, 2_000), (600_000, False, REST_MAX_MS)):
        pace = ListSchedule(SETTINGS, 0)
        pace.polled(0, found=False, failed=failed, took_ms=took_ms)
        assert pace.poll_due(took_ms + most_ms)


def test_where_files_are_announced_an_idle_tenant_costs_next_to_nothing() -> None:
    pace = ListSchedule(SETTINGS, 0)
    pace.announced(1_000)
    polls(pace, 1_000, 2 * HOUR_MS)
    assert len(polls(pace, 2 * HOUR_MS, 3 * HOUR_MS)) <= 7
    pace.announced(3 * HOUR_MS)  # files come again: one that is not announced is found as soon as ever
    assert pace.next_ms() <= 3 * HOUR_MS + 2_000
    polls(pace, 3 * HOUR_MS, 5 * HOUR_MS)
    pace.announcements_lost()
    assert pace.poll_due(5 * HOUR_MS)
    assert len(polls(pace, 5 * HOUR_MS, 6 * HOUR_MS)) >= 59


def test_a_missing_file_is_looked_for_however_long_it_is_missing() -> None:
    pace = ListSchedule(SETTINGS, 0)
    polls(pace, 0, HOUR_MS)
    pace.set_expecting(HOUR_MS, expecting=True)
    assert pace.next_ms() <= HOUR_MS + 2_000
    assert len(polls(pace, HOUR_MS, HOUR_MS + 60_000)) >= 29


def test_the_pause_does_not_grow_because_the_object_store_fails() -> None:
    pace = ListSchedule(SETTINGS, 0)
    polls(pace, 0, HOUR_MS)
    pace.polled(HOUR_MS, found=False, failed=True)
    assert pace.next_ms() <= HOUR_MS + 2_000


def test_polls_become_rare_while_they_find_nothing_and_frequent_once_one_does():
    pace, now, pauses = ListSchedule(SETTINGS, 0), 0, []
    for found in (False, False, False, False, True, False):
        assert pace.poll_due(now)
        pace.polled(now, found=found)
        before = now
        now = next(at for at in range(before, before + 3000) if pace.poll_due(at))
        pauses.append(now - before)
    assert pauses == [500, 1000, 2000, 2000, 250, 500]


def test_stores_are_looked_for_at_their_own_pace_or_at_once():
    pace = ListSchedule(SETTINGS, 1000)
    assert pace.take_discovery(1000)
    assert not pace.take_discovery(1499)
    assert pace.take_discovery(1500)
    pace.polled(1500, found=False)
    pace.list_now()
    assert pace.take_discovery(1501)
    assert pace.poll_due(1501)


def test_an_unreadable_file_is_tried_again_for_ever_ever_more_rarely():
    suspects, now, pauses = SuspectFiles(), 0, []
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
    link.succeeded()
    link.failed("full", 1000, busy=True)
    assert (link.send_ms, link.busy) == (1100, True)


def test_a_store_that_is_not_taken_waits_alone():
    link = SorterLink("http://s", (1,))
    link.stall(3, 0)
    assert link.stalled_now(99) == {3}
    assert link.stalled_now(100) == set()
    link.stall(3, 100)
    assert link.stalled_now(299) == {3}
    link.resumed(3)
    assert link.stalled_now(100) == set()
