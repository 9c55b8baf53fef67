"""Rows of a tenant with a key of its own are served from memory for a stated time only: the key may be revoked."""

from __future__ import annotations

import gc
import weakref

import pytest

from support.keyed_cache import KEEP_MS, KEYED, PLAIN, Locked, cache_of, group_of
from tistream.clock import ManualClock
from tistream.errors import KeyUnusable
from tistream.read.group_cache import GroupCache


@pytest.mark.parametrize("index", [True, False])
def test_a_revoked_tenants_rows_are_not_served_after_that_time(index: bool) -> None:
    objects, clock = Locked(), ManualClock()
    cache, group = cache_of(objects, clock), group_of(objects, KEYED)
    ask = cache.index if index else cache.rows
    first = ask(group)
    objects.locked = True
    clock.advance(KEEP_MS - 1)
    assert str(ask(group)) == str(first)
    clock.advance(1)
    with pytest.raises(KeyUnusable):
        ask(group)
    objects.locked = False
    assert str(ask(group)) == str(first)


def test_rows_that_are_asked_for_again_and_again_do_not_stay_longer() -> None:
    objects, clock = Locked(), ManualClock()
    cache, group = cache_of(objects, clock), group_of(objects, KEYED)
    cache.rows(group)
    objects.locked = True
    for _ in range(29):
        clock.advance(1_000)
        cache.rows(group)
    clock.advance(1_000)
    with pytest.raises(KeyUnusable):
        cache.rows(group)


def test_rows_of_a_tenant_without_a_key_stay() -> None:
    objects, clock = Locked(), ManualClock()
    cache, group = cache_of(objects, clock), group_of(objects, PLAIN)
    cache.rows(group)
    reads = objects.reads
    clock.advance(10 * KEEP_MS)
    cache.rows(group)
    assert objects.reads == reads


@pytest.mark.parametrize("keyed", [True, False])
def test_a_dropped_cache_gives_its_memory_back_at_once(keyed: bool) -> None:
    """Its row groups do not wait for Python's collection of cycles, which comes late in a process of many objects."""
    objects = Locked()
    cache = cache_of(objects, ManualClock()) if keyed else GroupCache(objects, 64 << 20)
    rows = weakref.ref(cache.rows(group_of(objects, PLAIN)))
    gc.disable()
    try:
        assert rows() is not None
        del cache
        assert rows() is None
    finally:
        gc.enable()
