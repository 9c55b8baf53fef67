"""The dispatcher between a real meta server and a real sorter: what is pushed arrives, whatever happens meanwhile."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from support import golden as golden_sets
from support.effort import cases, seeds
from support.golden import Delivery, GoldenSet
from support.http_world import World, running
from support.waiting import eventually
from tistream.model.ts import Window
from tistream.pool.rows import read_rows
from tistream.pool.task_log import TaskLog
from tistream.storage import layout
from tistream.wire.sorter import Hold


def begin(world: World, golden: GoldenSet) -> None:
    world.objects.put(golden.schema_snap.key, golden.schema_snap.data)
    world.client.create_tenant(golden.tenant.cluster_id, golden.tenant.tenant_id)


def push(world: World, files: list[Delivery], golden: GoldenSet, *, announced: bool = False) -> None:
    for file in files:
        world.objects.put(file.key, file.data)
        if announced:
            world.notify(golden.tenant, *file.store_and_ts)


def committed(world: World, golden: GoldenSet) -> list[tuple[int, int, bytes]]:
    rows = []
    for task in world.tasks().tasks:
        log = TaskLog(world.objects, golden.tenant, task.task_id)
        log.refresh()
        window = Window(golden.snapshot_ts, golden.end_ts)
        for segment in log.segments_overlapping(window):
            table = read_rows(world.objects, segment, window, None)
            rows += list(zip(*(table[name].to_pylist() for name in ("commit_ts", "start_ts", "key")), strict=True))
    return sorted(rows)


def truth(golden: GoldenSet) -> list[tuple[int, int, bytes]]:
    rows = golden_sets.committed_rows(golden.name)
    return sorted(rows.select("commit_ts", "start_ts", "key").iter_rows())


def held(world: World) -> list[Hold]:
    listed = world.stores()
    return [*listed.holds, *(store.hold for store in listed.stores if store.hold)]


def check_end(world: World, golden: GoldenSet) -> None:
    eventually(lambda: world.progress_ts(golden.tenant) >= golden.end_ts)
    assert committed(world, golden) == truth(golden)
    # A process that was stopped a moment ago is rightly told of until its tasks are known to be elsewhere.
    eventually(lambda: held(world) == [])


@pytest.mark.parametrize(("name", "ranges"), cases([("large", 16)], [("everything", 1), ("everything", 16)]))
def test_files_that_are_there_before_the_tenant_is(tmp_path: Path, name: str, ranges: int) -> None:
    golden = golden_sets.load(name)
    with running(tmp_path, ranges) as world:
        push(world, list(golden.files), golden)
        begin(world, golden)
        check_end(world, golden)


@pytest.mark.parametrize("seed", seeds(1, 3))
def test_every_process_is_restarted_again_and_again_while_files_come_in_any_order(tmp_path: Path, seed: int) -> None:
    golden = golden_sets.load("large")
    rng = random.Random(seed)
    files = golden_sets.shuffled(golden.files, seed)
    with running(tmp_path, 3) as world:
        begin(world, golden)
        for file in files:
            push(world, [file], golden, announced=rng.random() < 0.5)
            if rng.random() < 0.08:
                rng.choice([world.restart_dispatcher, world.restart_sorter, world.restart_meta])()
        check_end(world, golden)


def test_a_missing_file_stops_its_store_is_named_and_ends_the_wait_when_it_comes(tmp_path: Path) -> None:
    golden = golden_sets.load("large")
    lost = golden.chain(2)[10]
    with running(tmp_path, 4) as world:
        begin(world, golden)
        push(world, [file for file in golden.files if file is not lost], golden, announced=True)
        eventually(lambda: holds_object(world, "push", lost.key))
        last = {store.store_id: store.last_file_ts for store in world.stores().stores}
        assert last[2] == golden.chain(2)[9].store_and_ts[1]
        assert world.progress_ts(golden.tenant) < golden.end_ts
        push(world, [lost], golden)
        check_end(world, golden)


def test_a_damaged_footer_quarantines_the_store_until_it_is_repaired(tmp_path: Path) -> None:
    golden = golden_sets.load("large")
    bad = golden.chain(3)[10]
    with running(tmp_path, 2) as world:
        begin(world, golden)
        push(world, [file for file in golden.files if file is not bad], golden)
        world.objects.put(bad.key, bad.data[:-5])
        eventually(lambda: holds_object(world, "damaged", bad.key))
        assert [store.store_id for store in world.stores().stores if store.quarantined] == [3]
        push(world, [bad], golden)
        check_end(world, golden)


def test_damage_that_only_the_sorter_sees_is_sent_again_until_it_is_repaired(tmp_path: Path) -> None:
    golden = golden_sets.load("large")
    bad = max(golden.chain(1)[3:], key=lambda file: len(file.data))
    flipped = bytearray(bad.data)
    flipped[1000] ^= 0xFF
    with running(tmp_path, 2) as world:
        begin(world, golden)
        push(world, [file for file in golden.files if file is not bad], golden)
        world.objects.put(bad.key, bytes(flipped))
        eventually(lambda: any(hold.object == bad.key for task in world.tasks().tasks for hold in task.holds))
        push(world, [bad], golden)
        check_end(world, golden)


def test_trouble_of_one_tenant_leaves_another_alone(tmp_path: Path) -> None:
    broken, sound = golden_sets.load("everything"), golden_sets.load("large")
    with running(tmp_path, 1) as world:
        for golden in (broken, sound):
            begin(world, golden)
        world.objects.put(broken.files[0].key, b"not a change file")
        push(world, list(sound.files), sound)
        eventually(lambda: world.progress_ts(sound.tenant) >= sound.end_ts)
        eventually(lambda: holds_object(world, "damaged", broken.files[0].key))


def test_a_store_that_is_not_named_by_a_number_is_no_store(tmp_path: Path) -> None:
    golden = golden_sets.load("large")
    with running(tmp_path, 1) as world:
        world.objects.put(f"{layout.push_prefix(golden.tenant)}store-x/file-1", b"")
        world.objects.put(f"{layout.store_prefix(golden.tenant, 1)}notes.txt", b"")
        begin(world, golden)
        push(world, list(golden.files), golden)
        check_end(world, golden)


def holds_object(world: World, stage: str, key: str) -> bool:
    return any(
        store.hold is not None and (store.hold.stage, store.hold.object) == (stage, key)
        for store in world.stores().stores
    )


def test_a_store_that_was_only_announced_is_not_followed(tmp_path: Path) -> None:
    golden = golden_sets.load("large")
    with running(tmp_path, 1) as world:
        begin(world, golden)
        push(world, list(golden.files[:5]), golden, announced=True)
        eventually(lambda: len(world.stores().stores) > 0)
        world.notify(golden.tenant, 999, 5)
        push(world, list(golden.files[5:]), golden, announced=True)
        check_end(world, golden)
        assert 999 not in {int(store.store_id) for store in world.stores().stores}
