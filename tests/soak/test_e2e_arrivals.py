"""However the files arrive, the events are the same: many tenants on one platform, one way of arriving each."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence

import pytest

from support import golden, platform
from support.compare import shown, tenant_differences
from support.faults import a_file_in_the_middle
from support.golden import Delivery, GoldenSet
from support.platform import Platform
from support.pull import Consumer

Way = Callable[[GoldenSet], Sequence[Delivery]]

WAYS: dict[str, Way] = {
    "duplicated": lambda g: golden.duplicated(g.files, seed=1),
    "repeated-contents": lambda g: golden.with_repeated_contents(g.files, seed=2),
    "delayed": lambda g: golden.delayed(g.files, a_file_in_the_middle(g).key, by_ms=4_000),
    "shuffled-across-stores": lambda g: golden.shuffled_across_stores(g.files, seed=3),
    "any-order": lambda g: golden.shuffled(g.files, seed=4),
    "newest-first": lambda g: golden.retimed(list(reversed(g.files)), g.files),
    "store-by-store": lambda g: golden.retimed([file for store in g.stores for file in g.chain(store)], g.files),
}


ARRIVALS = [(way, name) for way in WAYS for name in golden.NAMES]


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Platform]:
    with platform.running(tmp_path_factory.mktemp("up"), ranges=4) as started:
        yield started


def complete(loaded: GoldenSet, consumer: Consumer) -> None:
    """Everything is there, and right."""
    events = consumer.pull(until_ts=loaded.end_ts, start_ts=loaded.snapshot_ts, limit=100_000)
    problems = tenant_differences(loaded, events)
    assert not problems, shown(problems)


@pytest.fixture(scope="module")
def arriving(up: Platform) -> Iterator[dict[tuple[str, str], tuple[GoldenSet, Consumer]]]:
    """Every way, each as a tenant, all pushed side by side."""
    tenants = {}
    pushers = []
    for way, name in ARRIVALS:
        loaded = golden.load_as(name, "9", f"{name}-{way}")
        golden.put(up.objects, loaded.schema_snap)
        tenants[name, way] = loaded, up.create_for(loaded)
        args = (WAYS[way](loaded), up.objects)
        pushers.append(threading.Thread(target=golden.push, args=args, kwargs={"url": up.url, "pace": 1.0}))
    for pusher in pushers:
        pusher.start()
    yield tenants
    for pusher in pushers:
        pusher.join()


@pytest.mark.parametrize(("way", "name"), ARRIVALS)
def test_the_same_events_however_the_files_arrive(
    arriving: dict[tuple[str, str], tuple[GoldenSet, Consumer]], way: str, name: str
) -> None:
    complete(*arriving[name, way])


def test_files_before_the_tenant_and_before_the_snapshot(up: Platform) -> None:
    """Files may arrive before their tenant is registered, and the schema snapshot last of all."""
    loaded = golden.load_as("large", "9", "snapshot-last")
    golden.push(loaded.files, up.objects)
    consumer = up.create_for(loaded)
    golden.put(up.objects, loaded.schema_snap)
    complete(loaded, consumer)


def test_announced_again_and_again(up: Platform) -> None:
    """Announcements of files that do not exist yet, or were taken long ago, change nothing."""
    loaded = golden.load_as("large", "9", "announced-again")
    golden.put(up.objects, loaded.schema_snap)
    consumer = up.create_for(loaded)

    def chatter() -> None:
        for file in (*loaded.files, *reversed(loaded.files)):
            golden.announce(up.url, file)

    thread = threading.Thread(target=chatter)
    thread.start()
    golden.push(loaded.files, up.objects, url=up.url)
    thread.join()
    for file in loaded.files[::5]:
        golden.announce(up.url, file)
    complete(loaded, consumer)


def test_half_written_files_are_waited_for(up: Platform) -> None:
    """An agent without atomic uploads: every tenth file is first there in part, and whole a moment later."""
    loaded = golden.load_as("large", "9", "half-written")
    golden.put(up.objects, loaded.schema_snap)
    consumer = up.create_for(loaded)
    for number, file in enumerate(loaded.files):
        path = up.objects / file.key
        path.parent.mkdir(parents=True, exist_ok=True)
        if number % 10 == 5:
            path.write_bytes(file.data[: len(file.data) // 2])
            golden.announce(up.url, file)
            threading.Event().wait(0.3)
        path.write_bytes(file.data)
    complete(loaded, consumer)
