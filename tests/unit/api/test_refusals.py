"""Who is refused again and again waits for it; who is not, never does."""
# Attack: endless rejections, by token, address and IPv6 network: delayed by at most 3 s; valid tokens at the same
#   address are not delayed

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.types import Message, Receive, Scope, Send

from tistream.clock import ManualClock
from tistream.concurrency import Event, new_event
from tistream_api.admission.delayed_rejections import BODY_BYTES_MAX, HEADER, DelayedRejections
from tistream_api.admission.reject_throttle import (
    REMEMBERED,
    WAIT_MAX_S,
    WAITING_EACH,
    WAITING_MAX,
    RejectionLimit,
    network_of,
)
from tistream_api.admission.token_bucket import BURST_S
from tistream_api.auth.callers import Caller


def test_a_few_come_at_once_and_then_one_after_the_other() -> None:
    refusals = RejectionLimit(ManualClock(), 2)
    told = [round(refusals.wait_s("a"), 3) for _ in range(8)]
    assert told == [0, 0, 0, 0, 0.5, 1.0, 1.5, 2.0]
    assert refusals.wait_s("b") == 0, "another's are its own"


def test_nobody_waits_longer_than_the_most_and_nobody_owes_more() -> None:
    clock = ManualClock()
    refusals = RejectionLimit(clock, 2)
    waits = [refusals.wait_s("a") for _ in range(1_000)]
    assert max(waits) == WAIT_MAX_S
    clock.advance(round(1_000 * (WAIT_MAX_S + BURST_S)))
    assert refusals.wait_s("a") == 0, "after a flood of any length it is as before"


def test_where_it_is_turned_off_nobody_waits() -> None:
    refusals = RejectionLimit(ManualClock(), 0)
    assert {refusals.wait_s("a") for _ in range(1_000)} == {0}


def test_as_many_are_remembered_as_there_is_room_for() -> None:
    refusals = RejectionLimit(ManualClock(), 1)
    for number in range(3 * REMEMBERED):
        refusals.wait_s(str(number))
    assert len(refusals._of) == REMEMBERED


def test_who_goes_on_is_not_forgotten_for_all_who_come_after() -> None:
    refusals = RejectionLimit(ManualClock(), 1)
    while refusals.wait_s("always") < WAIT_MAX_S:
        continue
    for number in range(REMEMBERED - 1):
        refusals.wait_s(str(number))
    refusals.wait_s("always")
    refusals.wait_s("one more")
    assert refusals.wait_s("always") == WAIT_MAX_S


def test_so_many_wait_and_no_more() -> None:
    refusals = RejectionLimit(ManualClock(), 1)
    assert sum(refusals.begin("a") for _ in range(2 * WAITING_EACH)) == WAITING_EACH
    assert sum(refusals.begin(str(number)) for number in range(WAITING_MAX)) == WAITING_MAX - WAITING_EACH
    refusals.end("a")
    assert refusals.begin("b")
    assert not refusals.begin("c")
    for number in range(WAITING_MAX - WAITING_EACH):
        refusals.end(str(number))
    refusals.end("b")
    for _ in range(WAITING_EACH - 1):
        refusals.end("a")
    assert refusals.waiting == 0
    assert not refusals._waiting_of, "nobody is remembered"


@given(
    rate=st.integers(1, 100),
    conversations=st.integers(1, 64),
    thinks_ms=st.integers(0, 50),
)
def test_who_asks_one_question_after_the_other_is_refused_no_faster_than_the_rate(
    rate: int, conversations: int, thinks_ms: int
) -> None:
    clock, seconds = ManualClock(), 20
    refusals = RejectionLimit(clock, rate)
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


