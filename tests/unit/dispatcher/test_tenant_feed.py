"""One step of a tenant's feed: what is there goes to its task, and one store's trouble stays its own."""
# Attack: ten thousand announcements of missing files for each real one

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from support.feed_world import Sorter, new_feed
from support.tiny_tenant import TinyTenant, watermark
from tistream.clock import ManualClock
from tistream.errors import InvalidRequest, TiStreamError, Unavailable
from tistream.model.span import KeySpan
from tistream.storage.backends.memory import MemoryObjectStore
from tistream.storage.object_store import ObjectInfo
from tistream.wire.sorter import Chain
from tistream_dispatcher.delivery.router import Router, TaskSpan
from tistream_dispatcher.tenant.tenant_feed import TenantFeed

TINY = TinyTenant()


class Group:
    """A row group's key bounds."""

    def __init__(self, key_min: bytes, key_max: bytes) -> None:
        self.index, self.key_min, self.key_max = 0, key_min, key_max


class TroubledStore(MemoryObjectStore):
    """Raises `error` wherever a key of store 2 is asked for."""

    error: TiStreamError | None = None

    def get_tail(self, key: str, length: int) -> tuple[bytes, int]:
        if self.error is not None and "/store-2/" in key:
            raise self.error
        return super().get_tail(key, length)

    def list_after(self, prefix: str, after: str = "", delimiter: str = "") -> Iterator[ObjectInfo]:
        if self.error is not None and "/store-2/" in prefix:
            raise self.error
        return super().list_after(prefix, after, delimiter)


class FlakyStore(MemoryObjectStore):
    """Fails as often as it is told to; `while_listing` runs in the middle of a LIST of files."""

    def __init__(self) -> None:
        super().__init__()
        self.failing: list[str] = []
        self.while_listing: Callable[[], None] = lambda: None
        self.while_heading: Callable[[str], None] = lambda _: None

    def _may_fail(self, what: str) -> None:
        if what in self.failing:
            self.failing.remove(what)
            raise Unavailable(f"{what}: slow down")

    def get_tail(self, key: str, length: int) -> tuple[bytes, int]:
        self._may_fail("get_tail")
        return super().get_tail(key, length)

    def head(self, key: str) -> ObjectInfo:
        self._may_fail("head")
        self.while_heading(key)
        return super().head(key)

    def list_after(self, prefix: str, after: str = "", delimiter: str = "") -> Iterator[ObjectInfo]:
        self._may_fail("stores" if delimiter else "files")
        if not delimiter:
            self.while_listing()
        return super().list_after(prefix, after, delimiter)


class Silent:
    """A tenant of one store for which nothing has come for two hours since its last file, which was announced."""

    def __init__(self, *, durable: bool = True) -> None:
        """Sorters are asked each minute once all is `durable`, each second before that."""
        self.objects, self.sorter, self.clock = FlakyStore(), Sorter(durable=durable), ManualClock(1_000)
        self.feed = new_feed(self.objects, self.sorter, self.clock)
        self.put(1, 200, 0)
        self.run(20)
        self.put(1, 210, 200)
        self.feed.announce(1, 210)
        self.run(2 * 3_600)
        assert self.at(1) == 210

    def put(self, store: int, ts: int, prev_ts: int) -> None:
        file = TINY.file(store, ts, prev_ts, [], watermark(6, 5, 150, base_ts=100))
        self.objects.put(file.key, file.data)

    def run(self, seconds: float) -> None:
        """As the tenant's loop does, which an announcement wakes."""
        end_ms = self.clock.monotonic_ms() + int(seconds * 1_000)
        while self.clock.monotonic_ms() < end_ms:
            self.clock.advance(min(self.feed.step(), end_ms - self.clock.monotonic_ms()))
        self.feed.step()

    def at(self, store: int) -> int:
        chains = self.sorter.received.get(store)
        return chains[-1].at_ts if chains else 0


@pytest.mark.parametrize("error", [Unavailable("slow down"), InvalidRequest("a link leads out of the store")])
def test_trouble_with_one_store_leaves_the_others_alone(error: TiStreamError) -> None:
    objects, sorter, clock = TroubledStore(), Sorter(), ManualClock(1_000)
    feed = new_feed(objects, sorter, clock)
    for store in (1, 2, 3):
        file = TINY.file(store, 200, 0, [], watermark(6, 5, 150, base_ts=100))
        objects.put(file.key, file.data)
    objects.error = error
    for _ in range(4):
        feed.step()
        clock.advance(1_000)
    assert sorted(sorter.received) == [1, 3]
    _, holds = feed.status()
    assert [(hold.stage, hold.store_id, hold.reason) for hold in holds] == [("dispatch", "2", str(error))]
    objects.error = None
    for _ in range(4):
        feed.step()
        clock.advance(1_000)
    assert sorted(sorter.received) == [1, 2, 3]
    assert feed.status()[1] == ()


