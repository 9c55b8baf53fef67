"""The dispatcher between a real meta server and a real sorter: consumed files go, and who dies then loses nothing."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from test_dispatching import begin, check_end, push

from support import golden as golden_sets
from support.effort import cases
from support.golden import GoldenSet
from support.http_world import World, running
from support.waiting import eventually
from tistream.storage import layout


def left(world: World, golden: GoldenSet) -> int:
    """Change files that are still there."""
    names = world.objects.list_after(layout.push_prefix(golden.tenant))
    return sum(layout.parse_change_file(info.key) is not None for info in names)


@pytest.mark.parametrize("name", cases(["large"], ["everything"]))
def test_what_is_pushed_after_everybody_died_with_the_files_before_it_deleted_is_as_complete(
    tmp_path: Path, name: str
) -> None:
    golden = golden_sets.load(name)
    half = len(golden.files) // 2
    rng = random.Random(1)
    with running(tmp_path, 3) as world:
        begin(world, golden)
        push(world, list(golden.files[:half]), golden, announced=True)
        eventually(lambda: left(world, golden) < half / 2)
        deaths = [world.restart_dispatcher, world.restart_sorter, world.restart_meta]
        for die in deaths:
            die()
        for file in golden.files[half:]:
            push(world, [file], golden)
            if rng.random() < 0.1:
                rng.choice(deaths)()
        check_end(world, golden)
        newest = {file.store_and_ts[0]: file.store_and_ts for file in golden.files}
        eventually(lambda: left(world, golden) <= 2 * len(newest))
        for store_id, ts in newest.values():
            assert world.objects.head(layout.change_file(golden.tenant, store_id, ts)), (
                "the newest file of a chain stays"
            )
        assert world.objects.get(layout.schema_snap(golden.tenant)) == golden.schema_snap.data
        for die in deaths:
            die()
        check_end(world, golden)
