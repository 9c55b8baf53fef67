"""Pulls hold no more than one budget of bytes together, and no tenant keeps another from its part."""

from __future__ import annotations

import threading

import pytest
from starlette.requests import ClientDisconnect

from support.waiting import PATIENCE_S, eventually
from tistream.clock import ManualClock, SystemClock
from tistream.errors import TooManyRequests
from tistream_api.admission.memory_budget import KEPT_BYTES, SHARE_BYTES, MemoryBudget, MemoryShare


def nobody_goes() -> None:
    """The client is there."""


def room(memory: MemoryBudget, who: str) -> MemoryShare:
    return MemoryShare(memory, who, nobody_goes)


def waiting(memory: MemoryBudget, who: str, began: list[str]) -> threading.Thread:
    def take() -> None:
        room(memory, who).take()
        began.append(who)

    thread = threading.Thread(target=take, daemon=True)
    thread.start()
    return thread


def test_a_flood_of_one_tenant_leaves_half_to_others() -> None:
    memory = MemoryBudget(8 * SHARE_BYTES, SystemClock(), wait_ms=1)
    many = [room(memory, "many") for _ in range(5)]
    for one in many[:4]:
        one.take()
    with pytest.raises(TooManyRequests) as raised:
        many[4].take()
    assert (raised.value.http_status, raised.value.retry_after_s) == (429, 2.0)
    others = [room(memory, f"other {number}") for number in range(5)]
    for other in others[:4]:
        other.take()
    with pytest.raises(TooManyRequests):
        others[4].take()
    assert memory.held == memory.most == 8 * SHARE_BYTES
    others[0].give()
    others[4].take()
    assert memory.most == 8 * SHARE_BYTES


def test_who_waits_is_next_in_turn_by_tenant() -> None:
    memory, began = MemoryBudget(2 * SHARE_BYTES, ManualClock()), list[str]()
    many, other = room(memory, "many"), room(memory, "other")
    many.take()
    other.take()
    threads = [waiting(memory, "many", began)]
    eventually(lambda: len(memory._waiting) == 1, pause_s=0)
    threads.append(waiting(memory, "few", began))
    eventually(lambda: len(memory._waiting) == 2, pause_s=0)
    other.give()
    eventually(lambda: began == ["few"], pause_s=0)
    many.give()
    eventually(lambda: began == ["few", "many"], pause_s=0)
    for thread in threads:
        thread.join(PATIENCE_S)
        assert not thread.is_alive()


def test_a_little_memory_is_enough_for_one() -> None:
    memory = MemoryBudget(0, SystemClock(), wait_ms=1)
    one = room(memory, "a")
    one.take()
    one.take()
    assert memory.held == SHARE_BYTES
    with pytest.raises(TooManyRequests):
        room(memory, "b").take()
    one.close()
    one.close()
    room(memory, "b").take()


def test_who_has_gone_waits_no_longer_and_holds_nothing() -> None:
    memory = MemoryBudget(0, ManualClock())
    held = room(memory, "a")
    held.take()

    def gone() -> None:
        raise ClientDisconnect

    with pytest.raises(ClientDisconnect):
        MemoryShare(memory, "b", gone).take()
    held.give()
    assert memory.held == 0
    assert not memory._waiting


def test_an_answer_that_was_dropped_while_it_worked_gives_back_what_it_takes_later() -> None:
    memory = MemoryBudget(0, SystemClock())
    one = room(memory, "a")
    one.close()
    one.take()
    assert memory.held == 0


def test_what_was_given_back_is_told_once() -> None:
    memory = MemoryBudget(2 * KEPT_BYTES, SystemClock())
    rooms = [room(memory, str(number)) for number in range(4)]
    for one in rooms:
        one.take()
    assert not memory.freed_much()
    for one in rooms[1:]:
        one.give()
    assert not memory.freed_much()
    rooms[0].give()
    assert memory.freed_much()
    assert not memory.freed_much()
