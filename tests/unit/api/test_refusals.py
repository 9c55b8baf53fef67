"""Who is refused again and again waits for it; who is not, never does."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.types import Message, Receive, Scope, Send

from tistream.clock import ManualClock
from tistream_api.callers import Caller
from tistream_api.rates import BURST_S
from tistream_api.refusals import REMEMBERED, WAIT_MAX_S, Refusals, SlowRefusals, network_of


def test_a_few_come_at_once_and_then_one_after_the_other() -> None:
    refusals = Refusals(ManualClock(), 2)
    told = [round(refusals.wait_s("a"), 3) for _ in range(8)]
    assert told == [0, 0, 0, 0, 0.5, 1.0, 1.5, 2.0]
    assert refusals.wait_s("b") == 0, "another's are its own"


def test_nobody_waits_longer_than_the_most_and_nobody_owes_more() -> None:
    clock = ManualClock()
    refusals = Refusals(clock, 2)
    waits = [refusals.wait_s("a") for _ in range(1_000)]
    assert max(waits) == WAIT_MAX_S
    clock.advance(round(1_000 * (WAIT_MAX_S + BURST_S)))
    assert refusals.wait_s("a") == 0, "after a flood of any length it is as before"


def test_where_it_is_turned_off_nobody_waits() -> None:
    refusals = Refusals(ManualClock(), 0)
    assert {refusals.wait_s("a") for _ in range(1_000)} == {0}


def test_as_many_are_remembered_as_there_is_room_for() -> None:
    refusals = Refusals(ManualClock(), 1)
    for number in range(3 * REMEMBERED):
        refusals.wait_s(str(number))
        refusals.wait_s("always")
    assert len(refusals._of) == REMEMBERED
    assert refusals.wait_s("always") == WAIT_MAX_S, "who goes on is not forgotten"


@given(
    rate=st.integers(1, 100),
    conversations=st.integers(1, 64),
    thinks_ms=st.integers(0, 50),
)
def test_who_asks_one_question_after_the_other_is_refused_no_faster_than_the_rate(
    rate: int, conversations: int, thinks_ms: int
) -> None:
    clock, seconds = ManualClock(), 20
    refusals = Refusals(clock, rate)
    begin_ms = clock.monotonic_ms()
    next_ms = dict.fromkeys(range(conversations), begin_ms)
    answered = 0
    while (at_ms := min(next_ms.values())) < begin_ms + 1000 * seconds:
        clock.advance(max(0, at_ms - clock.monotonic_ms()))
        one = min(next_ms, key=next_ms.__getitem__)
        wait_s = refusals.wait_s("a")
        next_ms[one] = at_ms + round(1000 * wait_s) + max(1, thinks_ms)
        answered += 1
    most = max(rate, conversations / WAIT_MAX_S)
    assert answered <= most * (seconds + BURST_S + WAIT_MAX_S) + conversations


def answers(statuses: Iterator[int], scope: dict[str, Any], *, caller: str | None, refusals: Refusals) -> list[float]:
    """For how long each answer waited."""
    slept: list[float] = []
    sent: list[Message] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        if caller is not None:
            scope["state"]["caller"] = Caller(caller, ())
        await send({"type": "http.response.start", "status": next(statuses), "headers": []})
        await send({"type": "http.response.body", "body": b"x"})

    async def receive() -> Message:
        raise AssertionError("nobody reads")

    async def send(message: Message) -> None:
        sent.append(message)

    async def sleep(seconds: float) -> None:
        assert not sent, "it waits before the answer begins"
        slept.append(seconds)

    before = len(slept)
    waited = []
    for _ in range(5):
        sent.clear()
        asyncio.run(SlowRefusals(app, refusals, sleep)({"type": "http", "state": {}, **scope}, receive, send))
        assert [message["type"] for message in sent] == ["http.response.start", "http.response.body"]
        waited.append(slept[-1] if len(slept) > before else 0.0)
        before = len(slept)
    return waited


def always(status: int) -> Iterator[int]:
    while True:
        yield status


REFUSED = [0.0, 0.0, 1.0, 2.0, 3.0]
AT_ONCE = [0.0] * 5


@pytest.mark.parametrize("status", [400, 401, 403, 404, 410, 413, 422, 429])
def test_refusals_wait(status: int) -> None:
    refusals = Refusals(ManualClock(), 1)
    scope = {"client": ("203.0.113.7", 1)}
    assert answers(always(status), scope, caller=None, refusals=refusals) == REFUSED
    assert answers(always(status), {"client": ("203.0.113.8", 1)}, caller=None, refusals=refusals) == REFUSED
    again = answers(always(status), {"client": ("203.0.113.7", 9)}, caller=None, refusals=refusals)
    assert min(again) > 3, "another connection is not another sender"


@pytest.mark.parametrize("status", [200, 202, 304, 500, 503])
def test_other_answers_do_not(status: int) -> None:
    refusals = Refusals(ManualClock(), 1)
    scope = {"client": ("203.0.113.7", 1)}
    assert answers(always(429), scope, caller="token 1", refusals=refusals) == REFUSED
    assert answers(always(status), scope, caller="token 1", refusals=refusals) == AT_ONCE
    assert answers(always(status), scope, caller=None, refusals=refusals) == AT_ONCE


def test_whose_token_is_valid_does_not_wait_for_who_shares_its_address() -> None:
    refusals = Refusals(ManualClock(), 1)
    scope = {"client": ("203.0.113.7", 1)}
    assert answers(always(401), scope, caller=None, refusals=refusals) == REFUSED
    assert answers(always(404), scope, caller="token 1", refusals=refusals) == REFUSED
    assert answers(always(404), scope, caller="token 2", refusals=refusals) == REFUSED


def test_what_has_no_address_is_one_sender() -> None:
    """A socket of this machine."""
    assert answers(always(401), {"client": None}, caller=None, refusals=Refusals(ManualClock(), 1)) == REFUSED


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("192.0.2.1", "192.0.2.2", False),
        ("2001:db8:1:2::1", "2001:db8:1:2:ffff::9", True),
        ("2001:db8:1:2::1", "2001:db8:1:3::1", False),
        ("fe80::1%eth0", "fe80::2%eth1", True),
        ("::ffff:192.0.2.1", "::ffff:192.0.2.2", False),
        ("unix", "other", False),
    ],
)
def test_whose_an_address_is(one: str, other: str, same: bool) -> None:
    assert (network_of(one) == network_of(other)) is same
