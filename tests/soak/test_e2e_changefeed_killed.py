"""A changefeed into a real Kafka under load: workers, the broker and the meta server are killed (kill -9) at random.

MINUTES (default 1; ten in a long run) and ROWS_PER_S (default 5,000) of the environment set its length and its load.
"""

from __future__ import annotations

import os
import subprocess
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from random import Random

import pytest

from support import platform
from support.kafka import CommittedReader, kafka
from support.killed_feeds import checkpoint, standing
from support.platform import COMMAND, Platform
from support.pull import Consumer, Page, Refused
from support.waiting import awaited, eventually
from tistream.consume.feed_events import DdlEvent, ResolvedEvent, RowEvent
from tistream.consume.open_protocol import decode
from tistream.model.ids import TenantKey
from tistream_cli.platform.local_kafka import LocalKafka

SECONDS = 60 * float(os.environ.get("MINUTES", "1"))
ROWS_PER_S = os.environ.get("ROWS_PER_S", "5000")
TENANT = TenantKey("1", "simulated")
VICTIMS = ("changefeed", "kafka", "meta")
TOPIC, PARTITIONS = "changes", 3
VERIFIED_MS = 20_000  # so much is compared with the fingerprints
Row = tuple[int, str, str, str, str]  # commit_ts, database, table, key, operation


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[LocalKafka]:
    with kafka(tmp_path / "kafka") as one:
        yield one


@pytest.fixture
def up(tmp_path: Path) -> Iterator[Platform]:
    with platform.running(tmp_path / "platform", options=("--changefeeds", "1"), killed=True) as started:
        yield started


def test_each_change_is_in_kafka_once_though_everything_is_killed(up: Platform, broker: LocalKafka) -> None:
    rng = Random(1)
    command = [str(COMMAND), "simulate", "--objects", str(up.objects), "--url", up.url, "--tenant", TENANT.tenant_id]
    command += ["--rows-per-s", ROWS_PER_S, "--ddl-per-min", "6", "--duration", str(SECONDS)]
    log = up.data_dir / "logs" / "simulate.log"  # a failed test shows its end
    with log.open("wb") as out:
        load = subprocess.Popen(command, stdout=out, stderr=out)
    try:
        consumer = up.consumer(TENANT)
        uri = f"kafka://{broker.address}/{TOPIC}?protocol=open-protocol&partition-num={PARTITIONS}"
        eventually(lambda: _created(consumer, uri))
        strikes = Counter[str]()
        while load.poll() is None or len(strikes) < len(VICTIMS):
            victims = rng.sample(VICTIMS, len(VICTIMS))
            for victim in victims:
                time.sleep(rng.uniform(2, 8))
                _strike(up, broker, victim, rng)
                strikes[victim] += 1
        assert load.returncode == 0, log.read_text()[-2_000:]
    finally:
        load.kill()
        load.wait()
    feed = consumer.client.get(f"{consumer.base}/changefeeds/all").json()
    start_ts, until_ts = int(feed["start_ts"]), standing(consumer)
    eventually(lambda: checkpoint(consumer, "all") >= until_ts, pause_s=1.0)
    rows, ddls = _pulled(consumer, start_ts, until_ts)
    assert rows
    found, found_ddls = _in_kafka(broker, until_ts)
    assert _differences(rows, found) == []
    assert found_ddls.keys() <= ddls
    assert set(found_ddls.values()) <= {PARTITIONS}, "each DDL is in each partition, once"
    windows = _verified(consumer, max(stamp for stamp, *_ in rows) - (VERIFIED_MS << 18), until_ts)
    print(f"{sum(rows.values())} rows, {len(ddls)} DDLs, {windows} windows, strikes {dict(strikes)}, {feed['epoch']=}")


def _verified(consumer: Consumer, from_ts: int, until_ts: int) -> int:
    """Compare this range by the product's own call. Returns how many windows have the fingerprints that were stored
    with the progress."""
    answers = []
    lowest_ts = int(consumer.client.get(f"{consumer.base}/changefeeds/all").json()["start_ts"])

    def verified() -> bool:
        body = {"from_ts": str(max(from_ts, lowest_ts)), "to_ts": str(until_ts)}
        answers.append(consumer.client.post(f"{consumer.base}/changefeeds/all/verify", json=body))
        assert answers[-1].status_code in (200, 503), answers[-1].text
        return answers[-1].status_code == 200

    eventually(verified, pause_s=1.0)
    found = answers[-1].json()
    assert found["equal"], (found["differences"][:3], found["window_differences"][:3])
    assert found["windows"] > 0
    return int(found["windows"])


