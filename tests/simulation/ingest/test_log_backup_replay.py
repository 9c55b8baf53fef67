"""The golden log backups, put by put, through the adapter, the sorter's ticks and the API's reader."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator

import polars as pl
import pytest
from polars.testing import assert_frame_equal

from support import compare, golden
from support.effort import cases, seeds
from support.log_backup import NAMES, SMALL, Adapted, truth
from tistream.errors import NotFoundYet
from tistream.logbackup import prefix
from tistream.model.span import KeySpan
from tistream.storage.object_store import Body, ObjectInfo, ObjectStore
from tistream.storage.release_log import ReleaseLog
from tistream_ingest.plan.rules import SourceRules
from tistream_ingest.source.source import SourceRunner
from tistream_ingest.source.stopped import SourceHeld

COLUMNS = ["commit_ts", "start_ts", "key", "op_type", "value", "old_value", "txn_source"]


def window(name: str, low: int, high: int) -> pl.DataFrame:
    """What was committed in a window, as the columns of change files."""
    rows = truth(name).filter((pl.col("commit_ts") > low) & (pl.col("commit_ts") <= high))
    return rows.select(
        ["commit_ts", "start_ts", "key"],
        op_type=pl.col("op").cast(pl.Int32),
        value="value",
        old_value="old_value",
        txn_source="txn_source",
    )


def highest_checkpoint(adapted: Adapted) -> int:
    """The highest checkpoint that any store has written so far."""
    found = [adapted.bucket.get(info.key) for info in adapted.bucket.list_after(prefix.CHECKPOINTS)]
    return max((int.from_bytes(data, "little") for data in found), default=0)


@pytest.mark.parametrize(
    ("name", "rules"),
    cases(
        [("everything", SMALL), ("everything-6.5", SourceRules()), ("large", SMALL)],
        [("everything", SourceRules()), ("everything-6.5", SMALL), ("large", SourceRules())],
    ),
)
def test_each_release_has_exactly_the_changes_of_its_window(name: str, rules: SourceRules) -> None:
    adapted = Adapted(name, rules)
    source = adapted.adapter()
    released = adapted.set.start_ts
    for _ in adapted.replay():
        known = len(adapted.taken)
        adapted.run(source)
        assert source.released_ts == max(released, highest_checkpoint(adapted))
        files = adapted.files(known)
        if source.released_ts == released:
            assert files == []
            continue
        rows = pl.concat(files)
        assert_frame_equal(rows.select(COLUMNS), window(name, released, source.released_ts))
        released = source.released_ts
    assert released == adapted.set.end_ts
    assert adapted.watermarks() == sorted(set(adapted.watermarks()))
    assert adapted.watermarks()[-1] == released
    assert adapted.announced == [int(key.rpartition("-")[2]) for key in adapted.taken]


@pytest.mark.parametrize("name", NAMES)
def test_a_pull_of_a_log_backup_is_what_select_showed(name: str) -> None:
    cut = [KeySpan(b"", b"t\x80"), KeySpan(b"t\x80", b"t\x80\0\0\0\0\0\0\xa0"), KeySpan(b"t\x80\0\0\0\0\0\0\xa0", b"")]
    adapted = Adapted(name, SMALL, cut, seed=3)
    source = adapted.adapter()
    for _ in adapted.replay():
        adapted.run(source)
    assert adapted.simulation.pending_rows() == 0
    assert compare.tenant_differences(golden.load(adapted.set.pushed.name), adapted.events()) == []


class Died(BaseException):
    """The process was killed."""


class Mortal:
    """An object store whose caller is killed at random, before a request or after it was done."""

    def __init__(self, inner: ObjectStore, dies: Callable[[], bool]) -> None:
        self._inner, self._dies = inner, dies

    def __getattr__(self, name: str) -> Callable[..., object]:
        call = getattr(self._inner, name)

        def mortal(*args: object) -> object:
            if self._dies():
                raise Died
            done = call(*args)
            if self._dies():
                raise Died
            return done

        return mortal


@pytest.mark.parametrize("seed", seeds(2, 40))
def test_an_adapter_that_is_killed_anywhere_goes_on(seed: int) -> None:
    rng = random.Random(seed)
    name = NAMES[seed % len(NAMES)]
    adapted = Adapted(name, SMALL)
    deaths = 0

    def born() -> SourceRunner:
        store: ObjectStore = Mortal(adapted.objects, lambda: rng.random() < 0.01)  # type: ignore[assignment]
        log: ObjectStore = Mortal(adapted.bucket, lambda: rng.random() < 0.002)  # type: ignore[assignment]
        return adapted.adapter(store, log)

    source = born()
    puts = adapted.replay()
    while next(puts, None) is not None or (adapted.last_watermark() or 0) < adapted.set.end_ts:
        if rng.random() < 0.5 and 0 < (adapted.last_watermark() or 0) < adapted.set.end_ts:
            continue
        try:
            adapted.run(source)
        except Died:
            deaths += 1
            source = born()
    adapted.settle()
    assert deaths > 0
    check_whole(adapted)


def check_whole(adapted: Adapted) -> None:
    """The chain is whole, and the pool is the truth."""
    assert adapted.watermarks() == sorted(set(adapted.watermarks()))
    got = adapted.simulation.pool()
    assert_frame_equal(got, truth(adapted.name).select(got.columns))


class Hooked:
    """An object store that calls `before` ahead of each put of a record or a change file."""

    def __init__(self, inner: ObjectStore, before: Callable[[str], None]) -> None:
        self._inner, self._before = inner, before

    def put_new(self, key: str, body: Body) -> None:
        self._before(key)
        self._inner.put_new(key, bytes(body))

    def __getattr__(self, name: str) -> Callable[..., object]:
        found: Callable[..., object] = getattr(self._inner, name)
        return found


class Merged:
    """An object store in which each segment of the pool is gone when it is first read: compaction has replaced it. With
    `lost` it stays gone."""

    def __init__(self, inner: ObjectStore, *, lost: bool = False) -> None:
        self._inner, self._lost, self.gone = inner, lost, set[str]()

    def __getattr__(self, name: str) -> Callable[..., object]:
        call = getattr(self._inner, name)

        def read(key: str, *args: object) -> object:
            if "/segment/" in key and (self._lost or key not in self.gone):
                self.gone.add(key)
                raise NotFoundYet(key)
            return call(key, *args)

        return read if name.startswith("get") else call


def test_a_segment_that_the_newest_manifests_still_name_is_said_to_be_lost() -> None:
    adapted = Adapted("large", SMALL)
    source = adapted.adapter(Merged(adapted.objects, lost=True))  # type: ignore[arg-type]

    def run() -> None:
        for _ in adapted.replay():
            adapted.run(source)

    with pytest.raises(SourceHeld, match=r"it is lost: .*a sound copy in its place") as held:
        run()
    assert held.value.stage == "damaged"


def test_a_segment_that_is_compacted_away_while_old_values_are_read_holds_the_source_until_it_reads_again() -> None:
    adapted = Adapted("large", SMALL)
    objects = Merged(adapted.objects)
    source = adapted.adapter(objects)  # type: ignore[arg-type]
    for _ in adapted.replay():
        adapted.run(source)  # which repeats a step that holds
    assert objects.gone
    assert source.released_ts == adapted.set.end_ts
    check_whole(adapted)


@pytest.mark.parametrize("seed", seeds(1, 20))
def test_two_adapters_at_once_do_not_fork_the_chain(seed: int) -> None:
    """One takes whole steps before any put of the other, and may decide the release that the other is about to put."""
    rng = random.Random(seed)
    adapted = Adapted(NAMES[seed % len(NAMES)], SMALL)
    overtaken = 0
    other = adapted.adapter()

    def overtake(key: str) -> None:
        nonlocal overtaken
        if rng.random() < 0.5:
            overtaken += adapted.run(other)

    hooked: ObjectStore = Hooked(adapted.objects, overtake)  # type: ignore[assignment]
    source = adapted.adapter(hooked)
    for _ in adapted.replay():
        if rng.random() < 0.7:
            adapted.run(source if rng.random() < 0.7 else other)
    for one in (source, other, source):
        adapted.run(one)
    assert overtaken > 0
    assert source.released_ts == other.released_ts == adapted.set.end_ts
    check_whole(adapted)


def test_the_same_release_gives_the_same_bytes() -> None:
    """Each record, executed again at the end from the bucket alone, gives the files that are there."""
    adapted = Adapted("everything", SMALL)
    source = adapted.adapter()
    for _ in adapted.replay():
        adapted.run(source)
    written = {key: adapted.objects.get(key) for key in adapted.taken}
    for key in written:
        adapted.objects.delete(key)
    log = ReleaseLog(adapted.objects, adapted.tenant)
    newest = log.newest()
    assert newest is not None
    again = adapted.adapter()
    for number in range(1, newest.number + 1):
        again.execute(log.read(number))
    assert {key: adapted.objects.get(key) for key in adapted.taken} == written


class Lagging:
    """A bucket to which objects come while it is listed: right after each LIST of metadata, the next flush and its
    checkpoint are there."""

    def __init__(self, adapted: Adapted) -> None:
        self._inner = adapted.bucket
        self._puts = iter(adapted.set.puts)

    def more(self) -> bool:
        """Put objects up to the next checkpoint. Returns whether there was one."""
        for key, body in self._puts:
            self._inner.put(key, body)
            if key.startswith(prefix.CHECKPOINTS):
                return True
        return False

    def list_after(self, below: str, after: str = "", delimiter: str = "") -> Iterator[ObjectInfo]:
        found = list(self._inner.list_after(below, after, delimiter))
        if below == prefix.METAS:
            self.more()
        return iter(found)

    def __getattr__(self, name: str) -> Callable[..., object]:
        found: Callable[..., object] = getattr(self._inner, name)
        return found


@pytest.mark.parametrize("name", NAMES)
def test_flushes_that_come_while_the_bucket_is_listed_lose_nothing(name: str) -> None:
    adapted = Adapted(name)
    bucket = Lagging(adapted)
    source = adapted.adapter(log=bucket)  # type: ignore[arg-type]
    while bucket.more():
        adapted.run(source)
    adapted.run(source)
    assert source.released_ts == adapted.set.end_ts
    check_whole(adapted)
