"""How the keys of a tenant are divided into territories."""

from __future__ import annotations

from itertools import pairwise

import pytest

from tistream.model.span import WHOLE, KeySpan
from tistream_agent.connecting.territories import divided, first_keys, not_taken, oversized
from tistream_agent.core.keys import TIDB_GAP, TIDB_SCOPE, KeyMap, Region, encoded_bound
from tistream_agent.core.territory import assert_tiled


@pytest.mark.parametrize(("regions", "count"), [(1, 1), (3, 1), (4, 2), (6, 2), (7, 3), (100, 34)])
def test_no_territory_has_too_many_regions(regions: int, count: int) -> None:
    starts = [b"m", *(b"t%03d" % number for number in range(1, regions))]
    spans = divided(WHOLE, starts[1:], 3)
    assert_tiled(WHOLE, spans)
    sizes = [sum(one in span for one in starts) for span in spans]
    assert max(sizes) <= 3
    assert len(spans) == count


def test_only_regions_with_keys_of_the_tenant_count() -> None:
    prefix = b"x\0\0\7"
    ends = [b"", *(encoded_bound(prefix + one) for one in (b"k", b"m5", b"n5", b"r", b"t", b"t5", b"v")), b""]
    regions = [Region(at, start, end, 1, 1, 1) for at, (start, end) in enumerate(pairwise(ends), 1)]
    assert first_keys(KeyMap(prefix, TIDB_SCOPE, TIDB_GAP), regions) == [b"m5", b"t", b"t5"]


def test_what_no_territory_has_is_found() -> None:
    assert not_taken([]) == [WHOLE]
    assert not_taken([WHOLE]) == []
    assert not_taken([KeySpan(b"t5", b"t7"), KeySpan(b"", b"t2")]) == [KeySpan(b"t2", b"t5"), KeySpan(b"t7", b"")]


def test_territories_that_have_grown_are_found() -> None:
    starts = [b"t%d" % number for number in range(9)]
    taken = {1: KeySpan(b"", b"t2"), 4: KeySpan(b"t2", b"t5"), 3: KeySpan(b"t5", b"")}
    assert list(oversized(taken, starts, 2)) == [(3, 4), (4, 3)]
