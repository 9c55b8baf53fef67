"""The chains of a store: any arrival order, any trouble; nothing skipped, nothing taken twice."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tistream.format.manifest import ChainPosition
from tistream_dispatcher.stores.chain import STAGE_DAMAGED, STAGE_MISSING, SeenFile, StoreChains

LONG = 10_000


def drain(chains: StoreChains) -> list[tuple[int, int]]:
    """Take everything that is ready: (chain, ts)."""
    out = []
    while (ready := chains.ready()) is not None:
        chains.advance(ready)
        out.append((ready.chain_ts, ready.file.ts))
    return out


def chain_of(*stamps: int, fresh: bool = False) -> list[SeenFile]:
    return [SeenFile(stamps[0], 0, fresh), *(SeenFile(ts, prev) for prev, ts in pairwise(stamps))]


@st.composite
def worlds(draw: st.DrawFn) -> tuple[list[list[SeenFile]], list[SeenFile]]:
    """One store's chains as an agent would write them, and an order in which the files arrive."""
    stamps = sorted(draw(st.sets(st.integers(1, 500), min_size=1, max_size=14)))
    cuts = sorted(draw(st.sets(st.integers(1, max(1, len(stamps) - 1)), max_size=3)))
    bounds = [0, *(cut for cut in cuts if cut < len(stamps)), len(stamps)]
    first_fresh = draw(st.booleans())
    chains = [chain_of(*stamps[low:high], fresh=first_fresh or low > 0) for low, high in pairwise(bounds) if low < high]
    return chains, draw(st.permutations([file for chain in chains for file in chain]))


@given(worlds())
def test_any_arrival_order_takes_every_file_once_and_in_chain_order(world):
    files, order = world
    chains = StoreChains()
    taken = []
    for file in order:
        assert chains.must_read(file.ts)
        chains.see(file)
        taken += drain(chains)
        assert not chains.must_read(file.ts)
    assert sorted(taken) == [(chain[0].ts, file.ts) for chain in files for file in chain]
    for chain in files:
        assert [ts for first, ts in taken if first == chain[0].ts] == [file.ts for file in chain]
    assert chains.hold() is None
    assert chains.positions() == tuple(ChainPosition(chain[0].ts, chain[-1].ts) for chain in files)


@given(worlds(), st.data())
def test_a_missing_file_stops_its_chain_and_is_named(world, data):
    files, order = world
    lost = data.draw(st.sampled_from(order))
    chain = next(chain for chain in files if lost in chain)
    chains = StoreChains()
    taken = []
    for file in order:
        if file is not lost:
            chains.see(file)
            taken += drain(chains)
    before = [file.ts for file in chain if file.ts < lost.ts]
    assert [ts for first, ts in taken if first == chain[0].ts] == before
    hold = chains.hold()
    if lost is chain[-1]:
        assert hold is None
        return
    assert hold is not None
    assert (hold.stage, hold.ts) == (STAGE_MISSING, lost.ts)
    chains.see(lost)
    assert [ts for _, ts in drain(chains)] == [file.ts for file in chain if file.ts >= lost.ts]
    assert chains.hold() is None


@given(worlds(), st.data())
def test_a_damaged_file_quarantines_until_a_fresh_chain_or_its_repair(world, data):
    files, order = world
    bad = data.draw(st.sampled_from(order))
    chains = StoreChains()
    taken = []
    for file in order:
        chains.damage(file.ts, "bad", LONG) if file is bad else chains.see(file)
        taken += drain(chains)
    place = next(index for index, chain in enumerate(files) if bad in chain)
    stamps = [ts for _, ts in taken]
    assert not [file.ts for file in files[place] if file.ts >= bad.ts and file.ts in stamps]
    if place < len(files) - 1:
        assert chains.hold() is None or chains.hold().stage == STAGE_MISSING
        assert files[-1][-1].ts in stamps
        return
    hold = chains.hold()
    assert hold is not None
    assert (hold.stage, hold.ts, hold.quarantined) == (STAGE_DAMAGED, bad.ts, True)
    chains.see(bad)
    assert [ts for _, ts in drain(chains)] == [file.ts for file in files[place] if file.ts >= bad.ts]
    assert chains.hold() is None


@given(worlds(), st.data())
def test_a_restart_from_any_position_goes_on_where_it_was(world, data):
    _, order = world
    first = StoreChains()
    cut = data.draw(st.integers(0, len(order)))
    for file in order[:cut]:
        first.see(file)
    taken = drain(first)
    second = StoreChains(first.positions())
    for file in sorted(order, key=lambda file: file.ts):
        if second.must_read(file.ts):
            second.see(file)
    taken += drain(second)
    assert {ts for _, ts in taken} == {file.ts for file in order}


def seen(*files: SeenFile) -> StoreChains:
    chains = StoreChains()
    for file in files:
        chains.see(file)
    return chains


def test_the_backlog_is_what_waits_and_the_newest_of_it():
    assert StoreChains().backlog() == (0, 0)
    assert seen(SeenFile(40, 30), SeenFile(20, 10)).backlog() == (2, 40)


