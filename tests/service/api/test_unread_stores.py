"""What `status` says of a store that nobody reads, with several dispatchers over real HTTP."""

from __future__ import annotations

from pathlib import Path

from support import golden
from support.api_world import platform
from support.waiting import eventually


def test_a_store_that_no_dispatcher_takes_is_named_until_one_does(tmp_path: Path) -> None:
    loaded = golden.load("large")
    with platform(tmp_path, ranges=1) as one:
        one.world.start_dispatcher("dispatcher-2")
        one.put(loaded.schema_snap)
        consumer = one.create(loaded)
        one.put(*loaded.chain(1))
        eventually(lambda: any(one.world.readers().values()))
        for name in ("dispatcher-1", "dispatcher-2"):
            one.world.client.drain(name)
        one.put(*loaded.chain(2))
        reason = "no dispatcher reads the store, because none takes stores"
        held = {"stage": "dispatch", "store_id": "2", "region_id": None, "object": None, "reason": reason}
        eventually(lambda: consumer.status()["held_by"] == held)
        assert list(one.world.readers()) == [1], "what was read goes on"
        one.world.client.drain("dispatcher-2", draining=False)
        eventually(lambda: (consumer.status()["held_by"] or {}).get("stage") != "dispatch")
        eventually(lambda: one.world.readers().get(2) == ["dispatcher-2"])
