"""A comparison of a feed's files with the pool finds each row that is missing, strange or twice there."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import pytest

from support.feed_batches import golden_window
from support.feed_files import URL, data_files, holder_of_files
from support.feed_run import CLOCK, StillView, finish
from support.pull_world import World, golden_world
from support.waiting import PATIENCE_S
from tistream.errors import InvalidRequest, TargetNotAllowed
from tistream.pool.versions.reader import StoreReader
from tistream.storage.backends.memory import MemoryObjectStore
from tistream.wire.bulk.changefeeds import Skip
from tistream.wire.bulk.feed_verify import FeedVerification, VerifyFeed
from tistream_changefeed.hold.secret_keys import SecretKeys
from tistream_changefeed.sinks.storage.metadata import manifest
from tistream_changefeed.sinks.storage.paths import WINDOWS, manifest_key, window_directory
from tistream_changefeed.sinks.storage.root import SinkRoot
from tistream_changefeed.sinks.storage.storage_feed import storage_feed
from tistream_changefeed.verify.file_events import reading
from tistream_changefeed.verify.files import FileComparison
from tistream_changefeed.verify.verification import Verifications

DOCUMENT: dict[str, Any] = {"force-replicate": True, "sink": {"csv": {"include-commit-ts": True}}}
BOTH = {"force-replicate": True, "sink": {"csv": {"include-commit-ts": True, "output-old-value": True}}}
PARQUET = "protocol=parquet&file-size=20000"


@pytest.fixture(scope="module")
def world() -> World:
    return golden_world("everything")


@dataclass(frozen=True)
class Written:
    """The files of a feed over the whole set."""

    world: World
    options: str
    document: dict[str, Any]
    objects: MemoryObjectStore
    skips: Sequence[Skip] = ()

    def verified(self, **more: Any) -> FeedVerification:
        """What a worker finds of the whole set."""
        feed = storage_feed(f"{URL}?{self.options}", self.document, self.skips)
        how = reading(feed.config)
        assert not isinstance(how, str)
        ask = asked(self.world, f"{URL}?{self.options}", self.document, **more)
        root, view = SinkRoot(self.objects, URL, feed.target.layout), cast(Any, StillView(self.world))
        deadline_ms = CLOCK.monotonic_ms() + int(PATIENCE_S * 1000)
        of, budget = self.world.tenant, self.world.budget
        return FileComparison(ask, of, feed, how, root, view, budget, CLOCK, deadline_ms).result()


def asked(world: World, uri: str, document: dict[str, Any], **more: Any) -> VerifyFeed:
    of, whole = world.tenant, {"from_ts": world.snapshot_ts, "to_ts": world.end_ts}
    names = {"cluster_id": of.cluster_id, "tenant_id": of.tenant_id, "changefeed_id": "files"}
    return VerifyFeed(**names, sink_uri=uri, config=document, **{**whole, **more})


def written(world: World, options: str, document: dict[str, Any] = DOCUMENT, skips: Sequence[Skip] = ()) -> Written:
    objects = MemoryObjectStore()
    finish(holder_of_files(world, options, objects, document=document, skips=skips))
    return Written(world, options, document, objects, skips)


@pytest.mark.parametrize(
    ("options", "document"),
    [
        ("protocol=csv&flush-interval=100ms&file-size=20000", DOCUMENT),
        ("protocol=csv&date-separator=none&enable-partition-separator=false&terminator=%0A", BOTH),
        ("protocol=canal-json&enable-tidb-extension=true&date-separator=month", DOCUMENT),
        (PARQUET, DOCUMENT),
        (f"{PARQUET}&layout=window&flush-interval=100ms", DOCUMENT),
    ],
)
def test_files_that_a_feed_has_written_are_equal(world: World, options: str, document: dict[str, Any]) -> None:
    files = written(world, options, document)
    found = files.verified()
    assert found.equal, found.differences[:3]
    assert (found.of, len(found.tables) > 5) == ("files", True)
    assert all(one.events == one.messages for one in found.tables)
    assert found.windows > 0 or "flush-interval" not in options
    whole = sum(one.events for one in found.tables)
    middle = world.snapshot_ts + (world.end_ts - world.snapshot_ts) // 2
    for part in ({"from_ts": middle}, {"to_ts": middle}):
        some = files.verified(**part)
        assert some.equal, some.differences[:3]
        assert 0 < sum(one.events for one in some.tables) < whole


def test_what_differs_is_named_with_its_file(world: World) -> None:
    options = "protocol=canal-json&enable-tidb-extension=true&flush-interval=100ms&file-size=20000"
    files = written(world, options, {**DOCUMENT, "filter": {"rules": ["shop.orders", "shop.k_*"]}})
    objects = files.objects
    key = max(
        (one for one in data_files(objects) if one.startswith("shop/orders/")), key=lambda one: len(objects.get(one))
    )
    body = objects.get(key)
    lines = body.splitlines(keepends=True)
    lost, twice, strange = lines[3], lines[5], lines[7]

    def told(change: Callable[[list[bytes]], list[bytes]]) -> list[tuple[str, str, str, int | None]]:
        objects.put(key, b"".join(change(list(lines))))
        found = files.verified(table="shop.orders")
        assert not found.equal
        assert {one.table for one in found.window_differences} == {"orders"}
        assert len(found.tables) == 1
        return [(one.what, one.topic, one.table, one.offset) for one in found.differences]

    directory = key.rpartition("/")[0].replace(key.split("/")[2] + "/", "")
    assert told(lambda all_: [one for one in all_ if one != lost]) == [("missing", directory, "orders", None)]
    assert told(lambda all_: [*all_[:6], twice, *all_[6:]]) == [("repeated", key, "orders", 5)]
    changed = strange.replace(b'"type":"INSERT"', b'"type": "INSERT"').replace(b'"type":"UPDATE"', b'"type": "UPDATE"')
    assert changed != strange
    assert sorted(told(lambda all_: [changed if one == strange else one for one in all_])) == [
        ("missing", directory, "orders", None),
        ("unexpected", key, "orders", 7),
    ]
    objects.delete(key)
    gone = files.verified()
    assert {(one.what, one.table) for one in gone.differences} == {("missing", "orders")}
    assert gone.differences[0].key.keys() == {"id"}
    assert sum(one.missing for one in gone.tables) == len(lines)


def test_a_row_that_a_person_has_skipped_is_not_missing(world: World) -> None:
    batch = next(one for one in golden_window(numbered=False).batches if one.version.name == ("shop", "orders"))
    skip = Skip(commit_ts=int(batch.commit_ts[0]), table="shop.orders", key=batch.raw[0].as_py().hex(), reason="wrong")
    files = written(world, PARQUET, {"filter": {"rules": ["shop.orders"]}}, [skip])
    assert files.verified().equal
    (lost,) = replace(files, skips=()).verified().differences
    assert (lost.what, lost.commit_ts) == ("missing", str(skip.commit_ts))


def test_the_keys_of_lost_rows_are_named_in_each_format(world: World) -> None:
    rules = {"filter": {"rules": ["shop.orders", "shop.k_str"]}}
    csv = {"include-commit-ts": True, "output-old-value": True}
    named = []
    for options, form in (
        ("protocol=csv", csv),
        ("protocol=csv", {**csv, "quote": ""}),
        ("protocol=canal-json&enable-tidb-extension=true", {}),
        (PARQUET, {}),
    ):
        files = written(world, options, {**rules, "sink": {"csv": form}})
        for key in data_files(files.objects):
            files.objects.delete(key)
        found = files.verified().differences
        named.append({(one.commit_ts, one.table, *(str(value) for value in one.key.values())) for one in found})
    assert {len(one) for row in named for one in row} == {3}
    assert all(one == named[0] for one in named[1:])


def test_what_cannot_be_compared_is_refused_with_the_way_out(world: World) -> None:
    by = Verifications(
        (), SecretKeys(None), lambda _: cast(Any, StillView(world)), CLOCK, world.budget, StoreReader(world.objects)
    )
    for options, document, more, text in (
        ("protocol=csv", {}, {}, "include-commit-ts = true"),
        ("protocol=canal-json", {}, {}, "enable-tidb-extension=true"),
        (PARQUET, {}, {"repair_topic": "t"}, "create a feed with this start_ts"),
    ):
        with pytest.raises(InvalidRequest, match=text):
            by.verify(asked(world, f"{URL}?{options}", document, **more))
    with pytest.raises(TargetNotAllowed):
        by.verify(asked(world, f"{URL}?{PARQUET}", {}))
    for options, spoil, text in (
        (PARQUET, 9, "it is no Parquet file"),
        ("protocol=csv", 9, "it ends inside a"),
        ("protocol=canal-json&enable-tidb-extension=true", 2, "it ends inside a line"),
    ):
        files = written(world, options, {**DOCUMENT, "filter": {"rules": ["shop.orders"]}})
        (key, *_) = sorted(data_files(files.objects))
        files.objects.put(key, files.objects.get(key)[:-spoil])
        with pytest.raises(InvalidRequest, match=f"{key}: {text}"):
            files.verified()


def test_a_window_that_overlaps_others_is_read_after_a_move_back_and_a_foreign_manifest_is_refused(
    world: World,
) -> None:
    files = written(world, f"{PARQUET}&layout=window&flush-interval=100ms")
    objects = files.objects
    key = max(info.key for info in objects.list_after(f"{WINDOWS}/") if info.key.endswith("/manifest.json"))
    start_ts = int(key.split("/")[1].partition("-")[0])
    again = manifest_key(window_directory(start_ts + 1, 1, 10**9))
    objects.put(again, manifest(start_ts + 2, []))  # the checkpoint was moved back to start_ts + 1
    found = files.verified(from_ts=start_ts + 2)
    assert (found.equal, len(found.tables) > 0) == (True, True)
    objects.put(again, manifest(world.end_ts, ["orders/CDC1.parquet"]))
    with pytest.raises(InvalidRequest, match=f"{again}: it names orders/CDC1.parquet, which is no data file"):
        files.verified()
