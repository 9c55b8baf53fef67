"""Whose request is answered when: a line each, and none holds what others need."""
# Attack: an endless queue of one tenant, and a tenant that uses all of its requests and pulls: others are answered

from __future__ import annotations

import asyncio
from collections.abc import Awaitable

import pytest

from support.waiting import PATIENCE_S
from tistream.errors import TooManyRequests
from tistream_api.admission.request_queue import RequestQueue, RequestSlot, new_request_queue

ACME, BETA = ("7", "acme"), ("7", "beta")


def run(body: Awaitable[None]) -> None:
    async def within() -> None:
        async with asyncio.timeout(PATIENCE_S):
            await body

    asyncio.run(within())


async def settle() -> None:
    """Whoever can go on has done so."""
    for _ in range(20):
        await asyncio.sleep(0)


def test_one_line_is_as_long_as_it_likes_and_the_other_goes_on() -> None:
    async def body() -> None:
        queue = RequestQueue(2, 9)
        asked = [asyncio.create_task(queue.begin(ACME)) for _ in range(5)]
        await settle()
        assert [task.done() for task in asked] == [True, True, False, False, False]
        other = await queue.begin(BETA)
        other.end()
        asked[0].result().end()
        await settle()
        assert [task.done() for task in asked] == [True, True, True, False, False], "in the order in which they came"
        asked[0].result().end()  # again
        await settle()
        assert not asked[3].done()
        for task in asked:
            (await task).end()
        await settle()
        assert queue._lines == {}, "nobody is remembered"

    run(body())


def test_a_newcomer_is_not_passed_by_lines_that_are_never_empty() -> None:
    async def body() -> None:
        queue = RequestQueue(1, 3)
        busy = [("7", f"busy-{number}") for number in range(5)]
        asked = [asyncio.create_task(queue.begin(who)) for who in busy for _ in range(3)]
        await settle()
        newcomer = asyncio.create_task(queue.begin(BETA))
        await settle()
        answered = 0
        while not newcomer.done():
            slot = next(task for task in asked if task.done())
            asked.remove(slot)
            asked.append(asyncio.create_task(queue.begin(busy[answered % len(busy)])))
            slot.result().end()
            await settle()
            answered += 1
            assert answered <= 12, "those who came before it, and no more"
        for task in [newcomer, *asked]:
            (await task).end()

    run(body())


def test_who_would_be_too_many_in_line_is_told_to_come_again() -> None:
    async def body() -> None:
        queue = RequestQueue(1, 9, waiting_max=1)
        first = await queue.begin(ACME)
        second = asyncio.create_task(queue.begin(ACME))
        await settle()
        with pytest.raises(TooManyRequests) as refused:
            await queue.begin(ACME)
        assert refused.value.retry_after_s >= 1
        first.end()
        (await second).end()
        await settle()
        (await queue.begin(ACME)).end()

    run(body())


@pytest.mark.parametrize("given", [False, True])
def test_a_turn_of_who_has_gone_is_the_next_ones(given: bool) -> None:
    async def body() -> None:
        queue = RequestQueue(1, 9)
        first = await queue.begin(ACME)
        gone, following = (asyncio.create_task(queue.begin(ACME)) for _ in range(2))
        await settle()
        if given:
            queue.ended(ACME)  # it has it, and does not know yet
        gone.cancel()
        await settle()
        if not given:
            first.end()
        assert isinstance(await following, RequestSlot)

    run(body())


def test_any_thread_may_end_one() -> None:
    async def body() -> None:
        queue = RequestQueue(1, 9)
        first = await queue.begin(ACME)
        following = asyncio.create_task(queue.begin(ACME))
        await asyncio.to_thread(first.end)
        (await following).end()

    run(body())


def test_all_lines_together_have_so_many_and_the_next_is_of_the_line_with_the_fewest() -> None:
    async def body() -> None:
        queue = RequestQueue(2, 3)
        acme = [await queue.begin(ACME) for _ in range(2)]
        beta = await queue.begin(BETA)
        late = [asyncio.create_task(queue.begin(who)) for who in (BETA, ("7", "gone"), ("7", "gamma"))]
        await settle()
        assert [task.done() for task in late] == [False, False, False]
        late[1].cancel()
        await settle()
        acme[0].end()
        await settle()
        assert [task.done() for task in late] == [False, True, True], "who has none goes before who has one"
        for slot in (acme[1], beta, await late[2]):
            slot.end()
        (await late[0]).end()
        await settle()
        assert queue._lines == {}
        assert queue._taken == 0

    run(body())


@pytest.mark.parametrize(("threads", "pulls_max"), [(256, 224), (256, 240), (256, 1), (4, 3)])
def test_with_all_its_turns_and_all_pulls_a_tenant_leaves_threads_to_others(threads: int, pulls_max: int) -> None:
    queue = new_request_queue(threads, pulls_max)
    assert queue._at_once >= 1
    assert queue._at_once + pulls_max <= threads
    assert threads < 8 or queue._at_once + pulls_max <= threads - 8
    assert threads < 8 or queue._total + pulls_max <= threads - 8, "probes are answered whoever asks"