def _differences(wanted: Counter[Row], found: Counter[Row]) -> list[str]:
    """What differs, in a few lines: rows that are missing or too many, by table, with their lowest and highest ts."""
    out = []
    for what, rows in (("missing", wanted - found), ("too many", found - wanted)):
        for table in sorted({row[1:3] for row in rows}):
            stamps = sorted(row[0] for row in rows if row[1:3] == table)
            out.append(f"{what}: {len(stamps)} rows of {'.'.join(table)} at {stamps[0]} to {stamps[-1]}")
    return out


def _created(consumer: Consumer, uri: str) -> bool:
    answer = consumer.client.post(f"{consumer.base}/changefeeds", json={"changefeed_id": "all", "sink_uri": uri})
    assert answer.status_code in (200, 201, 404, 503), answer.text  # the tenant is not known yet, or cannot be read yet
    return answer.status_code in (200, 201)


def _strike(up: Platform, broker: LocalKafka, victim: str, rng: Random) -> None:
    """kill -9 of a victim. The platform starts its services again; the broker is away for some seconds."""
    if victim == "kafka":
        broker.kill()
        time.sleep(rng.uniform(0, 3))
        broker.start()
    else:
        eventually(lambda: up.strike(victim))


def _pulled(consumer: Consumer, start_ts: int, until_ts: int) -> tuple[Counter[Row], set[int]]:
    """The changes as a pull shows them, and the commit_ts of DDLs."""
    rows, ddls = Counter[Row](), set[int]()
    at: dict[str, str] = {"start_ts": str(start_ts), "end_ts": str(until_ts)}
    while True:
        page = awaited(partial(_page, consumer, at))
        assert page is not None
        for event in page.events:
            commit_ts = int(event["commit_ts"])
            if event["type"] == "ddl":
                ddls.add(commit_ts)
                continue
            if "_tidb_rowid" in event["key"]:  # a feed leaves out tables without a key, unless force-replicate is set
                continue
            key = ",".join(map(str, event["key"].values()))
            kind = "delete" if event["op"] == "delete" else "put"
            rows[commit_ts, event["database"], event["table"], key, kind] += 1
        if page.end["type"] == "resolved" and int(page.end["resolved_ts"]) >= until_ts:
            return rows, ddls
        at = {"cursor": page.cursor, "end_ts": str(until_ts)}


def _page(consumer: Consumer, at: Mapping[str, str]) -> Page | None:
    """One pull; None if it is refused now."""
    try:
        return consumer.page(**at, limit=20_000)
    except Refused:
        return None


def _in_kafka(broker: LocalKafka, until_ts: int) -> tuple[Counter[Row], dict[int, int]]:
    """The changes up to `until_ts` as a reader of committed messages finds them, and in how many partitions each DDL
    is. Order and resolved messages are checked on the way (invariants 41 and 42)."""
    reader = CommittedReader(broker.address, TOPIC)
    reader.read_all()
    reader.close()
    rows, ddls = Counter[Row](), Counter[int]()
    for number, messages in reader.seen.items():
        at = resolved = 0
        for _, key, value in messages:
            for event in decode(key, value):
                if isinstance(event, ResolvedEvent):
                    assert event.ts > resolved, f"partition {number}: resolved {event.ts} after {resolved}"
                    resolved = event.ts
                    continue
                assert event.commit_ts > resolved, f"partition {number}: {event} after resolved {resolved}"
                assert event.commit_ts >= at, f"partition {number}: {event} after {at}"
                at = event.commit_ts
                if at <= until_ts:
                    _count(event, rows, ddls)
        assert resolved >= until_ts, f"partition {number}: the last resolved is {resolved}, not {until_ts}"
    return rows, dict(ddls)


def _count(event: RowEvent | DdlEvent, rows: Counter[Row], ddls: Counter[int]) -> None:
    if isinstance(event, DdlEvent):
        ddls[event.commit_ts] += 1
        return
    image = event.old if event.new is None else event.new
    assert image is not None
    key = ",".join(str(image[name]) for name in event.key)
    rows[event.commit_ts, event.database, event.table, key, "delete" if event.new is None else "put"] += 1
