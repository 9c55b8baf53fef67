"""What is left of a pending part when several shards were given pieces of it."""

from __future__ import annotations

from tistream.format.manifest import UNMATCHED, PendingPart
from tistream.model.ids import TenantKey
from tistream.model.span import KeySpan
from tistream.model.ts import MAX_TS, Window
from tistream_sorter.jobs.shard import Shard, ShardResult
from tistream_sorter.match.kernel import MatchRules
from tistream_sorter.task.tick import _carried

SPANS = (KeySpan(b"", b"h"), KeySpan(b"h", b"p"), KeySpan(b"p", b""))


def part(start: bytes, end: bytes) -> PendingPart:
    return PendingPart("part", 1, "", 9, UNMATCHED, 1, 2, MAX_TS, KeySpan(start, end))


def left_of(parts: list[PendingPart], consumed: dict[int, set[tuple[str, bytes]]]) -> list[KeySpan]:
    rules = MatchRules(Window(0, 1), 0)
    shards = [
        Shard(TenantKey("1", "t"), 1, 1, "nonce", number, span, rules, (), (), (), b"", b"")
        for number, span in enumerate(SPANS)
    ]
    results = [ShardResult(1, number, consumed=frozenset(consumed.get(number, ()))) for number in range(len(SPANS))]
    return [piece.span for piece in _carried(parts, shards, results)]


def test_a_part_that_one_shard_consumed_stays_for_the_others() -> None:
    assert left_of([part(b"c", b"t")], {1: {("part", b"h")}}) == [KeySpan(b"c", b"h"), KeySpan(b"p", b"t")]


def test_a_part_that_nobody_consumed_stays_whole() -> None:
    assert left_of([part(b"c", b"t")], {}) == [KeySpan(b"c", b"t")]


def test_a_part_that_all_its_shards_consumed_is_gone() -> None:
    assert left_of([part(b"c", b"m")], {0: {("part", b"c")}, 1: {("part", b"h")}}) == []


def test_of_two_pieces_of_one_part_in_a_shard_only_the_consumed_one_goes() -> None:
    pieces = [part(b"a", b"c"), part(b"d", b"g")]
    assert left_of(pieces, {0: {("part", b"d")}}) == [KeySpan(b"a", b"c")]