def test_an_announced_file_that_cannot_be_read_at_once_is_asked_for_again_soon() -> None:
    silent = Silent()
    silent.put(1, 220, 210)
    silent.objects.failing = ["get_tail"]
    silent.feed.announce(1, 220)
    silent.run(2)
    assert silent.at(1) == 220
    silent.run(3_600)
    silent.put(1, 230, 220)
    silent.objects.failing = ["get_tail", "files", "files"]
    silent.feed.announce(1, 230)
    silent.run(4)
    assert silent.at(1) == 230


def test_an_announced_file_that_is_not_there_yet_is_looked_for_soon() -> None:
    silent = Silent()
    silent.feed.announce(1, 220)
    silent.feed.step()
    silent.put(1, 220, 210)
    silent.run(2)
    assert silent.at(1) == 220


def test_a_flood_of_announcements_is_not_kept_and_what_was_true_of_it_is_found() -> None:
    silent = Silent()
    silent.put(1, 220, 210)
    for number in range(10_000):
        silent.feed.announce(1_000 + number, 220)
    silent.feed.announce(1, 220)
    looked_at: list[str] = []
    silent.objects.while_heading = looked_at.append
    silent.run(2)
    assert silent.at(1) == 220
    assert len(looked_at) < 5_000


def test_what_a_flood_of_old_announcements_left_no_room_for_is_looked_for_at_once() -> None:
    silent = Silent()
    silent.put(1, 220, 210)
    for _ in range(5_000):
        silent.feed.announce(1, 210)
    silent.feed.announce(1, 220)
    silent.run(2)
    assert silent.at(1) == 220


@pytest.mark.parametrize("late", [False, True])
def test_an_announced_store_that_cannot_be_looked_at_at_once_is_found_soon(late: bool) -> None:
    silent = Silent()
    if not late:
        silent.objects.failing = ["head"]
        silent.put(2, 220, 0)
    silent.feed.announce(2, 220)
    silent.feed.step()
    if late:
        silent.put(2, 220, 0)
    silent.run(2)
    assert silent.at(2) == 220
    assert silent.feed.status()[1] == ()


@pytest.mark.parametrize("what", ["files", "stores"])
def test_a_list_that_failed_is_tried_again_soon_and_not_told_any_longer(what: str) -> None:
    silent = Silent()
    silent.objects.failing = [what] * 5
    while len(silent.objects.failing) == 5:
        silent.run(1)
    assert silent.feed.status()[1] != ()
    silent.run(8)
    assert silent.feed.status()[1] == ()


@pytest.mark.parametrize("tell", [TenantFeed.announcements_lost, TenantFeed.list_now])
def test_what_is_told_while_files_are_listed_is_not_lost(tell: Callable[[TenantFeed], None]) -> None:
    silent = Silent()
    listed: list[int] = []

    def while_listing() -> None:
        listed.append(silent.clock.monotonic_ms())
        if len(listed) == 1:
            tell(silent.feed)

    silent.objects.while_listing = while_listing
    while not listed:
        silent.run(1)
    silent.feed.step()  # the loop was woken
    assert len(listed) == 2


def test_announcements_from_before_the_meta_server_fell_silent_are_no_reason_to_trust_in_more() -> None:
    silent = Silent()
    silent.put(1, 220, 210)
    silent.feed.announce(1, 220)
    silent.feed.announcements_lost()
    silent.run(7_200)
    silent.put(1, 230, 220)
    silent.run(61)
    assert silent.at(1) == 230


@pytest.mark.parametrize("announced", [False, True])
def test_a_silent_store_of_a_tenant_whose_other_stores_are_busy_elsewhere_is_looked_at_like_theirs(
    announced: bool,
) -> None:
    """Another dispatcher reads those: it is seen by what the sorters have, or by what is announced."""
    silent = Silent(durable=announced)
    if announced:
        assert silent.feed.announced_for_other()
        assert not silent.feed.announced_for_other(), "once a second is enough"
    else:
        silent.sorter.received[9] = [Chain(first_ts=500, at_ts=600)]
        silent.run(2)
    silent.put(1, 220, 210)
    silent.run(3)
    assert silent.at(1) == 220


def test_a_row_group_that_ends_at_a_tasks_very_first_key_goes_to_it_too() -> None:
    router = Router([TaskSpan(1, KeySpan(b"", b"m")), TaskSpan(2, KeySpan(b"m", b""))])
    assert router.row_groups([Group(b"a", b"m")]) == {1: (0,), 2: (0,)}
    assert router.row_groups([Group(b"a", b"l\xff")]) == {1: (0,)}
    assert router.row_groups([Group(b"m", b"m")]) == {2: (0,)}