@dataclass
class Asker:
    """Five requests, one after the other: for how long the answer to each waited, and what it was."""

    refusals: RejectionLimit
    caller: str | None = None
    address: str | None = "203.0.113.7"
    body: bytes = b""
    stopping: Event = field(default_factory=new_event)
    sent: list[Message] = field(default_factory=list)
    slept: float = 0.0

    def ask(self, status: int) -> list[float]:
        return [self._one(status) for _ in range(5)]

    def _one(self, status: int) -> float:
        self.sent.clear()
        self.slept = 0.0

        async def app(scope: Scope, receive: Receive, send: Send) -> None:
            await receive()
            if self.caller is not None:
                scope["state"]["caller"] = Caller(self.caller, ())
            await send({"type": "http.response.start", "status": status, "headers": []})
            await send({"type": "http.response.body", "body": b"x"})

        scope = {"type": "http", "state": {}, "client": None if self.address is None else (self.address, 1)}
        asyncio.run(DelayedRejections(app, self.refusals, self.stopping, self._sleep)(scope, self._receive, self._send))
        assert [message["type"] for message in self.sent] == ["http.response.start", "http.response.body"]
        assert self.refusals.waiting == 0
        told = dict(self.sent[0]["headers"]).get(HEADER.encode(), b"0")
        assert scope["state"].get("waited_ms", 0) == int(told) == round(1000 * self.slept)
        return round(self.slept, 6)

    @property
    def closed(self) -> bool:
        """Whether the last answer was the last on its connection."""
        return (b"connection", b"close") in self.sent[0]["headers"]

    async def _receive(self) -> Message:
        return {"type": "http.request", "body": self.body}

    async def _send(self, message: Message) -> None:
        self.sent.append(message)

    async def _sleep(self, seconds: float) -> None:
        assert not self.sent, "it waits before the answer begins"
        assert self.refusals.waiting == 1
        self.slept += seconds


REFUSED = [0.0, 0.0, 1.0, 2.0, 3.0]
AT_ONCE = [0.0] * 5


def rarely() -> RejectionLimit:
    return RejectionLimit(ManualClock(), 1)


@pytest.mark.parametrize("status", [400, 401, 403, 404, 410, 413, 422, 429])
def test_refusals_wait(status: int) -> None:
    refusals = rarely()
    assert Asker(refusals).ask(status) == REFUSED
    assert Asker(refusals, address="203.0.113.8").ask(status) == REFUSED
    assert min(Asker(refusals).ask(status)) == WAIT_MAX_S, "another connection is not another sender"


@pytest.mark.parametrize("status", [200, 202, 304, 500, 503])
def test_other_answers_do_not(status: int) -> None:
    asker = Asker(rarely(), "token 1")
    assert asker.ask(429) == REFUSED
    assert asker.ask(status) == AT_ONCE


def test_whose_token_is_valid_does_not_wait_for_who_shares_its_address() -> None:
    refusals = rarely()
    assert Asker(refusals).ask(401) == REFUSED
    assert Asker(refusals, "token 1").ask(404) == REFUSED
    assert Asker(refusals, "token 2").ask(404) == REFUSED


def test_what_has_no_address_is_one_sender() -> None:
    """A socket of this machine."""
    assert Asker(rarely(), address=None).ask(401) == REFUSED


def test_who_has_sent_much_does_not_hold_it_in_memory() -> None:
    asker = Asker(rarely(), body=b"x" * (BODY_BYTES_MAX + 1))
    assert asker.ask(413) == AT_ONCE
    assert asker.closed
    asker.body = b"x" * BODY_BYTES_MAX
    assert asker.ask(413)[-1] == WAIT_MAX_S
    assert not asker.closed


def test_when_there_is_no_room_it_is_told_at_once_on_a_connection_that_ends() -> None:
    refusals = rarely()
    asker = Asker(refusals)
    asker.ask(401)
    waiting = [who for who in ("address 203.0.113.7", "x", "y") for _ in range(WAITING_EACH) if refusals.begin(who)]
    assert len(waiting) == WAITING_MAX
    told: list[Message] = []

    async def refusing(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 401, "headers": []})

    async def tell(message: Message) -> None:
        told.append(message)

    scope = {"type": "http", "state": {}, "client": ("203.0.113.7", 1)}
    asyncio.run(DelayedRejections(refusing, refusals, new_event(), asker._sleep)(scope, asker._receive, tell))
    assert told[0]["headers"] == [(b"connection", b"close")]


def test_when_the_process_ends_all_are_told() -> None:
    asker = Asker(rarely())
    assert asker.ask(401) == REFUSED
    asker.stopping.set()
    assert asker.ask(401) == AT_ONCE


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("192.0.2.1", "192.0.2.2", False),
        pytest.param("2001:db8:1:2::1", "2001:db8:1:2:ffff::9", True, id="one-ipv6-network"),
        ("2001:db8:1:2::1", "2001:db8:1:3::1", False),
        ("fe80::1%eth0", "fe80::2%eth1", True),
        ("::ffff:192.0.2.1", "::ffff:192.0.2.2", False),
        ("unix", "other", False),
    ],
)
def test_whose_an_address_is(one: str, other: str, same: bool) -> None:
    assert (network_of(one) == network_of(other)) is same