def test_a_prev_ts_below_the_position_breaks_the_chain():
    chains = seen(*chain_of(10, 20, 30))
    drain(chains)
    chains.see(SeenFile(40, 20))
    chains.see(SeenFile(50, 30))
    assert drain(chains) == []
    hold = chains.hold()
    assert hold is not None
    assert (hold.stage, hold.ts) == (STAGE_DAMAGED, 40)
    assert "prev_ts 20 lies below the store's position 30; the store must begin a new chain" in hold.reason


def test_two_files_that_name_one_prev_ts_break_the_chain():
    chains = seen(*chain_of(10, 20), SeenFile(30, 20), SeenFile(40, 20))
    assert drain(chains) == [(10, 10), (10, 20)]
    hold = chains.hold()
    assert hold is not None
    assert hold.quarantined
    assert "30" in hold.reason
    assert "40" in hold.reason


def test_a_stranger_between_files_taken_breaks_the_chain():
    chains = seen(*chain_of(10, 20, 40))
    drain(chains)
    assert not chains.must_read(20)
    assert chains.must_read(30)
    chains.see(SeenFile(30, 20))
    assert chains.hold().quarantined


def test_a_second_first_file_that_is_not_fresh_breaks_the_chain():
    chains = seen(*chain_of(10, 20))
    drain(chains)
    chains.see(SeenFile(30, 0))
    assert drain(chains) == []
    assert chains.hold().quarantined


def test_a_fresh_chain_ends_a_quarantine_and_older_files_are_ignored():
    chains = seen(*chain_of(10, 20), SeenFile(30, 10))
    assert drain(chains) == [(10, 10)]
    assert chains.hold().quarantined
    chains.see(SeenFile(40, 0, fresh=True))
    chains.see(SeenFile(50, 40))
    assert drain(chains) == [(40, 40), (40, 50)]
    assert chains.hold() is None
    assert not chains.must_read(25)
    assert chains.positions() == (ChainPosition(40, 50),)


def test_a_waiting_chain_stays_open_beside_a_fresh_one_until_the_tenant_is_past_it():
    chains = seen(*chain_of(10, 20), SeenFile(40, 30), SeenFile(100, 0, fresh=True))
    assert drain(chains) == [(10, 10), (10, 20), (100, 100)]
    assert (chains.hold().stage, chains.hold().ts) == (STAGE_MISSING, 30)
    chains.close(99)
    assert chains.must_read(30)
    chains.see(SeenFile(30, 20))
    assert drain(chains) == [(10, 30), (10, 40)]
    chains.close(100)
    assert chains.positions() == (ChainPosition(100, 100),)
    assert not chains.must_read(41)


def test_damage_found_in_an_older_chain_gives_it_up_without_a_quarantine():
    chains = seen(*chain_of(10, 20), SeenFile(100, 0, fresh=True))
    drain(chains)
    chains.damage(30, "bad", LONG)
    assert chains.hold() is None
    assert chains.positions() == (ChainPosition(100, 100),)
    assert not chains.must_read(30)


def test_a_file_that_cannot_be_read_is_not_there_before_the_grace_has_passed():
    chains = seen(*chain_of(10, 20))
    drain(chains)
    chains.damage(30, "half written", 1_999)
    assert chains.hold() is None
    assert chains.must_read(30)
    chains.damage(30, "half written", 2_000)
    assert chains.hold().reason == "half written"


@pytest.mark.parametrize("fresh", [False, True])
def test_the_first_file_of_a_store_may_have_any_watermarks(fresh):
    chains = seen(SeenFile(10, 0, fresh))
    assert drain(chains) == [(10, 10)]


def test_the_very_first_file_is_damaged():
    chains = StoreChains()
    chains.damage(10, "bad", LONG)
    chains.see(SeenFile(20, 10))
    chains.see(SeenFile(30, 0))
    assert drain(chains) == []
    assert chains.hold().ts == 10
    chains.see(SeenFile(40, 0, fresh=True))
    assert drain(chains) == [(40, 40)]


def test_a_chain_too_many_is_named_and_begins_once_an_older_one_is_closed() -> None:
    chains = StoreChains(chains_max=3)
    for file in (*chain_of(10, 20), *(SeenFile(ts, 0, fresh=True) for ts in (100, 200, 300)), SeenFile(40, 30)):
        chains.see(file)
    chains.see(SeenFile(310, 300))
    assert [ts for _, ts in drain(chains)] == [10, 20, 100, 200]
    hold = chains.hold()
    assert hold is not None
    assert (hold.quarantined, hold.ts) == (False, 300)
    assert "3 chains of the store are open, the oldest since 10" in hold.reason
    assert "first file 30" in hold.reason
    chains.see(SeenFile(30, 20))
    assert [ts for _, ts in drain(chains)] == [30, 40], "late files of the older ones are taken as before"
    chains.close(150)
    assert drain(chains) == [(300, 300), (300, 310)]
    assert chains.hold() is None


def test_chains_that_were_given_up_here_count_as_long_as_a_task_has_them_open() -> None:
    chains = StoreChains([ChainPosition(100, 100)], chains_max=3)
    chains.held_open({10, 50, 100})
    chains.see(SeenFile(200, 0, fresh=True))
    assert chains.ready() is None
    chains.held_open({100})
    assert drain(chains) == [(200, 200)]
