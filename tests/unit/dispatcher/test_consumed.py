"""Up to where a store's change files are needed by nobody, and which of them its dispatcher has done with."""

from __future__ import annotations

import pytest

from tistream.format.manifest import ChainPosition
from tistream_dispatcher.delivery.consumed import ConsumedMark, TaskNeeds, consumed
from tistream_dispatcher.stores.chain import GRACE_MS, SeenFile, StoreChains


def chains(*pairs: tuple[int, int]) -> dict[int, tuple[ChainPosition, ...]]:
    """Positions in store 1."""
    return {1: tuple(ChainPosition(*pair) for pair in pairs)} if pairs else {}


def task(
    *durable: tuple[int, int],
    flushed: int = 1_000,
    pointed: dict[int, int] | None = None,
    received: tuple[tuple[int, int], ...] | None = None,
) -> TaskNeeds:
    return TaskNeeds(flushed, chains(*durable), pointed or {}, chains(*(durable if received is None else received)))


@pytest.mark.parametrize(
    ("tasks", "wanted"),
    [
        pytest.param([task((10, 90))], ConsumedMark(10, 90), id="a task comes back after its position"),
        pytest.param([task((10, 90)), task((10, 70))], ConsumedMark(10, 70), id="the one that is furthest behind"),
        pytest.param([task((10, 90)), None], None, id="one is not known"),
        pytest.param([], None, id="no task is known"),
        pytest.param([task((10, 90)), task()], None, id="one has no file of the store in a manifest"),
        pytest.param(
            [task((10, 90), pointed={1: 40})], ConsumedMark(10, 39), id="what is pointed into, and all after it"
        ),
        pytest.param([task((10, 90), pointed={2: 40})], ConsumedMark(10, 90), id="another store's is no matter"),
        pytest.param(
            [task((10, 90)), task((10, 80), pointed={1: 5})], ConsumedMark(10, 4), id="into a file of an older chain"
        ),
        pytest.param([task((10, 90), flushed=9)], None, id="an older chain may still begin"),
        pytest.param([task((10, 90), flushed=10)], ConsumedMark(10, 90), id="nobody asks for older chains any more"),
        pytest.param([task((10, 90)), task((10, 90), flushed=9)], None, id="but only once all have flushed so far"),
        pytest.param(
            [task((10, 90), (100, 150), flushed=99)],
            ConsumedMark(10, 90),
            id="late files of the chain before are waited for",
        ),
        pytest.param([task((10, 90), (100, 150), flushed=100)], ConsumedMark(100, 150), id="and then no more"),
        pytest.param(
            [task((10, 90), (100, 150)), task((10, 80))],
            ConsumedMark(10, 80),
            id="a chain that one has not begun comes whole",
        ),
        pytest.param(
            [task((10, 90), (100, 150)), task((100, 140))], ConsumedMark(100, 140), id="one that never had the older"
        ),
        pytest.param([task((10, 90)), task((100, 150))], None, id="no chain that all have begun"),
        pytest.param(
            [task((10, 120), (100, 150), flushed=50)],
            ConsumedMark(10, 99),
            id="never beyond where the next chain begins",
        ),
        pytest.param(
            [task((10, 60), (100, 150), received=((10, 80), (100, 170)))],
            ConsumedMark(100, 60),
            id="a tick may read files of a closed chain",
        ),
        pytest.param(
            [task((100, 150), received=((10, 80), (100, 150)))],
            ConsumedMark(100, 9),
            id="of one that is in no manifest",
        ),
        pytest.param(
            [task((10, 90), received=((10, 120),))], ConsumedMark(10, 90), id="what follows the position stays"
        ),
        pytest.param(
            [task((10, 90), received=())], ConsumedMark(10, 90), id="received less than is durable: it asks again"
        ),
    ],
)
def test_no_file_up_to_the_mark_is_needed(tasks: list[TaskNeeds | None], wanted: ConsumedMark | None) -> None:
    assert consumed(tasks, 1) == wanted
    assert consumed(tasks[::-1], 1) == wanted


def taken(*stamps: int) -> StoreChains:
    """A chain of these files, all taken."""
    found = StoreChains()
    for prev_ts, ts in zip((0, *stamps), stamps, strict=False):
        found.see(SeenFile(ts, prev_ts, fresh=not prev_ts))
    while (ready := found.ready()) is not None:
        found.advance(ready)
    found.close(stamps[0])
    return found


def test_files_that_were_taken_are_done_with_as_far_as_the_mark() -> None:
    read = taken(10, 20, 30, 40).read(10, 30)
    assert read is not None
    assert [ts for ts in (5, 10, 20, 30, 40) if ts in read] == [5, 10, 20, 30]


def test_those_that_a_restarted_dispatcher_begins_behind_are_done_with() -> None:
    begun = StoreChains([ChainPosition(10, 40)])
    begun.close(10)
    read = begun.read(10, 40)
    assert read is not None
    assert [ts for ts in (10, 25, 40, 50) if ts in read] == [10, 25], "where the chain is now stays"


def test_what_nobody_has_taken_stays_to_be_seen() -> None:
    """A file that names one as the one before that another has followed: it quarantines the store once it is read."""
    chains = taken(10, 20, 30, 40)
    read = chains.read(10, 40)
    assert read is not None
    assert 25 not in read, "not even before it was read"
    chains.see(SeenFile(25, 20))
    assert chains.hold() is not None
    read = chains.read(10, 40)
    assert read is not None
    assert [ts for ts in (10, 20, 25, 30, 40) if ts in read] == [10, 20, 30]


def test_a_damaged_file_and_what_follows_it_stay() -> None:
    chains = taken(10, 20)
    chains.damage(30, "cut off", GRACE_MS)
    read = chains.read(10, 40)
    assert read is not None
    assert [ts for ts in (10, 20, 30, 40) if ts in read] == [10]


def test_nothing_is_done_with_while_an_older_chain_is_open_or_may_begin() -> None:
    chains = taken(10, 20)
    chains.see(SeenFile(100, 0, fresh=True))
    ready = chains.ready()
    assert ready is not None
    chains.advance(ready)
    assert chains.read(100, 100) is None
    older = chains.read(10, 20)
    assert older is not None
    assert [ts for ts in (10, 15, 20) if ts in older] == [10], "by what was taken of the older chain"
    chains.close(100)
    assert chains.read(100, 100) is not None
    assert StoreChains([ChainPosition(10, 20)]).read(10, 20) is None, "an older one may begin"
    assert StoreChains().read(10, 20) is None


def test_a_store_is_passed_by_when_tasks_have_more_than_was_taken_here() -> None:
    chains = taken(10, 20)
    assert not chains.passed_by([ChainPosition(10, 20)])
    assert not chains.passed_by([ChainPosition(5, 90), ChainPosition(10, 20)]), "given up here"
    assert chains.passed_by([ChainPosition(10, 30)])
    assert chains.passed_by([ChainPosition(10, 20), ChainPosition(100, 100)])
    assert StoreChains().passed_by([ChainPosition(10, 10)])
