"""A segment a second: objects, and what a reader must read to begin, stay few."""

from __future__ import annotations

import pytest

from support.space import samples
from tistream_sorter.upkeep.compaction_plan import CompactRules

KEEP_S = 200
RULES = CompactRules()


@pytest.mark.parametrize("keep_ms", [None, KEEP_S * 1_000], ids=["all is kept", "retention"])
def test_objects_and_reads_stay_bounded(keep_ms: int | None) -> None:
    found = list(samples(900, 100, keep_ms, grace_ms=60_000))
    for one in found:
        # Of manifests: since the checkpoint before the floor, and those that wait to be deleted; of segments one in
        # `fan_in` is left for good, fewer than that wait to be put together, and some to be deleted.
        assert one.objects["manifest"] <= 64 + 64 + 120 + 16
        assert one.objects["segment"] <= one.second / 16 / 8 + 3 * 16 + 200
        assert one.segments <= RULES.fan_in + one.second / RULES.fan_in
        assert one.reads <= 64 + 6
        assert one.checkpoint_bytes < 20_000
    assert found[-1].total <= found[3].total * 1.2, "no more after 900 seconds than after 400"
