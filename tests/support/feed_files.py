"""Runs a changefeed over a golden set into files, with the worker's own holder, and reads the files back as a reader of
TiCDC's layout does."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from random import Random
from typing import Any, cast

from prometheus_client import CollectorRegistry

from support.feed_run import CLOCK, WINDOW_BYTES, StillView
from support.pull_world import World
from tistream.follow.tenant_view import TenantView
from tistream.storage.object_store import ObjectStore
from tistream.wire.bulk.changefeeds import Skip
from tistream_changefeed.core.progress import Fence
from tistream_changefeed.core.shard import Order, Shard
from tistream_changefeed.hold.holder import Holder
from tistream_changefeed.metrics import ChangefeedMetrics
from tistream_changefeed.sinks.storage.paths import schema_version
from tistream_changefeed.sinks.storage.root import SinkRoot
from tistream_changefeed.sinks.storage.storage_feed import storage_feed
from tistream_changefeed.sinks.storage.storage_sink import StorageSink

URL = "s3://bucket/feed"


class Killed(BaseException):
    """The worker is dead."""


class MortalStore:
    """The object store of a worker that is killed before the call with the number `last`."""

    def __init__(self, inner: ObjectStore, last: int) -> None:
        self._inner, self._left = inner, last

    def __getattr__(self, name: str) -> Any:
        self._left -= 1
        if self._left < 0:
            raise Killed
        return getattr(self._inner, name)


EVERY_TABLE: dict[str, Any] = {"force-replicate": True}


def holder_of_files(
    world: World,
    options: str,
    objects: ObjectStore,
    epoch: int = 1,
    document: Mapping[str, Any] = EVERY_TABLE,
    skips: Sequence[Skip] = (),
) -> Holder:
    """A holder of a feed's only shard, from the world's beginning to its end, into `objects`. `options`: of the sink
    URI."""
    feed = storage_feed(f"{URL}?{options}", document, skips)
    order = Order(world.tenant, "files", 0, Fence(1, epoch), world.snapshot_ts, world.end_ts)
    view = cast(TenantView, StillView(world))
    return Holder(
        Shard(order, Random(1)),
        lambda: view,
        lambda: StorageSink(feed.target, SinkRoot(objects, URL, feed.target.layout), order, CLOCK),
        feed.pipeline_of(order, {}),
        CLOCK,
        world.budget,
        WINDOW_BYTES,
        ChangefeedMetrics(CollectorRegistry()),
    )


def indexed_files(objects: ObjectStore) -> Iterator[tuple[str, list[bytes]]]:
    """For each directory of data files, by name: the contents of those that its index file says are there, in order."""
    for info in objects.list_after(""):
        directory, is_index, _ = info.key.rpartition("/meta/CDC.index")
        if is_index and info.key.endswith("/meta/CDC.index"):
            last = objects.get(info.key).decode().strip()
            digits, suffix = last.removeprefix("CDC").split(".")
            names = (f"CDC{number:0{len(digits)}}.{suffix}" for number in range(1, int(digits) + 1))
            yield directory, [objects.get(f"{directory}/{name}") for name in names]


def data_files(objects: ObjectStore) -> set[str]:
    """The keys of all data files, whether an index file names them or not."""
    names = [info.key for info in objects.list_after("")]
    return {key for key in names if key.rpartition("/")[2].startswith("CDC") and not key.endswith("CDC.index")}


def schema_files_of(objects: ObjectStore) -> dict[str, bytes]:
    """All schema files by key."""
    keys = [info.key for info in objects.list_after("")]
    return {key: objects.get(key) for key in keys if schema_version(key) is not None}
