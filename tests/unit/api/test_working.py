"""Of many pulls that could all work at once few do, and another tenant's are among the next."""
# Attack: long pulls of one tenant beside those of another

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest
from starlette.requests import ClientDisconnect

from support.waiting import PATIENCE_S, eventually
from tistream.clock import ManualClock
from tistream_api.pull.decode_slots import BESIDE_MS, WORK_BYTES, DecodeSlots, slots_for


class Worker:
    """A pull of so many pieces, each of which takes until it is told."""

    def __init__(self, working: DecodeSlots, who: str, pieces: int, began: list[str]) -> None:
        self._who, self._pieces, self._began = who, pieces, began
        self.begun = False
        self.go = threading.Semaphore(0)
        self.given: list[int] = []
        self.thread = threading.Thread(target=lambda: self.given.extend(working.each(who, self._made())), daemon=True)
        self.thread.start()

    def _made(self) -> Iterator[int]:
        for number in range(self._pieces):
            self.begun = True
            self._began.append(self._who)
            assert self.go.acquire(timeout=PATIENCE_S)
            yield number


def released(workers: list[Worker]) -> None:
    for one in workers:
        one.go.release()


def ended(workers: list[Worker]) -> None:
    released(workers)
    for one in workers:
        one.thread.join(PATIENCE_S)
        assert not one.thread.is_alive()


def test_one_tenant_leaves_room_and_waits_behind_no_other() -> None:
    working, began = DecodeSlots(4, ManualClock()), list[str]()
    many = [Worker(working, "many", 1, began) for _ in range(20)]
    eventually(lambda: began == ["many"] * 3, pause_s=0)
    few = Worker(working, "few", 2, began)
    eventually(lambda: began == ["many"] * 3 + ["few"], pause_s=0)
    for one in many:
        one.go.release()
    few.go.release(2)
    for one in (*many, few):
        one.thread.join(PATIENCE_S)
        assert not one.thread.is_alive()
    assert few.given == [0, 1]
    assert [one.given for one in many] == [[0]] * 20
    assert began.count("many") == 20


def test_who_has_the_fewest_at_work_is_next_however_many_have_waited_longer() -> None:
    working, began = DecodeSlots(16, ManualClock()), list[str]()
    first = [Worker(working, who, 1, began) for who in "abcdefgh" * 2]
    eventually(lambda: sorted(began) == sorted("abcdefgh" * 2), pause_s=0)
    waiting = [Worker(working, "a", 1, began) for _ in range(5)]
    eventually(lambda: len(working._waiting.get("a", ())) == 5, pause_s=0)
    few = Worker(working, "few", 1, began)
    eventually(lambda: "few" in working._waiting, pause_s=0)
    first[0].go.release()  # of "a" one is at work, and two might be; of "few" none
    eventually(lambda: began[16:] == ["few"], pause_s=0)
    ended([*first, *waiting, few])


def test_beside_others_one_works_at_less_until_they_are_gone() -> None:
    clock = ManualClock()
    working, began = DecodeSlots(8, clock), list[str]()
    many = [Worker(working, "many", 1, began) for _ in range(20)]
    eventually(lambda: len(began) == 6, pause_s=0)
    assert list(working.each("few", iter([1]))) == [1], "there is room"
    eventually(lambda: len(working._waiting["many"]) == 14, pause_s=0)
    released([one for one in many if one.begun])
    eventually(lambda: len(began) == 8, pause_s=0)
    assert working._working["many"] == 2, "the other works at nothing now, but did a moment ago"
    clock.advance(BESIDE_MS)
    released([one for one in many if one.begun and not one.given])
    eventually(lambda: len(began) == 14, pause_s=0)
    assert working._working["many"] == 6
    ended(many)


def test_what_fails_or_is_dropped_leaves_its_room() -> None:
    working = DecodeSlots(1, ManualClock())

    def failing() -> Iterator[int]:
        yield 1
        raise ValueError("broken")

    found = working.each("a", failing())
    assert next(found) == 1
    with pytest.raises(ValueError, match="broken"):
        next(found)
    dropped = working.each("a", iter(range(9)))
    assert next(dropped) == 0
    assert list(working.each("b", iter(range(3)))) == [0, 1, 2], "who gives out a piece works at nothing"
    dropped.close()
    assert list(working.each("a", iter(()))) == []


def test_who_has_gone_stands_in_line_no_longer() -> None:
    """Though those before it go on for as long as they like."""
    working, began, raised = DecodeSlots(1, ManualClock()), list[str](), list[BaseException]()
    first = Worker(working, "a", 1, began)
    eventually(lambda: began == ["a"], pause_s=0)
    left = threading.Event()

    def alive() -> None:
        if left.is_set():
            raise ClientDisconnect

    def pull() -> None:
        try:
            list(working.each("b", iter([1]), alive))
        except ClientDisconnect as error:
            raised.append(error)

    thread = threading.Thread(target=pull, daemon=True)
    thread.start()
    eventually(lambda: "b" in working._waiting, pause_s=0)
    left.set()
    thread.join(PATIENCE_S)
    assert raised, "it waits for its turn still"
    assert "b" not in working._waiting
    ended([first])
    assert list(working.each("c", iter([1]))) == [1], "the room is there as before"


@pytest.mark.parametrize(
    ("cores", "memory", "at_once"),
    [
        (1, 4 << 30, 8),
        (2, 64 << 30, 8),
        (16, 64 << 30, 32),
        (64, 4 << 30, 8),  # a container sees all processors of its machine
        (64, 1 << 30, 4),
    ],
)
def test_who_waits_for_the_object_store_leaves_room_and_what_work_takes_is_a_quarter_of_the_memory(
    cores: int, memory: int, at_once: int
) -> None:
    assert slots_for(cores, memory) == at_once
    assert at_once <= 4 or at_once * WORK_BYTES <= memory // 4
