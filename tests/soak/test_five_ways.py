"""One recorded run through REST, Kafka, MariaDB, files and Iceberg at once, while the workers of the feeds are killed
(kill -9): whenever the platform stands still, all five show each table as it was."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import polars as pl
import pyarrow as pa
import pytest
from pyiceberg.catalog import load_catalog

from support import golden, platform
from support.feed_lake import plain, value_of
from support.kafka import CommittedReader, kafka
from support.killed_feeds import checkpoint, settled
from support.mariadb import MariaDb
from support.mariadb import running as mariadb_running
from support.mysql_feed import emptied, rows_at, there
from support.platform import Platform
from support.pull import Consumer
from support.pull_world import golden_world
from support.waiting import eventually
from tistream.consume.feed_events import RowEvent
from tistream.consume.open_protocol import decode
from tistream.decode.rows import decode_rows
from tistream.read.cursor import Scope
from tistream.restore.fingerprint import of_rows
from tistream.schema.tidb.create_table import Dialect
from tistream.schema.visible import TableVersion
from tistream_changefeed.rows.handle_key import handle_columns
from tistream_cli.platform.local_kafka import LocalKafka
from tistream_client import TiStream

SET = "everything"
RULES = ["shop.orders", "shop.items", "shop.big", "shop.k_comp"]
STOPS = 4
TOPIC = "changes"
USER = "feed"
SMALL = {
    "TISTREAM_CHANGEFEED__WINDOW_BYTES": "4096",
    "TISTREAM_CHANGEFEED__CHUNK_ROWS": "256",
    "TISTREAM_SORTER__TICK__IDLE_MANIFEST_MS": "500",
}
Rows = Counter[tuple[Any, ...]]


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[LocalKafka]:
    with kafka(tmp_path / "kafka") as one:
        yield one


@pytest.fixture
def server(tmp_path: Path) -> Iterator[MariaDb]:
    with mariadb_running(tmp_path / "mariadb") as one:
        emptied(one)
        one.run(f"ALTER USER {USER}@127.0.0.1 IDENTIFIED BY ''")
        yield one


@pytest.fixture
def up(tmp_path: Path) -> Iterator[Platform]:
    environ = {**SMALL, "TISTREAM_CHANGEFEED__CLAIM_CHECK_URLS": f"file://{tmp_path}"}
    options = ("--changefeeds", "2")
    with platform.running(tmp_path / "platform", options=options, environ=environ, killed=True) as started:
        yield started


def test_all_ways_show_each_table_as_it_was(up: Platform, broker: LocalKafka, server: MariaDb, tmp_path: Path) -> None:
    loaded, rng = golden.load(SET), Random(1)
    golden.put(up.objects, loaded.schema_snap)
    consumer = up.create_for(loaded)
    lake = f"catalog-uri=sqlite:///{tmp_path}/catalog.db&warehouse=file://{tmp_path}/lake&mode=both"
    feeds = {
        "kafka": f"kafka://{broker.address}/{TOPIC}?protocol=open-protocol&partition-num=3",
        "mysql": f"mysql://{USER}@127.0.0.1:{server.port}/?worker-count=3",
        "files": f"file://{tmp_path}/files?protocol=parquet&flush-interval=1s",
        "lake": f"iceberg://lake?{lake}&flush-interval=1s",
    }
    for name, uri in feeds.items():
        eventually(partial(_created, consumer, name, uri, loaded.snapshot_ts))
    pushing = iter(loaded.files)
    stops = [len(loaded.files) * number // STOPS for number in range(1, STOPS + 1)]
    reader, strikes = CommittedReader(broker.address, TOPIC), 0
    for before, stop in zip([0, *stops], stops, strict=False):
        for number in range(before, stop):
            delivery = next(pushing)
            golden.put(up.objects, delivery)
            golden.announce(up.url, delivery)
            if rng.random() < 4 / (stop - before) or number == before:
                eventually(lambda: up.strike("changefeed"))
                strikes += 1
        ts = settled(up, consumer, loaded.files[:stop])
        for name in feeds:
            eventually(lambda name=name, ts=ts: checkpoint(consumer, name) >= ts, pause_s=0.5)
        reader.read_all()
        _check(ts, up, reader, server, tmp_path)
    reader.close()
    assert ts >= loaded.end_ts
    print(f"{STOPS} stops, {strikes} strikes, {len(RULES)} tables")


def _check(ts: int, up: Platform, reader: CommittedReader, server: MariaDb, tmp_path: Path) -> None:
    world = golden_world(SET)
    catalog = load_catalog("lake", type="sql", uri=f"sqlite:///{tmp_path}/catalog.db")
    in_kafka = _in_kafka(reader)
    shown = 0
    with TiStream(up.url) as client:
        for version in world.source.tables_at(ts, Scope(world.tenant)):
            if ".".join(version.name) not in RULES:
                continue
            batch = _truth(version, ts)
            truth = _counted(batch)
            shown += len(truth)
            table = client.tenant(*str(world.tenant).split("/")).table(*version.name)
            ways: Mapping[str, Callable[[], Any]] = {
                "REST": lambda table=table: _counted(table.at(ts).to_arrow()),
                "files": lambda version=version: _in_files(tmp_path / "files", version, ts),
            }
            for way, rows in ways.items():
                assert rows() == truth, (way, version.name, ts)
            assert in_kafka.get(version.name, Counter()) == _texts(batch), ("Kafka", version.name, ts)
            assert there(server, version) == of_rows(batch, version.table.visible_columns, Dialect.MARIADB), (
                "MariaDB",
                version.name,
                ts,
            )
            mirrored = catalog.load_table(".".join(version.name))
            kinds = {one.name: one.field_type for one in mirrored.schema().fields if not one.name.startswith("_")}
            found = mirrored.scan().to_arrow().select(list(kinds)).to_pylist()
            values = batch.to_pylist()
            assert Counter(tuple(plain(row[name]) for name in kinds) for row in found) == Counter(
                tuple(value_of(kind, row[name]) for name, kind in kinds.items()) for row in values
            ), ("Iceberg", version.name, ts)
            again = table.at(ts).over(mirrored).to_arrow()
            assert again.num_rows == batch.num_rows
    assert shown or ts < golden.load(SET).end_ts


def _truth(version: TableVersion, ts: int) -> pa.RecordBatch:
    """The rows that the recorded TiDB had, decoded from what it has committed."""
    last = rows_at(SET, version, ts)
    keys, values = (last[one].to_arrow().cast(pa.binary()) for one in ("key", "value"))
    found = decode_rows(version.table, version.table.visible_columns, keys, values)
    assert not found.errors
    names = [column.name for column in version.table.visible_columns]
    return pa.RecordBatch.from_arrays(found.batch.columns[: len(names)], names=names)


def _counted(rows: pa.RecordBatch | pa.Table) -> Rows:
    return Counter(tuple(row.values()) for row in rows.to_pylist())


def _texts(rows: pa.RecordBatch) -> Rows:
    return Counter(tuple(map(_text, row.values())) for row in rows.to_pylist())


def _text(value: Any) -> str | None:
    return value if value is None else value.decode() if isinstance(value, bytes) else str(value)


def _in_files(root: Path, version: TableVersion, ts: int) -> Rows:
    """The rows that remain if the files of a table are read in the order of commits."""
    paths = [path for path in root.joinpath(*version.name).rglob("CDC*.parquet") if _is_named(path)]
    if not paths:
        return Counter()
    names = [column.name for column in version.table.visible_columns]
    keys = [column.name for column in handle_columns(version.table)]
    changes = pl.concat([pl.read_parquet(path) for path in paths], how="diagonal_relaxed")
    changes = changes.filter(pl.col("_commit_ts") <= ts).sort("_commit_ts", maintain_order=True)
    last = changes.group_by(keys, maintain_order=True).last().filter(pl.col("_op") != "D")
    return Counter(last.select(names).rows())


def _is_named(path: Path) -> bool:
    """Whether an index file says that readers may take a data file."""
    index = path.parent / "meta" / "CDC.index"
    return index.exists() and path.name <= index.read_text().strip()


def _in_kafka(reader: CommittedReader) -> dict[tuple[str, str], Rows]:
    """The rows of each table that remain if the messages of each partition are applied in order."""
    state: dict[tuple[str, str], dict[tuple[Any, ...], tuple[str | None, ...]]] = {}
    for messages in reader.seen.values():
        for _, key, value in messages:
            for event in decode(key, value):
                if not isinstance(event, RowEvent):
                    continue
                rows = state.setdefault(event.name, {})
                if event.old is not None:
                    rows.pop(tuple(event.old[name] for name in event.key), None)
                if event.new is not None:
                    rows[tuple(event.new[name] for name in event.key)] = tuple(map(_text, event.new.values()))
    return {name: Counter(rows.values()) for name, rows in state.items()}


def _created(consumer: Consumer, name: str, uri: str, start_ts: int) -> bool:
    document = {"filter": {"rules": RULES}}
    body = {"changefeed_id": name, "sink_uri": uri, "start_ts": str(start_ts), "config": document}
    answer = consumer.client.post(f"{consumer.base}/changefeeds", json=body)
    assert answer.status_code in (200, 201, 503), answer.text
    return answer.status_code != 503
