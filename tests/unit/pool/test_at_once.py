"""Calls that reads make at the same time: each caller gets on alone if the threads that all share are taken."""

from __future__ import annotations

import threading

import pytest

from support.waiting import eventually
from tistream.concurrency import start_thread
from tistream.errors import CorruptObject
from tistream.pool import at_once
from tistream.pool.at_once import LOT, AtOnce

PATIENCE_S = 10  # of a call that hangs; only a broken product lets it pass


def test_a_read_that_hangs_holds_up_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(at_once, "THREADS", 1)
    shared, other_done = AtOnce("shared"), threading.Event()
    begun: list[str] = []
    in_time: list[bool] = []

    def hang(_: int) -> bool:
        begun.append(threading.current_thread().name)
        return other_done.wait(PATIENCE_S)

    hung = start_thread("hung", lambda: in_time.extend(shared.map(hang, range(LOT))))
    eventually(lambda: any(name.startswith("shared") for name in begun))
    assert list(shared.map(str, range(2 * LOT))) == [str(number) for number in range(2 * LOT)]
    other_done.set()
    eventually(lambda: not hung.is_alive())
    assert in_time == [True] * LOT, "the other read has waited for the one that hangs"
    shared.close()


@pytest.mark.parametrize("closed", [False, True])
def test_each_call_is_made_once_and_its_error_is_raised_in_its_place(*, closed: bool) -> None:
    shared = AtOnce("shared")
    if closed:
        shared.close()
    made: list[int] = []

    def call(number: int) -> int:
        made.append(number)
        if number == 3:
            raise CorruptObject("an object", "damaged")
        return number

    results = shared.map(call, range(LOT))
    assert [next(results) for _ in range(3)] == [0, 1, 2]
    with pytest.raises(CorruptObject, match="damaged"):
        next(results)
    assert list(shared.map(call, range(10, 10 + 2 * LOT))) == list(range(10, 10 + 2 * LOT))
    assert len(made) == len(set(made))
    shared.close()


def test_calls_that_wait_for_a_thread_when_it_ends_are_made_by_their_caller(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(at_once, "THREADS", 1)
    shared, closed = AtOnce("shared"), threading.Event()
    begun: list[str] = []
    found: list[bool] = []

    def wait(_: int) -> bool:
        begun.append(threading.current_thread().name)
        return closed.wait(PATIENCE_S)

    reading = start_thread("reading", lambda: found.extend(shared.map(wait, range(LOT))))
    eventually(lambda: len(begun) == 2)
    shared.close()
    closed.set()
    eventually(lambda: not reading.is_alive())
    assert found == [True] * LOT
    assert sum(name.startswith("shared") for name in begun) == 1
    eventually(lambda: not any(one.name.startswith("shared") for one in threading.enumerate()))
