"""What the footer of a file promises for the keys without a watermark row, if there are very many of them."""

from __future__ import annotations

from tistream.format.change_file import footer_metadata
from tistream.model.ids import TenantKey
from tistream.model.span import WHOLE, KeySpan
from tistream.storage.backends.memory import MemoryObjectStore
from tistream.storage.change_reader import open_change_file
from tistream_agent.core.chain import Position, Promise, read_spans
from tistream_agent.core.cutter import draft_without_rows
from tistream_agent.core.territory import assert_tiled
from tistream_agent.position import end_of_chain

ACME = TenantKey("7", "acme")


def _promises(count: int) -> tuple[Promise, ...]:
    bounds = [b"", *(b"t\x80%06d_i\x80%040d" % (at, at) for at in range(1, count)), b""]
    return tuple(
        Promise(KeySpan(bounds[at], bounds[at + 1]), 1_000 + at * 7_919 % 5_000) for at in range(len(bounds) - 1)
    )


# Attack: a claim of 30,000 regions, with the long keys of an index
def test_the_claim_of_very_many_regions_can_be_read_and_promises_no_more_than_it_had() -> None:
    given = _promises(30_000)
    objects = MemoryObjectStore()
    draft = draft_without_rows(ACME, 1, Position(40, 41, given), "aa")
    objects.put(draft.key, draft.data())
    position = end_of_chain(objects, ACME, 1, WHOLE).position
    assert position is not None
    assert_tiled(WHOLE, [promise.span for promise in position.promises])
    had = {promise.span.start: promise.ts for promise in given}
    at = iter(position.promises)
    now = next(at)
    for promise in given:
        while promise.span.start not in now.span:
            now = next(at)
        assert now.ts <= had[promise.span.start]
    assert len(position.promises) > 1_000, "joined more than needed"


def test_promises_are_joined_across_keys_with_a_row_at_the_lowest_of_all_only() -> None:
    given = _promises(30_000)[::2]
    objects = MemoryObjectStore()
    draft = draft_without_rows(ACME, 1, Position(40, 41, (*given, Promise(WHOLE, 900))), "aa")
    objects.put(draft.key, draft.data())
    opened = open_change_file(objects, draft.key)
    joined = read_spans(draft.key, footer_metadata(draft.key, opened.footer))
    assert {promise.ts for promise in joined} == {900}


def test_few_promises_stay_as_they_are() -> None:
    given = _promises(3_000)
    objects = MemoryObjectStore()
    draft = draft_without_rows(ACME, 1, Position(40, 41, given), "aa")
    objects.put(draft.key, draft.data())
    position = end_of_chain(objects, ACME, 1, WHOLE).position
    assert position is not None
    assert position.promises == given
